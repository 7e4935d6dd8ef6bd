"""The weights of one stripe of rows, tile by tile: exp(logit − log-sum-exp of the row)."""

import math
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from attnscope.attention.first_pass import Rows
from attnscope.attention.head_group import HeadGroup
from attnscope.attention.masks import HIDDEN_AT_MOST
from attnscope.attention.verify import ObservedCall

# exp2 costs a third of exp, so that logits are taken to base 2.
_LOG2_E = 1.0 / math.log(2.0)
# Added to the logit of a hidden key. Far below anything that is left of a plain logit, and times
# a weight of 0 it is 0, where −inf would be NaN.
_FAR = -1e30
# Penalties of tiles on the edge of a mask that are kept: a stripe has few places on an edge.
_KEPT = 8


class Stripe(Protocol):
    """Some rows of a group of heads, whose weights can be had by tiles."""

    rows: slice
    size: int  # heads

    def fill(self, keys: slice, out: Tensor) -> Tensor:
        """Write the weights into `out` and return −Σ w·log₂ w of each row, over these keys.

        Shapes: out (heads · rows, keys or more), 0 in what is more; (heads · rows,).
        """

    def at(self, keys: Tensor) -> Tensor:
        """Return the weights of some keys, in ascending order: (heads, rows, keys)."""


@dataclass(slots=True, eq=False)
class Scratch:
    """Memory that tiles of one worker share, so that it stays in the cache."""

    dtype: torch.dtype
    device: torch.device
    logits: Tensor | None = None
    penalties: dict[tuple[int, int, int], Tensor] = field(default_factory=dict)

    def logit_rows(self, rows: int, keys: int) -> Tensor:
        """Return room for a tile of logits: (rows, keys)."""
        if self.logits is None or self.logits.numel() < rows * keys:
            self.logits = torch.empty(rows * keys, dtype=self.dtype, device=self.device)
        return self.logits[: rows * keys].view(rows, keys)


class CallStripe:
    """Rows of an AttentionCall after the first pass."""

    def __init__(self, group: HeadGroup, rows: slice, known: Rows, scratch: Scratch) -> None:
        self.rows = rows
        self.size = group.size
        self.plain = group.plain
        self._group = group
        self._scratch = scratch
        # a blind row has log-sum-exp −inf: −inf − (−inf) would be NaN, and its weights are 0
        self._logsumexp = known.logsumexp.masked_fill(known.blind, 0.0)[..., None]
        if group.plain:
            query = group.query(rows) * (group.call.scale * _LOG2_E)
            self._query = query.flatten(0, 1)
            self._base = (self._logsumexp * -_LOG2_E).flatten(0, 1)

    def fill(self, keys: slice, out: Tensor) -> Tensor:
        """Write the weights of a tile; see Stripe."""
        logs = self.logarithms(keys, out.shape[1])
        torch.exp2(logs, out=out)
        return logs.mul_(out).sum(dim=1).neg_()

    def at(self, keys: Tensor) -> Tensor:
        """Return the weights of some keys; see Stripe."""
        weights = torch.exp2(self.logarithms(keys, len(keys)))
        return weights.view(self.size, -1, len(keys))

    def logarithms(self, keys: slice | Tensor, width: int) -> Tensor:
        """Return the weights' logarithms to base 2, in memory that the next tile may use.

        Shapes: (heads · rows, width).

        There are `width` columns, more than keys, so that equal logarithms give equal weights:
        what is left of a row after whole vectors is rounded in another way.
        """
        if not self._group.plain:
            logs = self._by_equation(keys).flatten(0, 1)
            more = width - logs.shape[1]
            return functional.pad(logs, (0, more), value=_FAR) if more else logs
        key = self._group.key(keys)[0]
        count = len(key)
        logs = self._scratch.logit_rows(len(self._query), width)
        if count < width:
            logs[:, count:] = _FAR
        torch.addmm(self._base, self._query, key.t(), out=logs[:, :count])
        self._hide(logs.view(self.size, -1, width)[..., :count], keys)
        return logs

    def _hide(self, logs: Tensor, keys: slice | Tensor) -> None:
        """Put the hidden keys of a tile far below all others."""
        if not isinstance(keys, slice):
            if self._group.call.mask.reach.filled:
                for start, end in self._edges(slice(int(keys[0]), int(keys[-1]) + 1)):
                    some = slice(*torch.searchsorted(keys, keys.new_tensor([start, end])).tolist())
                    logs[..., some] += self._beyond(keys[some])
                return
            seen = self._group.seen(self.rows, keys)
            if seen is not None:
                logs += _penalty(seen, logs.dtype)
            return
        for start, end in self._edges(keys):
            penalty = self._edge(slice(start, end))
            if penalty is not None:
                logs[..., start - keys.start : end - keys.start] += penalty

    def _beyond(self, keys: Tensor) -> Tensor:
        """Return what hides the keys out of reach: (rows, keys). Truth values take longer."""
        reach, place, dtype = (
            self._group.call.mask.reach,
            self._group.call.query_offset,
            self._scratch.dtype,
        )
        rows = torch.arange(self.rows.start + place, self.rows.stop + place, device=keys.device)
        far = keys.to(dtype) - rows.to(dtype)[:, None]  # of whole numbers the difference is exact
        out = (far - reach.last).clamp_(0.0, 1.0) if reach.last < math.inf else far.new_zeros(())
        if reach.first > -math.inf:
            out = out + (reach.first - far).clamp_(0.0, 1.0)
        return out.mul_(_FAR)

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

    def _by_equation(self, keys: slice | Tensor) -> Tensor:
        logits, _ = self._group.logits(self.rows, keys)
        logs = (logits - self._logsumexp).mul_(_LOG2_E)
        return logs.clamp_(min=_FAR)  # keeps a NaN, and 0 · −inf is none


