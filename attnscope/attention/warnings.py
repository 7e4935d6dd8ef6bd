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
    call = result.call
    if not all(bool(tensor.isfinite().all()) for tensor in (call.query, call.key)):
        return  # already said where it came from
    broken = ~result.scores.isfinite()
    count = int(broken.sum())
    if count:
        head, row, column = _first(broken)
        most = torch.finfo(call.query.dtype).max
        yield (
            f"{_numbers(count)} of the omegas overflow {str(call.query.dtype)[6:]} (largest "
            f"{most:.6g}), the first in head {head}, query {row} {queries[row]}, key {column} "
            f"{keys[column]}"
        )


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
    gone = (result.mask_steps.row_sums == 0) & result.steps.visible.any(dim=-1)
    count = int(gone.sum())
    if count:
        head, row = _first(gone)
        yield (
            f"{count} row {'sum underflows' if count == 1 else 'sums underflow'} to 0 in "
            f"{str(result.weights.dtype)[6:]}, so 0/0 is NaN: the first in head {head}, "
            f"query {row} {queries[row]}; --mask-method neg-inf does not divide by them"
        )


def _first(where: Tensor) -> list[int]:
    return [int(i) for i in where.nonzero()[0]]


def _numbers(count: int) -> str:
    return f"{count} number{'s' if count != 1 else ''}"


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _gap(value: float | None) -> str:
    return "NaN" if value is None or value != value else f"{value:.3g}"
