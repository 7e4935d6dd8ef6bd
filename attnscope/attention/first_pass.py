"""The first pass: context and log-sum-exp of some rows, without their weights.

Keys are read piece by piece and joined as FlashAttention does it. A piece that all rows see, or a
square that they see causally, is one call of torch's fused kernel; any other is computed by the
equation, tile by tile.
Source: Dao et al. 2022, "FlashAttention", algorithm 1.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from attnscope.attention import fused
from attnscope.attention.head_group import HeadGroup


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """What the first pass knows about some rows.

    Shapes: logsumexp (heads, rows), the sink included, −inf for a row that sees nothing; context
    (heads, rows, d_value) or None; blind (heads, rows), the rows that may see no key.
    """

    logsumexp: Tensor
    context: Tensor | None
    blind: Tensor


@dataclass(slots=True, eq=False)
class _Running:
    """Shapes: maximum, total (heads, rows, 1); context (heads, rows, d_value) or None.

    `fresh`: there is nothing yet that a piece has to be joined to.
    """

    maximum: Tensor
    total: Tensor
    context: Tensor | None
    seen: Tensor
    fresh: bool = False

    def join(self, maximum: Tensor, total: Tensor, context: Tensor | None) -> None:
        """Add a piece: Σ exp(logit − maximum), and the same sum with values."""
        if self.fresh:
            self.maximum, self.total, self.fresh = maximum, total, False
            self.context = None if self.context is None else context
            return
        most = torch.maximum(self.maximum, maximum)
        base = _base(most)
        mine, theirs = (self.maximum - base).exp(), (maximum - base).exp()
        self.total = mine * self.total + theirs * total
        if self.context is not None and context is not None:
            self.context = mine * self.context + theirs * context
        self.maximum = most


def first_pass(
    group: HeadGroup,
    rows: slice,
    tile: tuple[int, int],
    *,
    keep_context: bool,
    use_fused: bool,
    step: Callable[[], None],
) -> Rows:
    """Compute log-sum-exp, and context if it is kept, of some rows.

    `tile`: rows and keys computed at a time; `step` is called between pieces and may raise.
    """
    running = _start(group, rows, keep_context)
    for keys, kind in _pieces(group, rows, use_fused):
        step()
        done = None
        if kind != "equation":
            done = fused.attended(group, rows, keys, causal=kind == "square")
        if done is None:
            running.fresh = False
            _by_equation(running, group, rows, keys, tile, step)
        else:
            context, logsumexp = done
            running.join(logsumexp[..., None], torch.ones_like(logsumexp[..., None]), context)
            running.seen.fill_(True)
    total, summed = running.total, running.context
    logsumexp = (_base(running.maximum) + total.log())[..., 0]
    if summed is not None:
        summed = (summed / total).masked_fill(~running.seen, 0.0)
    return Rows(logsumexp, summed, ~running.seen[..., 0])


def _start(group: HeadGroup, rows: slice, keep_context: bool) -> _Running:
    shape = (group.size, rows.stop - rows.start, 1)
    like = group.call.query.new_empty(0, dtype=group.dtype)
    maximum = like.new_full(shape, -torch.inf)
    total = like.new_zeros(shape)
    sinks = group.sinks()
    if sinks is not None:  # a logit without a value: read before the first key
        maximum = maximum.copy_(sinks[:, None, None])
        total = (maximum - _base(maximum)).exp()
    context = None
    if keep_context:
        context = like.new_zeros(*shape[:2], group.call.value.shape[2])
    return _Running(maximum, total, context, like.new_zeros(shape, dtype=torch.bool), sinks is None)


def _pieces(group: HeadGroup, rows: slice, use_fused: bool) -> Iterator[tuple[slice, str]]:
    """Cut the keys that rows may see into what the fused kernel takes, and the rest."""
    first, end = group.span(rows)
    reach, place = group.call.mask.reach, group.call.query_offset
    if not use_fused or not reach.filled:
        if first < end:
            yield slice(first, end), "equation"
        return
    # keys that every row sees
    low = int(min(end, max(first, reach.first + rows.stop - 1 + place)))
    high = int(max(low, min(end, reach.last + 1 + rows.start + place)))
    square = reach.last == 0 and low <= rows.start + place < end  # ends on the diagonal
    if square:
        high = rows.start + place
    if first < low:
        yield slice(first, low), "equation"
    most = max(1, fused.MOST // (group.size * (rows.stop - rows.start) * group.call.query.shape[2]))
    for start in range(low, high, most):
        yield slice(start, min(start + most, high)), "whole"
    if high < end:
        yield slice(high, end), "square" if square else "equation"


def _by_equation(
    running: _Running,
    group: HeadGroup,
    rows: slice,
    keys: slice,
    tile: tuple[int, int],
    step: Callable[[], None],
) -> None:
    """Join keys to rows, a tile at a time."""
    for top in range(rows.start, rows.stop, tile[0]):
        some = slice(top, min(top + tile[0], rows.stop))
        here = slice(some.start - rows.start, some.stop - rows.start)
        context = running.context
        part = _Running(
            running.maximum[:, here],
            running.total[:, here],
            None if context is None else context[:, here],
            running.seen[:, here],
        )
        for left in range(keys.start, keys.stop, tile[1]):
            step()
            _join_tile(part, group, some, slice(left, min(left + tile[1], keys.stop)))
        running.maximum[:, here], running.total[:, here] = part.maximum, part.total
        running.seen[:, here] = part.seen
        if context is not None and part.context is not None:
            context[:, here] = part.context


def _join_tile(part: _Running, group: HeadGroup, rows: slice, keys: slice) -> None:
    logits, seen = group.logits(rows, keys)
    part.seen = part.seen | (True if seen is None else seen.any(dim=-1, keepdim=True))
    maximum = logits.amax(dim=-1, keepdim=True)
    exponentials = logits.sub_(_base(maximum)).exp_()
    context = None
    if part.context is not None:
        value = group.value(keys)[0]
        context = exponentials @ value
    part.join(maximum, exponentials.sum(dim=-1, keepdim=True), context)


def _base(maximum: Tensor) -> Tensor:
    # while no key has been seen, −inf − (−inf) would be NaN; exp(−inf − 0) is the 0 that is meant
    return maximum.masked_fill(maximum == -torch.inf, 0.0)
