"""HeadGroup: one key head and the query heads that read it, rows by keys at a time."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from attnscope.attention import engine
from attnscope.attention.call import AttentionCall
from attnscope.attention.masks import Reach

# Above this, a product of query and key might overflow float32, and the equation is followed step
# by step. Ordinary scores are below 1e3.
_LARGE = 1e25


@dataclass(frozen=True, slots=True, eq=False)
class HeadGroup:
    """The part of a call that reads one key head.

    `call` holds views: heads query heads, one key head; its mask is that of the whole call, of
    which `heads` are the group's. `plain`: logits are scale · q·k and nothing else, all finite.
    """

    call: AttentionCall
    heads: slice
    plain: bool

    @property
    def size(self) -> int:
        """How many query heads there are."""
        return self.call.heads

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of all numbers: half types are widened to float32, some rows at once."""
        return wide_dtype(self.call.query.dtype)

    def query(self, rows: slice) -> Tensor:
        """Return some queries: (heads, rows, d_key)."""
        return self.call.query[:, rows].to(self.dtype)

    def key(self, keys: slice | Tensor) -> Tensor:
        """Return some keys: (1, keys, d_key)."""
        return self.call.key[:, keys].to(self.dtype)

    def value(self, keys: slice) -> Tensor:
        """Return some values: (1, keys, d_value)."""
        return self.call.value[:, keys].to(self.dtype)

    def sinks(self) -> Tensor | None:
        """Return one logit per head: (heads,)."""
        return None if self.call.sinks is None else self.call.sinks.to(self.dtype)

    def span(self, rows: slice) -> tuple[int, int]:
        """Return the range of keys, half-open, outside of which no row sees anything."""
        return span(self.call, rows)

    def seen(self, rows: slice, keys: slice | Tensor) -> Tensor | None:
        """Return which keys each row may see, (heads or 1, rows, keys), or None if it is all."""
        known = self.call.mask.reach.filled
        if isinstance(keys, slice) and filled(self.call, rows, keys):
            return None
        # the engine takes a list of keys wherever it takes a slice
        seen = engine.visible(self.call, rows, keys)  # type: ignore[arg-type]
        if seen.shape[0] > 1:
            seen = seen[self.heads]
        return None if not known and bool(seen.all()) else seen

    def logits(self, rows: slice, keys: slice | Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the logits of rows by keys, −inf where hidden, and what is seen."""
        key = self.key(keys)
        part = AttentionCall(self.query(rows), key, key, scale=1.0)
        scaled = engine.scale_scores(self.call, engine.scores(part), rows, keys)  # type: ignore[arg-type]
        seen = self.seen(rows, keys)
        return (scaled if seen is None else engine.hide(scaled, seen)), seen


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype that numbers of a call are computed in."""
    return torch.promote_types(dtype, torch.float32)


def head_groups(call: AttentionCall, *, plain: bool | None = None) -> list[HeadGroup]:
    """Return the groups of a call, one per key head. `plain`: see head_group."""
    size = call.heads // call.key_heads
    starts = range(0, call.heads, size)
    return [head_group(call, slice(first, first + size), plain=plain) for first in starts]


def head_group(call: AttentionCall, heads: slice, *, plain: bool | None = None) -> HeadGroup:
    """Return a group of query heads that all read one key head.

    `plain`: False for the equation whatever the numbers; they are looked at if it is not given.
    """
    bias = call.bias
    if bias is not None and bias.dim() == 3 and bias.shape[0] > 1:
        bias = bias[heads]
    one = call.key_head(heads.start)
    part = AttentionCall(
        call.query[heads],
        call.key[one : one + 1],
        call.value[one : one + 1],
        call.scale,
        call.mask,
        bias,
        call.softcap,
        None if call.sinks is None else call.sinks[heads],
        call.query_offset,
    )
    if plain is None:
        plain = bias is None and call.softcap is None and _small(part)
    return HeadGroup(part, heads, plain)


def _small(call: AttentionCall) -> bool:
    largest = [max(abs(float(n)) for n in tensor.aminmax()) for tensor in (call.query, call.key)]
    bound = largest[0] * largest[1] * call.query.shape[2] * abs(call.scale)
    return math.isfinite(bound) and bound < _LARGE  # a NaN is neither


def span(call: AttentionCall, rows: slice) -> tuple[int, int]:
    """Return the range of keys, half-open, outside of which none of these rows sees anything."""
    reach = call.mask.reach
    first = max(0, reach.first + rows.start + call.query_offset)
    end = min(call.keys, reach.last + rows.stop - 1 + call.query_offset + 1)
    return (int(first), int(end)) if first < end else (0, 0)


def filled(call: AttentionCall, rows: slice, keys: slice) -> bool:
    """Return whether each of these rows is known to see each of these keys."""
    reach: Reach = call.mask.reach
    nearest = keys.start - (rows.stop - 1 + call.query_offset)
    farthest = keys.stop - 1 - (rows.start + call.query_offset)
    return reach.filled and reach.first <= nearest and farthest <= reach.last
