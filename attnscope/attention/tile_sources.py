"""Where the weights of stripes come from: a call, or weights that were observed."""

from collections.abc import Callable, Iterator
from typing import Protocol

from attnscope.attention import fused
from attnscope.attention.call import AttentionCall
from attnscope.attention.first_pass import Rows, first_pass
from attnscope.attention.head_group import HeadGroup, head_group, head_groups, span
from attnscope.attention.tile_plan import Plan
from attnscope.attention.tile_weights import (
    CallStripe,
    ObservedStripe,
    Scratch,
    Stripe,
    observed_rows,
)
from attnscope.attention.verify import ObservedCall

Step = Callable[[], None]


class Source(Protocol):
    """A call as groups of heads that are read together; `heads` names those of each group."""

    heads: list[slice]

    def span(self, rows: slice) -> tuple[int, int]:
        """Return the keys, half-open, outside of which none of these rows sees anything."""

    def stripes(
        self, group: int, block: list[slice], scratch: Scratch, step: Step
    ) -> Iterator[tuple[Stripe, Rows]]:
        """Do the first pass of some stripes that follow each other, and yield them one by one."""

    def stripe(self, head: int, rows: slice, known: Rows, scratch: Scratch) -> Stripe:
        """Return a stripe of one head whose first pass has been done."""


class CallSource:
    """The weights of an AttentionCall."""

    def __init__(self, call: AttentionCall, plan: Plan, *, keep_context: bool) -> None:
        self._call, self._plan, self._keep = call, plan, keep_context
        self._groups = head_groups(call)
        self._fused = [fused.takes(group) for group in self._groups]
        self.heads = [group.heads for group in self._groups]
        self._single: dict[int, HeadGroup] = {}

    def span(self, rows: slice) -> tuple[int, int]:
        """See Source."""
        return span(self._call, rows)

    def stripes(
        self, group: int, block: list[slice], scratch: Scratch, step: Step
    ) -> Iterator[tuple[Stripe, Rows]]:
        """See Source."""
        first = block[0].start
        known = first_pass(
            self._groups[group],
            slice(first, block[-1].stop),
            (self._plan.rows, self._plan.tile),
            keep_context=self._keep,
            use_fused=self._fused[group],
            step=step,
        )
        for rows in block:
            here = slice(rows.start - first, rows.stop - first)
            part = Rows(
                known.logsumexp[:, here],
                None if known.context is None else known.context[:, here],
                known.blind[:, here],
            )
            yield CallStripe(self._groups[group], rows, part, scratch), part

    def stripe(self, head: int, rows: slice, known: Rows, scratch: Scratch) -> Stripe:
        """See Source."""
        group = self._single.get(head)
        if group is None:
            plain = self._groups[self._call.key_head(head)].plain
            group = head_group(self._call, slice(head, head + 1), plain=plain)
            self._single[head] = group
        return CallStripe(group, rows, known, scratch)


class ObservedSource:
    """The weights of an ObservedCall, as they are."""

    def __init__(self, call: ObservedCall, *, keep_context: bool) -> None:
        self._call, self._keep = call, keep_context
        self.heads = [slice(head, head + 1) for head in range(call.heads)]

    def span(self, rows: slice) -> tuple[int, int]:  # noqa: ARG002
        """See Source."""
        return 0, self._call.keys

    def stripes(
        self,
        group: int,
        block: list[slice],
        scratch: Scratch,  # noqa: ARG002
        step: Step,
    ) -> Iterator[tuple[Stripe, Rows]]:
        """See Source."""
        for rows in block:
            step()
            known = observed_rows(self._call, group, rows, keep_context=self._keep)
            yield ObservedStripe(self._call, group, rows), known

    def stripe(
        self,
        head: int,
        rows: slice,
        known: Rows,  # noqa: ARG002
        scratch: Scratch,  # noqa: ARG002
    ) -> Stripe:
        """See Source."""
        return ObservedStripe(self._call, head, rows)
