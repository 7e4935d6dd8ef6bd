"""Two ways of computing one thing in; a Comparison out."""

import math
from dataclasses import dataclass

import torch

from attnscope.attention.engine import MaskMethod
from attnscope.attention.reference import difference
from attnscope.attention.result import AttentionResult, attend
from attnscope.attention.warnings import warnings_of
from attnscope.run import Run

# Operations on each of the heads × queries × keys cells after the omegas. Both: scale 1, softmax
# 5 (maximum, subtract, exponential, sum, divide). −∞: fill 1. Renormalise: multiply, sum, divide 3.
_OPERATIONS = {MaskMethod.NEG_INF: 7, MaskMethod.RENORMALIZE: 9}


@dataclass(frozen=True, slots=True, eq=False)
class MethodCost:
    """What one mask method does after the omegas: element operations, bytes of its matrices."""

    method: MaskMethod
    operations: int
    matrices: int
    memory_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Underflow:
    """How far a hidden score lies above the visible ones of its row, and from where sums vanish.

    `gap` is the largest over all rows of (largest hidden − largest visible scaled score), −inf
    if nothing is hidden; a row sum of the renormalize method is 0 from a gap of about `limit` on.
    """

    gap: float
    limit: float
    head: int
    query: int


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """One call with its causal mask applied by one or both methods.

    `weights_gap` and `context_gap` are max |Δ| between the two methods (or, with one method,
    between its context and torch's own kernel; then `weights_gap` is None).
    """

    run: Run
    results: tuple[AttentionResult, ...]
    costs: tuple[MethodCost, ...]
    weights_gap: float | None
    context_gap: float | None
    underflow: Underflow
    warnings: tuple[str, ...]

    @property
    def largest_gap(self) -> float | None:
        """The largest difference found; None if there was nothing to compare with."""
        gaps = [gap for gap in (self.weights_gap, self.context_gap) if gap is not None]
        if not gaps:
            return None
        return math.nan if any(math.isnan(gap) for gap in gaps) else max(gaps)


def compare_masks(run: Run, methods: tuple[MaskMethod, ...]) -> Comparison:
    """Compute the call of a run once with each mask method."""
    call = run.layers[0].call
    with torch.no_grad():
        results = tuple(
            run.layers[0] if run.layers[0].method is method else attend(call, method)
            for method in methods
        )
    weights_gap, context_gap = None, results[0].reference_gap
    if len(results) == 2:
        first, second = results
        weights_gap = difference(first.weights, second.weights)
        context_gap = difference(first.context, second.context)
    warnings = [
        warning
        for result in results
        for warning in warnings_of(result, run.queries.labels, run.keys.labels)
    ]
    return Comparison(
        run,
        results,
        tuple(_cost(result) for result in results),
        weights_gap,
        context_gap,
        _underflow(results[0]),
        tuple(dict.fromkeys(warnings)),
    )


def underflow_limit(dtype: torch.dtype) -> float:
    """Return the gap from which exp(−gap) rounds to 0: −ln of half the smallest number above 0."""
    info = torch.finfo(dtype)
    return -(math.log(info.smallest_normal) + math.log(info.eps) - math.log(2.0))


def _cost(result: AttentionResult) -> MethodCost:
    steps = result.steps
    matrices = [steps.scaled, steps.visible.expand(steps.scaled.shape), steps.weights]
    if result.mask_steps is None:
        matrices.append(steps.logits)
    else:
        masked = result.mask_steps
        matrices += [masked.unmasked, masked.masked, masked.row_sums]
    size = sum(matrix.numel() * matrix.element_size() for matrix in matrices)
    cells = result.scores.numel()
    return MethodCost(result.method, _OPERATIONS[result.method] * cells, len(matrices), size)


def _underflow(result: AttentionResult) -> Underflow:
    seen, scaled = result.visible, result.steps.scaled.double()
    hidden_most = scaled.masked_fill(seen, -torch.inf).amax(dim=-1)
    visible_most = scaled.masked_fill(~seen, -torch.inf).amax(dim=-1)
    gaps = hidden_most - visible_most
    gaps = gaps.masked_fill(~seen.any(dim=-1) | seen.all(dim=-1) | gaps.isnan(), -torch.inf)
    place = int(gaps.argmax())
    head, query = divmod(place, gaps.shape[1])
    return Underflow(float(gaps.max()), underflow_limit(result.weights.dtype), head, query)
