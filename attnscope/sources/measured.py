"""A call of any length, measured: no matrix of weights is made."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from attnscope.attention.call import AttentionCall
from attnscope.attention.device import dense_bytes
from attnscope.attention.head_choice import chosen_heads
from attnscope.attention.measured import MeasureOptions, Measures
from attnscope.attention.memory import Budget
from attnscope.attention.result import AttentionResult
from attnscope.attention.row_choice import chosen_rows, window_of
from attnscope.attention.tiles import estimate_bytes, measure
from attnscope.attention.verify import ObservedCall
from attnscope.attention.warnings import warnings_of
from attnscope.measured_run import MeasuredLayer, MeasuredRun
from attnscope.run import Axis, Run, check_heads, part_of_axis
from attnscope.sources.given_call import GivenCall
from attnscope.sources.provenance import provenance

Progress = Callable[[int, int], None]  # tiles done, tiles in all


@dataclass(frozen=True, slots=True)
class MeasureAsked:
    """What to measure of a call; None: all heads, all rows, no map."""

    top: int = 10
    window: int = 8
    grid: int | None = None
    head: int | None = None
    rows: slice | None = None
    keep: bool = False  # query, key and value stay in the result
    context: bool = False  # the context too: to prove a record by
    budget: Budget = field(default_factory=Budget)

    def options(
        self, special: Sequence[bool] | None, like: AttentionCall | ObservedCall
    ) -> MeasureOptions:
        """Return the options for one call. A map is of all rows: there is none of some."""
        marks = None
        if special is not None and any(special):
            marks = torch.tensor(list(special), device=like.value.device)
        grid = self.grid if self.rows is None else None
        return MeasureOptions(
            top=self.top,
            window=self.window,
            special=marks,
            grid=grid,
            keep_context=self.context,
        )


def part_of_call(
    call: AttentionCall | ObservedCall, asked: MeasureAsked
) -> tuple[AttentionCall | ObservedCall, tuple[int, ...], tuple[int, ...]]:
    """Return the heads and rows of a call that were asked for, and the numbers of the heads.

    Raises: OptionError for a head that is not there.
    """
    check_heads(call.heads, asked.head)
    numbers = tuple(range(call.heads)) if asked.head is None else (asked.head,)
    reads = tuple(
        call.key_head(head) if isinstance(call, AttentionCall) else head for head in numbers
    )
    part = chosen_heads(call, numbers)
    return (part if asked.rows is None else chosen_rows(part, asked.rows)), numbers, reads


def measured(
    call: AttentionCall | ObservedCall,
    asked: MeasureAsked,
    special: Sequence[bool] | None = None,
    progress: Progress | None = None,
) -> MeasuredLayer:
    """Measure the heads and rows of a call that were asked for.

    Raises: OptionError; SizeError if the measures need more than the budget.
    """
    part, numbers, reads = part_of_call(call, asked)
    options = asked.options(special, part)
    asked.budget.check(
        estimate_bytes(part, options), "the measures", "Choose one head with --head, or --top 0"
    )
    found: Measures = measure(part, options, progress=progress)
    return MeasuredLayer(found, numbers, reads, part if asked.keep else None)


def measured_run(
    given: GivenCall, asked: MeasureAsked, progress: Progress | None = None
) -> MeasuredRun:
    """Measure a call that a source has made ready."""
    special = None if given.keys.tokens is None else given.keys.tokens.special
    layer = measured(given.call, asked, special, progress)
    queries = given.queries if asked.rows is None else part_of_axis(given.queries, asked.rows)
    same = given.queries is given.keys and asked.rows is None
    keys = queries if same else given.keys
    return MeasuredRun(
        given.settings,
        queries,
        keys,
        (layer,),
        asked.top,
        asked.window,
        asked.grid,
        (),
        given.notes,
        provenance(given.call.query),
    )


def window_run(given: GivenCall, rows: slice, keys: slice, budget: Budget) -> Run:
    """Return some rows by some keys of a call that a source has made ready, every step exact.

    Raises: SizeError if the window is larger than the budget.
    """
    result = checked_window(given.call, rows, keys, budget)
    queries, key_axis = part_of_axis(given.queries, rows), part_of_axis(given.keys, keys)
    note = window_note(queries, len(given.queries), key_axis, len(given.keys))
    warnings = warnings_of(result, queries.labels, key_axis.labels)
    return Run(
        given.settings, queries, key_axis, (result,), None, tuple(warnings), (*given.notes, note),
        provenance(given.call.query),
    )  # fmt: skip


def checked_window(
    call: AttentionCall | ObservedCall, rows: slice, keys: slice, budget: Budget
) -> AttentionResult:
    """Compute a window. Raises: SizeError if it is larger than the budget."""
    down, across = (len(range(n)[part]) for part, n in ((rows, call.queries), (keys, call.keys)))
    dtype = call.value.dtype
    needed = dense_bytes(call.heads, down, across, dtype) + 3 * call.heads * down * call.keys * 4
    budget.check(needed, f"{down} × {across} cells of {call.heads} heads", "Give a smaller window")
    return window_of(call, rows, keys)


def window_note(queries: Axis, all_queries: int, keys: Axis, all_keys: int) -> str:
    """Return what a reader of a window must know."""
    return (
        f"queries {_range(queries)} of {all_queries}, keys {_range(keys)} of {all_keys}: weights, "
        "entropy and context are those of whole rows"
    )


def _range(axis: Axis) -> str:
    last = axis.first + len(axis) - 1
    return str(last) if len(axis) == 1 else f"{axis.first}–{last}"
