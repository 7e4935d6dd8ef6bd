"""The weights of some whole rows of an AttentionCall.

The rows' maxima and sums are those of the very numbers that become the weights, so that each row
adds to 1 to the last digits, however large its logits are.
"""

import math

import torch
from torch import Tensor

from attnscope.attention.head_group import HeadGroup
from attnscope.attention.masks import Reach
from attnscope.attention.stripe import LOG2_E, Rows, Scratch
from attnscope.attention.weight_buffer import VECTOR

# Added to the logit of a hidden key. Far below anything that is left of a plain logit, and times
# a weight of 0 it is 0, where −inf would be NaN.
_FAR = -1e30
# A plain logit is above this if it is not hidden.
HIDDEN_BELOW = _FAR / 2
# Penalties of places on the edge of a mask that are kept: a stripe has few of them.
_KEPT = 8
# Keys of a mask without a known reach, or of an equation with more steps, that are read at once.
PIECE = 2048
# Numbers whose exponentials are taken at once: they stay in the second cache.
AT_ONCE = 1 << 18


class CallStripe:
    """Rows of an AttentionCall; see Stripe."""

    def __init__(
        self,
        group: HeadGroup,
        rows: slice,
        scratch: Scratch,
        *,
        keep_context: bool = False,
    ) -> None:
        self.rows, self.size, self.plain = rows, group.size, group.plain
        self._group, self._scratch = group, scratch
        self._keep = keep_context
        self._context: Tensor | None = None
        # by row of all heads: the logit that is subtracted, the sum of exponentials, what is blind
        self._base = self._total = self._blind = torch.empty(0)
        self._unit = LOG2_E if group.plain else 1.0  # the equation's logits are natural ones
        if group.plain:
            self._query = (group.query(rows) * (group.call.scale * LOG2_E)).flatten(0, 1)

    def fill(self, keys: slice, out: Tensor) -> Tensor:
        """Write the weights; see Stripe."""
        self.logits(keys, out)
        if out.shape[1]:
            base = self.base(out.amax(dim=1, keepdim=True))
        else:
            base = self.base(out.new_full((len(out), 1), -torch.inf))
        own, entropy = self._exponentials(out, base)
        sinks = self.sinks()
        total = own if sinks is None else own + self._to_base_2(sinks - base).exp2_()
        shares = self.settle(base, total)
        # −Σ w·log₂ w of w = share · exponential
        entropy += own * total.log2().masked_fill_(total == 0.0, 0.0)
        out.mul_(shares)
        count = keys.stop - keys.start
        if count < out.shape[1]:
            out[:, count:] = 0.0  # a row that is NaN is so in its keys
        self.take(out[:, :count], keys)
        return entropy.mul_(shares)[:, 0]

    def base(self, maximum: Tensor) -> Tensor:
        """Return what is subtracted from the logits of each row before the exponential.

        It is the row's largest logit, the sink's among them, or 0 where there is none.
        Shapes: (heads · rows, 1) -> the same.
        """
        if self.plain:
            self._blind = maximum < HIDDEN_BELOW
        sinks = self.sinks()
        # a row of −inf that are not hidden stays so, and comes out NaN as of any softmax
        if sinks is None:
            return maximum.masked_fill(self._blind, 0.0)
        largest = torch.maximum(maximum.masked_fill(self._blind, -torch.inf), sinks)
        return largest.masked_fill_(self._blind & (largest == -torch.inf), 0.0)

    def sinks(self) -> Tensor | None:
        """Return the sink's logit of each row, (heads · rows, 1), or None if there is none."""
        sinks = self._group.sinks()
        if sinks is None:
            return None
        return (sinks * self._unit).repeat_interleave(self.rows.stop - self.rows.start)[:, None]

    def settle(self, base: Tensor, total: Tensor) -> Tensor:
        """Take each row's sum of exponentials, and return what to multiply those with.

        Shapes: (heads · rows, 1) -> the same, 0 where there is no exponential.
        """
        self._base, self._total = base, total
        return total.reciprocal().masked_fill_(total == 0.0, 0.0)

    def take(self, weights: Tensor, keys: slice) -> None:
        """Compute the context, if it is kept, of the weights of all keys: (heads · rows, keys)."""
        if self._keep:
            context = weights @ self._group.value(keys)[0]
            self._context = self._by_head(context).masked_fill_(self._by_head(self._blind), 0.0)

    def known(self) -> Rows:
        """Return what is known; see Stripe."""
        wide = torch.float64 if self._base.device.type != "mps" else self._base.dtype
        logsumexp = self._base.to(wide) / self._unit + self._total.to(wide).log()
        blind = self._by_head(self._blind)[..., 0]
        return Rows(self._by_head(logsumexp)[..., 0], self._context, blind)

    def logits(self, keys: slice, out: Tensor) -> None:
        """Write logits, plain ones to base 2.

        Hidden keys lie far below all others, at −inf if the logits are not plain. There may be
        more columns than keys, which are as if hidden, so that equal logits give equal weights:
        what is left of a row after whole vectors is rounded in another way.
        Shapes: out (heads · rows, keys or more).
        """
        count = keys.stop - keys.start
        if count < out.shape[1]:
            out[:, count:] = _FAR if self.plain else -torch.inf
        by_head = self._by_head(out[:, :count])
        if not self.plain:
            self._by_equation(keys, by_head)
            return
        torch.mm(self._query, self._group.key(keys)[0].t(), out=out[:, :count])
        self._hide(by_head, keys)

    def _exponentials(self, logits: Tensor, base: Tensor) -> tuple[Tensor, Tensor]:
        """Turn logits into exp(logit − base), in place, some columns after others.

        Shapes: logits (heads · rows, keys), base (heads · rows, 1) -> the sum of each row and
        −Σ of exponential times exponent, to base 2: as base.
        """
        own, entropy = torch.zeros_like(base), torch.zeros_like(base)
        step = max(VECTOR, AT_ONCE // max(1, len(logits)) // VECTOR * VECTOR)
        for part in torch.split(logits, step, dim=1):
            logs = self._scratch.logit_rows(*part.shape)
            self._to_base_2(torch.sub(part, base, out=logs))
            torch.exp2(logs, out=part)
            own += part.sum(dim=1, keepdim=True)
            entropy -= logs.mul_(part).sum(dim=1, keepdim=True)
        return own, entropy

    def _by_head(self, flat: Tensor) -> Tensor:
        return flat.view(self.size, self.rows.stop - self.rows.start, flat.shape[1])

    def _to_base_2(self, logs: Tensor) -> Tensor:
        """Turn logarithms of the stripe's own kind into those to base 2, in place."""
        if not self.plain:
            logs.mul_(LOG2_E).clamp_(min=_FAR)  # keeps a NaN, and 0 · −inf is none
        return logs

    def _hide(self, logs: Tensor, keys: slice) -> None:
        """Put the hidden keys far below all others."""
        for start, end in self._edges(keys):
            for some in _pieces(slice(start, end)):
                penalty = self._edge(some)
                if penalty is not None:
                    logs[..., some.start - keys.start : some.stop - keys.start] += penalty

    def _edges(self, keys: slice) -> list[tuple[int, int]]:
        """Return the parts of a range of keys that some row may not see."""
        reach, place = self._group.call.mask.reach, self._group.call.query_offset
        low = reach.first + self.rows.stop - 1 + place
        high = reach.last + self.rows.start + place + 1
        if not reach.filled or low >= high:
            return [(keys.start, keys.stop)]
        parts = ((keys.start, min(keys.stop, low)), (max(keys.start, high), keys.stop))
        return [(int(start), int(end)) for start, end in parts if start < end]

    def _edge(self, keys: slice) -> Tensor | None:
        """Return what is added to the logarithms of some keys, or None if all of them are seen."""
        filled = self._group.call.mask.reach.filled
        first, kept = self.rows.start, self._scratch.penalties
        name = keys.start - first, keys.stop - first, self.rows.stop - first
        if filled and name in kept:
            return kept[name]
        seen = self._group.seen(self.rows, keys)
        if seen is None:
            return None
        penalty = _penalty(seen, self._scratch.dtype)
        if filled:  # then it is the same at every place with the same distances
            if len(kept) >= _KEPT:
                kept.clear()
            kept[name] = penalty
        return penalty

    def _by_equation(self, keys: slice, out: Tensor) -> None:
        """Write the logits of the whole equation, and note which rows see none of the keys."""
        seeing = torch.zeros(out.shape[:2], dtype=torch.bool, device=out.device)
        for some in _pieces(keys):
            logits, seen = self._group.logits(self.rows, some)
            out[..., some.start - keys.start : some.stop - keys.start] = logits
            seeing |= True if seen is None else seen.any(dim=-1)
        self._blind = ~seeing.flatten()[:, None]


def _pieces(keys: slice) -> list[slice]:
    starts = range(keys.start, keys.stop, PIECE)
    return [slice(start, min(start + PIECE, keys.stop)) for start in starts]


def _penalty(seen: Tensor, dtype: torch.dtype) -> Tensor:
    return (~seen).to(dtype).mul_(_FAR)


def beyond(reach: Reach, rows: slice, place: int, keys: Tensor, dtype: torch.dtype) -> Tensor:
    """Return what hides the keys out of reach of rows, row 0 being the query at `place`.

    Truth values take longer. Shapes: keys (…, keys) -> (…, rows, keys).
    """
    positions = torch.arange(rows.start + place, rows.stop + place, device=keys.device)
    # of whole numbers the difference is exact
    far = keys.to(dtype)[..., None, :] - positions.to(dtype)[:, None]
    if reach.first == -math.inf:
        return far.sub_(reach.last).clamp_(0.0, 1.0).mul_(_FAR)
    near = (reach.first - far).clamp_(0.0, 1.0)
    return near.add_(far.sub_(reach.last).clamp_(0.0, 1.0)).mul_(_FAR)


def subtract(logits: Tensor, wide: Tensor) -> Tensor:
    """Subtract wide numbers from narrow ones, in place, without rounding them first."""
    most = wide.to(logits.dtype)
    return logits.sub_(most).sub_((wide - most).to(logits.dtype))