def _penalty(seen: Tensor, dtype: torch.dtype) -> Tensor:
    return (~seen).to(dtype).mul_(_FAR)


class ObservedStripe:
    """Rows of one head of an ObservedCall, whose weights are there already."""

    def __init__(self, call: ObservedCall, head: int, rows: slice) -> None:
        self.rows = rows
        self.size = 1
        self._weights = call.weights[head : head + 1, rows]

    def fill(self, keys: slice, out: Tensor) -> Tensor:
        """Write the weights of a tile; see Stripe."""
        out[:, : keys.stop - keys.start] = self._weights[0, :, keys]
        surprise: Tensor = torch.special.entr(out)
        return surprise.sum(dim=1).mul_(_LOG2_E)

    def at(self, keys: Tensor) -> Tensor:
        """Return the weights of some keys; see Stripe."""
        weights = self._weights[..., keys]
        return weights.to(torch.promote_types(weights.dtype, torch.float32))


def observed_rows(call: ObservedCall, head: int, rows: slice, *, keep_context: bool) -> Rows:
    """Return what is known of some rows of an observed head; see Rows.

    The log-sum-exp is NaN where the scores were not seen, and then no row is known to be blind.
    """
    weights = call.weights[head : head + 1, rows]
    wide = torch.promote_types(weights.dtype, torch.float32)
    if call.scores is None:
        logsumexp = torch.full_like(weights[..., 0], math.nan, dtype=wide)
        blind = torch.zeros_like(logsumexp, dtype=torch.bool)
    else:
        scores = call.scores[head : head + 1, rows].to(wide)
        hidden = scores <= HIDDEN_AT_MOST
        logsumexp = torch.logsumexp(scores.masked_fill(hidden, -torch.inf), dim=-1)
        blind = hidden.all(dim=-1)
    context = None
    if keep_context:
        context = weights.to(wide) @ call.value[head : head + 1].to(wide)
    return Rows(logsumexp, context, blind)
