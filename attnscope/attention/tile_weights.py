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
        """Write the weights into `out` and return −Σ w·ln w of each row, over these keys.

        Shapes: out (heads, rows, keys or more), 0 in what is more; (heads, rows).
        """

    def at(self, keys: Tensor) -> Tensor:
        """Return the weights of some keys: (heads, rows, keys)."""


@dataclass(slots=True, eq=False)
class Scratch:
    """Memory that tiles of one worker share, so that it stays in the cache."""

    dtype: torch.dtype
    device: torch.device
    keys: Tensor | None = None
    logits: Tensor | None = None
    penalties: dict[tuple[int, int, int], Tensor] = field(default_factory=dict)

    def key_rows(self, count: int, width: int) -> Tensor:
        """Return room for keys and a column of ones: (count, width + 1)."""
        if self.keys is None or self.keys.shape[0] < count or self.keys.shape[1] != width + 1:
            self.keys = torch.ones(count, width + 1, dtype=self.dtype, device=self.device)
        return self.keys[:count]

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
        self._group = group
        self._scratch = scratch
        # a blind row has log-sum-exp −inf: −inf − (−inf) would be NaN, and its weights are 0
        self._logsumexp = known.logsumexp.masked_fill(known.blind, 0.0)[..., None]
        self._rows_of_product = self._with_logsumexp() if group.plain else None

    def _with_logsumexp(self) -> Tensor:
        """Return queries such that their product with (key, 1) is the weight's logarithm."""
        call = self._group.call
        query = self._group.query(self.rows) * (call.scale * _LOG2_E)
        rows = torch.cat([query, self._logsumexp * -_LOG2_E], dim=-1)
        return rows.flatten(0, 1)

    def fill(self, keys: slice, out: Tensor) -> Tensor:
        """Write the weights of a tile; see Stripe."""
        logs = self._logs(keys, out.shape[-1])
        torch.exp2(logs, out=out)
        bits = logs.mul_(out).sum(dim=-1)
        return bits * -math.log(2.0)

    def at(self, keys: Tensor) -> Tensor:
        """Return the weights of some keys; see Stripe."""
        return torch.exp2(self._logs(keys, len(keys)))

    def _logs(self, keys: slice | Tensor, width: int) -> Tensor:
        """Return the weights' logarithms to base 2, in memory that the next tile may use.

        There are `width` columns, more than keys, so that equal logarithms give equal weights:
        what is left of a row after whole vectors is rounded in another way.
        """
        if self._rows_of_product is None:
            logs = self._by_equation(keys)
            more = width - logs.shape[-1]
            return functional.pad(logs, (0, more), value=_FAR) if more else logs
        return self._by_product(keys, self._rows_of_product, width)

    def _by_product(self, keys: slice | Tensor, rows: Tensor, room: int) -> Tensor:
        count = keys.stop - keys.start if isinstance(keys, slice) else len(keys)
        width = self._group.call.key.shape[2]
        key = self._scratch.key_rows(count, width)
        key[:, :width].copy_(self._group.call.key[0, keys])
        flat = self._scratch.logit_rows(rows.shape[0], room)
        flat[:, count:] = _FAR
        torch.mm(rows, key.t(), out=flat[:, :count])
        logs = flat.view(self.size, -1, room)
        penalty = self._penalty(keys)
        if penalty is not None:
            logs[..., :count].add_(penalty)
        return logs

    def _penalty(self, keys: slice | Tensor) -> Tensor | None:
        """Return what is added to the logits of a tile, or None if all of it is seen."""
        if not isinstance(keys, slice):
            seen = self._group.seen(self.rows, keys)
            return None if seen is None else (~seen).to(self._scratch.dtype).mul_(_FAR)
        reach = self._group.call.mask.reach
        name = (
            keys.start - self.rows.start,
            self.rows.stop - self.rows.start,
            keys.stop - keys.start,
        )
        kept = self._scratch.penalties
        if reach.filled and name in kept:
            return kept[name]
        seen = self._group.seen(self.rows, keys)
        if seen is None:
            return None
        penalty = (~seen).to(self._scratch.dtype).mul_(_FAR)
        if reach.filled:  # then it is the same at every place with the same distances
            if len(kept) >= _KEPT:
                kept.clear()
            kept[name] = penalty
        return penalty

    def _by_equation(self, keys: slice | Tensor) -> Tensor:
        logits, _ = self._group.logits(self.rows, keys)
        logs = (logits - self._logsumexp).mul_(_LOG2_E)
        return logs.clamp_(min=_FAR)  # keeps a NaN, and 0 · −inf is none


class ObservedStripe:
    """Rows of one head of an ObservedCall, whose weights are there already."""

    def __init__(self, call: ObservedCall, head: int, rows: slice) -> None:
        self.rows = rows
        self.size = 1
        self._weights = call.weights[head : head + 1, rows]

    def fill(self, keys: slice, out: Tensor) -> Tensor:
        """Write the weights of a tile; see Stripe."""
        out[..., : keys.stop - keys.start] = self._weights[..., keys]
        surprise: Tensor = torch.special.entr(out)
        return surprise.sum(dim=-1)

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
