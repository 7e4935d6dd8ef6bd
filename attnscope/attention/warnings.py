"""What a reader of the numbers must know, in one line each: blind rows, overflow, underflow."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from attnscope.attention.result import AttentionResult


def warnings_of(result: AttentionResult, queries: Sequence[str], keys: Sequence[str]) -> list[str]:
    """Return the warnings about a result; `queries` and `keys` are the labels to name them by."""
    found = [
        *_inputs(result),
        *_overflow(result, queries, keys),
        *_blind(result, queries),
        *_underflow(result, queries),
    ]
    if result.agrees is False:
        found.append(
            f"the context differs from torch's own kernel: max |Δ| = {_gap(result.reference_gap)}"
        )
    return found


def _inputs(result: AttentionResult) -> Iterator[str]:
    call = result.call
    for name, tensor in (("query", call.query), ("key", call.key), ("value", call.value)):
        count = int((~tensor.isfinite()).sum())
        if count:
            head, row, column = _first(~tensor.isfinite())
            yield (
                f"{name} holds {_numbers(count)} that {_is(count)} not finite, the first in head "
                f"{head} at [{row}, {column}]: {float(tensor[head, row, column])}"
            )


def _overflow(
    result: AttentionResult, queries: Sequence[str], keys: Sequence[str]
) -> Iterator[str]:
    """Name the first step whose numbers are not finite although all before it were."""
    call = result.call
    if not all(_finite(tensor) for tensor in (call.query, call.key, call.value)):
        return  # already said where it came from
    # of a call that was only observed nobody knows the omegas, and its hidden scores are −∞
    steps = [] if result.observed else [("omegas", result.scores, keys)]
    steps += [] if result.observed else [("scaled scores", result.steps.scaled, keys)]
    for name, tensor, columns in (*steps, ("context numbers", result.context, None)):
        broken = ~tensor.isfinite()
        count = int(broken.sum())
        if count and (name != "context numbers" or _finite(result.weights)):
            head, row, column = _first(broken)
            most = torch.finfo(call.query.dtype).max
            place = f"number {column}" if columns is None else f"key {column} {columns[column]}"
            yield (
                f"{count} of the {name} {'overflows' if count == 1 else 'overflow'} "
                f"{str(call.query.dtype)[6:]} (largest {most:.6g}), the first in head {head}, "
                f"query {row} {queries[row]}, {place}"
            )
            return


def _finite(tensor: Tensor) -> bool:
    return bool(tensor.isfinite().all())


def _blind(result: AttentionResult, queries: Sequence[str]) -> Iterator[str]:
    blind = ~result.steps.visible.any(dim=-1)  # (heads or 1, queries)
    rows = [row for row in range(blind.shape[1]) if bool(blind[:, row].any())]
    if rows:
        named = ", ".join(f"{row} {queries[row]}" for row in rows[:5])
        more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
        what = "query may" if len(rows) == 1 else "queries may"
        yield f"{len(rows)} {what} see no key, so weights and context are 0: {named}{more}"


def _underflow(result: AttentionResult, queries: Sequence[str]) -> Iterator[str]:
    if result.mask_steps is None:
        return
    sums = result.mask_steps.row_sums
    seeing = result.steps.visible.any(dim=-1)
    gone = (sums == 0) & seeing
    count = int(gone.sum())
    if count:
        head, row = _first(gone)
        yield (
            f"{count} row {'sum underflows' if count == 1 else 'sums underflow'} to 0 in "
            f"{str(result.weights.dtype)[6:]}, so 0/0 is NaN: the first in head {head}, "
            f"query {row} {queries[row]}; --mask-method neg-inf does not divide by them"
        )

    few = (sums > 0) & (sums < torch.finfo(sums.dtype).tiny) & seeing
    count = int(few.sum())
    if count:
        head, row = _first(few)
        yield (
            f"{count} row {'sum is' if count == 1 else 'sums are'} so small that figures are lost "
            f"in {str(sums.dtype)[6:]}: the first in head {head}, query {row} {queries[row]}: "
            f"{float(sums[head, row]):.3g}"
        )


def _first(where: Tensor) -> list[int]:
    return [int(i) for i in where.nonzero()[0]]


def _numbers(count: int) -> str:
    return f"{count} number{'s' if count != 1 else ''}"


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _gap(value: float | None) -> str:
    return "NaN" if value is None or value != value else f"{value:.3g}"
