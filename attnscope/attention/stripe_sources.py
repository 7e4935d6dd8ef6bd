"""Where the weights of stripes come from: a call, or weights that were observed."""

import math
from typing import Protocol

import torch
from torch import Tensor

from attnscope.attention.call import AttentionCall
from attnscope.attention.call_stripe import CallStripe, beyond, subtract
from attnscope.attention.head_group import head_group, head_groups, span, wide_dtype
from attnscope.attention.observed_stripe import ObservedStripe
from attnscope.attention.stripe import LOG2_E, Scratch, Stripe
from attnscope.attention.verify import ObservedCall


class Source(Protocol):
    """A call as groups of heads that are read together; `heads` names those of each group."""

    heads: list[slice]

    def span(self, rows: slice) -> tuple[int, int]:
        """Return the keys, half-open, outside of which none of these rows sees anything."""

    def stripe(self, group: int, rows: slice, scratch: Scratch) -> Stripe:
        """Return some rows of a group of heads."""

    def orders(self, heads: Tensor, rows: slice, keys: Tensor, logsumexp: Tensor) -> Tensor:
        """Return numbers that have the order of the weights of some keys of several heads.

        `logsumexp` is 0 for rows that see nothing.
        Shapes: heads (n,), keys (n, keys), logsumexp (n, rows) -> (n, rows, keys).
        """


class CallSource:
    """The weights of an AttentionCall."""

    def __init__(self, call: AttentionCall, *, keep_context: bool) -> None:
        self._call, self._keep = call, keep_context
        self._groups = head_groups(call)
        self.heads = [group.heads for group in self._groups]

    def span(self, rows: slice) -> tuple[int, int]:
        """See Source."""
        return span(self._call, rows)

    def stripe(self, group: int, rows: slice, scratch: Scratch) -> Stripe:
        """See Source."""
        return CallStripe(self._groups[group], rows, scratch, keep_context=self._keep)

    def orders(self, heads: Tensor, rows: slice, keys: Tensor, logsumexp: Tensor) -> Tensor:
        """See Source."""
        call, dtype, reach = self._call, self._groups[0].dtype, self._call.mask.reach
        if not (reach.filled and all(group.plain for group in self._groups)):
            each = zip(heads.tolist(), keys, logsumexp, strict=True)
            return torch.cat([self._order(head, rows, *more) for head, *more in each])
        query = call.query[heads, rows].to(dtype) * (call.scale * LOG2_E)
        shared = heads // (call.heads // call.key_heads)
        key = call.key[shared[:, None], keys].to(dtype)
        logs = torch.bmm(query, key.transpose(1, 2))
        if (reach.first, reach.last) != (-math.inf, math.inf):
            logs += beyond(reach, rows, call.query_offset, keys, dtype)
        return subtract(logs, (logsumexp * LOG2_E)[..., None])

    def _order(self, head: int, rows: slice, keys: Tensor, logsumexp: Tensor) -> Tensor:
        group = head_group(self._call, slice(head, head + 1), plain=False)
        logits, _ = group.logits(rows, keys)
        return subtract(logits, logsumexp[:, None])


class ObservedSource:
    """The weights of an ObservedCall, as they are."""

    def __init__(self, call: ObservedCall, *, keep_context: bool) -> None:
        self._call, self._keep = call, keep_context
        self.heads = [slice(head, head + 1) for head in range(call.heads)]

    def span(self, rows: slice) -> tuple[int, int]:  # noqa: ARG002
        """See Source."""
        return 0, self._call.keys

    def stripe(self, group: int, rows: slice, scratch: Scratch) -> Stripe:  # noqa: ARG002
        """See Source."""
        return ObservedStripe(self._call, group, rows, keep_context=self._keep)

    def orders(
        self,
        heads: Tensor,
        rows: slice,
        keys: Tensor,
        logsumexp: Tensor,  # noqa: ARG002
    ) -> Tensor:
        """See Source."""
        each = zip(heads.tolist(), keys, strict=True)
        weights = torch.stack([self._call.weights[head, rows][:, some] for head, some in each])
        return weights.to(wide_dtype(weights.dtype))
