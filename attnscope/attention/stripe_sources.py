"""Where the weights of stripes come from: a call, or weights that were observed."""

import math
from typing import Protocol

import torch
from torch import Tensor

from attnscope.attention.call import AttentionCall
from attnscope.attention.call_stripe import LOG2_E, CallStripe, beyond, subtract
from attnscope.attention.head_group import HeadGroup, head_group, head_groups, span
from attnscope.attention.observed_stripe import ObservedStripe
from attnscope.attention.stripe import Scratch, Stripe
from attnscope.attention.verify import ObservedCall


class Source(Protocol):
    """A call as groups of heads that are read together; `heads` names those of each group."""

    heads: list[slice]
    batched: bool  # whether `orders` can be had

    def span(self, rows: slice) -> tuple[int, int]:
        """Return the keys, half-open, outside of which none of these rows sees anything."""

    def stripe(self, group: int, rows: slice, scratch: Scratch) -> Stripe:
        """Return some rows of a group of heads."""

    def known(self, head: int, rows: slice, logsumexp: Tensor, scratch: Scratch) -> Stripe:
        """Return some rows of one head, whose log-sum-exp is known: (1, rows)."""

    def orders(self, heads: Tensor, rows: slice, keys: Tensor, logsumexp: Tensor) -> Tensor:
        """Return numbers that have the order of the weights of some keys of several heads.

        Shapes: heads (n,), keys (n, keys), logsumexp (n, rows) -> (n, rows, keys).
        """


class CallSource:
    """The weights of an AttentionCall."""

    def __init__(self, call: AttentionCall, *, keep_context: bool) -> None:
        self._call, self._keep = call, keep_context
        self._groups = head_groups(call)
        self.heads = [group.heads for group in self._groups]
        self._single: dict[int, HeadGroup] = {}
        self.batched = call.mask.reach.filled and all(group.plain for group in self._groups)

    def span(self, rows: slice) -> tuple[int, int]:
        """See Source."""
        return span(self._call, rows)

    def stripe(self, group: int, rows: slice, scratch: Scratch) -> Stripe:
        """See Source."""
        return CallStripe(self._groups[group], rows, scratch, keep_context=self._keep)

    def known(self, head: int, rows: slice, logsumexp: Tensor, scratch: Scratch) -> Stripe:
        """See Source."""
        group = self._single.get(head)
        if group is None:
            plain = self._groups[self._call.key_head(head)].plain
            group = head_group(self._call, slice(head, head + 1), plain=plain)
            self._single[head] = group
        return CallStripe(group, rows, scratch, logsumexp=logsumexp)

    def orders(self, heads: Tensor, rows: slice, keys: Tensor, logsumexp: Tensor) -> Tensor:
        """See Source."""
        call, dtype = self._call, self._groups[0].dtype
        query = call.query[heads, rows].to(dtype) * (call.scale * LOG2_E)
        shared = heads // (call.heads // call.key_heads)
        key = call.key[shared[:, None], keys].to(dtype)
        logs = torch.bmm(query, key.transpose(1, 2))
        reach = call.mask.reach
        if (reach.first, reach.last) != (-math.inf, math.inf):
            logs += beyond(reach, rows, call.query_offset, keys, dtype)
        return subtract(logs, (logsumexp * LOG2_E)[..., None])


class ObservedSource:
    """The weights of an ObservedCall, as they are."""

    def __init__(self, call: ObservedCall, *, keep_context: bool) -> None:
        self._call, self._keep = call, keep_context
        self.heads = [slice(head, head + 1) for head in range(call.heads)]
        self.batched = False

    def span(self, rows: slice) -> tuple[int, int]:  # noqa: ARG002
        """See Source."""
        return 0, self._call.keys

    def stripe(self, group: int, rows: slice, scratch: Scratch) -> Stripe:  # noqa: ARG002
        """See Source."""
        return ObservedStripe(self._call, group, rows, keep_context=self._keep)

    def known(
        self,
        head: int,
        rows: slice,
        logsumexp: Tensor,  # noqa: ARG002
        scratch: Scratch,
    ) -> Stripe:
        """See Source."""
        return self.stripe(head, rows, scratch)

    def orders(self, heads: Tensor, rows: slice, keys: Tensor, logsumexp: Tensor) -> Tensor:
        """Never asked for: see `batched`."""
        raise NotImplementedError
