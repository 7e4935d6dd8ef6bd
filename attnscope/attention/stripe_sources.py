"""Where the weights of stripes come from: a call, or weights that were observed."""

from typing import Protocol

from torch import Tensor

from attnscope.attention.call import AttentionCall
from attnscope.attention.call_stripe import CallStripe
from attnscope.attention.head_group import HeadGroup, head_group, head_groups, span
from attnscope.attention.observed_stripe import ObservedStripe
from attnscope.attention.stripe import Scratch, Stripe
from attnscope.attention.verify import ObservedCall


class Source(Protocol):
    """A call as groups of heads that are read together; `heads` names those of each group."""

    heads: list[slice]

    def span(self, rows: slice) -> tuple[int, int]:
        """Return the keys, half-open, outside of which none of these rows sees anything."""

    def stripe(self, group: int, rows: slice, scratch: Scratch) -> Stripe:
        """Return some rows of a group of heads."""

    def known(self, head: int, rows: slice, logsumexp: Tensor, scratch: Scratch) -> Stripe:
        """Return some rows of one head, whose log-sum-exp is known: (1, rows)."""


class CallSource:
    """The weights of an AttentionCall."""

    def __init__(self, call: AttentionCall, *, keep_context: bool) -> None:
        self._call, self._keep = call, keep_context
        self._groups = head_groups(call)
        self.heads = [group.heads for group in self._groups]
        self._single: dict[int, HeadGroup] = {}

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

    def known(
        self,
        head: int,
        rows: slice,
        logsumexp: Tensor,  # noqa: ARG002
        scratch: Scratch,
    ) -> Stripe:
        """See Source."""
        return self.stripe(head, rows, scratch)
