"""Some rows of a call, and some rows by some keys: exact parts of a matrix that is never made."""

from dataclasses import replace

import torch
from torch import Tensor

from attnscope.attention import engine, measures, reference
from attnscope.attention.call import AttentionCall
from attnscope.attention.engine import MaskMethod, Steps
from attnscope.attention.masks import from_tensor
from attnscope.attention.measured import MeasureOptions
from attnscope.attention.result import STRONGEST, AttentionResult, observe
from attnscope.attention.stripes import measure
from attnscope.attention.verify import CapturedCall, ObservedCall, widened
from attnscope.attention.weight_windows import window_weights


def chosen_rows(call: AttentionCall | ObservedCall, rows: slice) -> AttentionCall | ObservedCall:
    """Return the call of some consecutive queries, at their positions, over all keys."""
    start, stop, _ = rows.indices(call.queries)
    if isinstance(call, ObservedCall):
        scores = None if call.scores is None else call.scores[:, start:stop]
        return ObservedCall(call.weights[:, start:stop], call.value, scores)
    return replace(
        call,
        query=call.query[:, start:stop],
        bias=None if call.bias is None else _rows_of(call, call.bias, slice(start, stop)),
        query_offset=call.query_offset + start,
    )


def captured_rows(captured: CapturedCall, rows: slice) -> CapturedCall:
    """Return the record of some consecutive queries of a captured call."""
    start, _, _ = rows.indices(captured.call.queries)
    return replace(
        captured,
        call=chosen_rows(captured.call, rows),
        output=captured.output[:, rows],
        query_offset=captured.query_offset + start,
    )


def rows_that_see(call: AttentionCall | ObservedCall, rows: slice) -> Tensor:
    """Return which of some queries may see a key, be it in a window of them or not.

    Shapes: -> (heads or 1, rows) bool.
    """
    whole_rows = chosen_rows(call, rows)
    if isinstance(whole_rows, ObservedCall):
        return observe(whole_rows).visible.any(dim=-1)
    return engine.visible(whole_rows).any(dim=-1)


def _rows_of(call: AttentionCall, bias: Tensor, rows: slice) -> Tensor:
    whole = bias.expand(bias.shape[0] if bias.dim() == 3 else 1, call.queries, bias.shape[-1])
    return whole[:, rows]


@torch.no_grad()
def window_of(call: AttentionCall | ObservedCall, rows: slice, keys: slice) -> AttentionResult:
    """Return some rows by some keys of a call, every step, as they are in the whole.

    Weights, log-sum-exp, entropy and context are those of the whole rows; the strongest keys are
    those of the window. The record holds the vectors of the window alone.
    Memory: five matrices of heads × rows × keys of the window, and one of heads × rows × all keys.
    """
    whole_rows = chosen_rows(call, rows)
    if isinstance(whole_rows, ObservedCall):
        return _observed_window(whole_rows, keys)
    own = widened(whole_rows)
    weights, known = window_weights(own, slice(None), keys, plain=False)
    seen = engine.visible(own, keys=keys)
    omegas = engine.scores(own, keys=keys)
    scaled = engine.scale_scores(own, omegas, keys=keys)
    assert known.context is not None  # asked for above
    steps = Steps(
        seen, omegas, scaled, engine.hide(scaled, seen), weights, known.context,
        known.logsumexp.to(weights.dtype), None,
    )  # fmt: skip
    theirs = reference.reference_context(own)
    return AttentionResult(
        _part(own, keys, seen),
        MaskMethod.NEG_INF,
        steps,
        # 0 may be a last digit off
        measure(own, MeasureOptions(top=0, grid=None)).entropy.clamp(min=0.0),
        *measures.strongest(weights, seen.expand(weights.shape), STRONGEST),
        None if theirs is None else reference.difference(known.context, theirs),
    )


def _part(call: AttentionCall, keys: slice, seen: Tensor) -> AttentionCall:
    """Return the vectors of some keys, and of all queries of a call, as a call of their own."""
    bias = None if call.bias is None else call.bias.expand(-1, call.queries, call.keys)[..., keys]
    return replace(
        call,
        key=call.key[:, keys],
        value=call.value[:, keys],
        mask=from_tensor(seen),
        bias=bias,
        query_offset=0,
    )


def _observed_window(call: ObservedCall, keys: slice) -> AttentionResult:
    whole = observe(call)
    scores = None if call.scores is None else call.scores[..., keys]
    part = observe(ObservedCall(call.weights[..., keys], call.value[:, keys], scores))
    steps = replace(part.steps, context=whole.steps.context, logsumexp=whole.steps.logsumexp)
    return replace(part, steps=steps, entropy=whole.entropy)
