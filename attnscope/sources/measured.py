"""A call of any length, measured: no matrix of weights is made."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from attnscope.attention.call import AttentionCall
from attnscope.attention.device import dense_bytes
from attnscope.attention.head_choice import chosen_heads
from attnscope.attention.measured import MeasureOptions, Measures
from attnscope.attention.memory import Budget
from attnscope.attention.result import AttentionResult
from attnscope.attention.row_choice import chosen_rows, rows_that_see, window_of
from attnscope.attention.stripes import estimate_bytes, measure
from attnscope.attention.verify import ObservedCall
from attnscope.attention.warnings import warnings_of
from attnscope.measured_run import MeasuredLayer, MeasuredRun
from attnscope.run import Axis, Run, check_heads, part_of_axis
from attnscope.sources.given_call import GivenCall
from attnscope.sources.provenance import provenance

Progress = Callable[[int, int], None]  # stripes done, stripes in all


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

    @property
    def map_grid(self) -> int | None:
        """The grid of the map. A map is of all rows: there is none of some."""
        return self.grid if self.rows is None else None

    def options(
        self, special: Sequence[bool] | None, call: AttentionCall | ObservedCall
    ) -> MeasureOptions:
        """Return the options for the rows that are asked for of a whole call."""
        marks, first = None, None
        if special is not None and any(special):
            marks = torch.tensor(list(special), device=call.value.device)
        if self.rows is not None and isinstance(call, ObservedCall):
            first = self.rows.indices(call.queries)[0]  # its weights do not say where they stand
        return MeasureOptions(
            top=self.top,
            window=self.window,
            special=marks,
            grid=self.map_grid,
            query_offset=first,
            keep_context=self.context,
        )


@dataclass(slots=True)
class RowWarnings:
    """Which rows see no key, and which hold a NaN, gathered from block to block of rows."""

    blind: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    rows: int = 0

    def add(self, measures: Measures, queries: Axis) -> None:
        """Take what the measures of some queries say."""
        self.add_rows(measures.blind, measures.row_sum.isnan(), queries)

    def add_rows(self, blind: Tensor, broken: Tensor, queries: Axis) -> None:
        """Take which rows see no key and which hold a NaN: (heads, queries) bool each."""
        for names, found in ((self.blind, blind), (self.broken, broken)):
            places = found.any(dim=0).nonzero().flatten().tolist()
            names += [f"{queries.first + place} {queries.labels[place]}" for place in places]
        self.rows += len(queries)

    def lines(self) -> list[str]:
        """Return a line for either kind that was found."""
        of = f"of {self.rows:,} {'query' if self.rows == 1 else 'queries'}"
        found = []
        if self.broken:
            found.append(
                f"{len(self.broken):,} {of} with NaN among the weights: {_some(self.broken)}"
            )
        if self.blind:
            told = "may see no key, so weights and context are 0"
            found.append(f"{len(self.blind):,} {of} {told}: {_some(self.blind)}")
        return found


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


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
    options = asked.options(special, call)
    check_room(call, asked)
    found: Measures = measure(part, options, progress=progress)
    # 0 may be a last digit off
    found = replace(found, entropy=found.entropy.clamp(min=0.0))
    return MeasuredLayer(found, numbers, reads, part if asked.keep else None)


def check_room(call: AttentionCall | ObservedCall, asked: MeasureAsked, kept: int = 0) -> None:
    """Raise SizeError if the measures of a call, beside `kept` bytes, are above the budget.

    Only the shapes of the call are looked at.
    """
    part, _, _ = part_of_call(call, asked)
    asked.budget.check(
        kept + estimate_bytes(part, asked.options(None, call)),
        "the measures",
        "Choose one head with --head, or --top 0",
    )


def measured_run(
    given: GivenCall, asked: MeasureAsked, progress: Progress | None = None
) -> MeasuredRun:
    """Measure a call that a source has made ready."""
    special = None if given.keys.tokens is None else given.keys.tokens.special
    layer = measured(given.call, asked, special, progress)
    queries = given.queries if asked.rows is None else part_of_axis(given.queries, asked.rows)
    same = given.queries is given.keys and asked.rows is None
    keys = queries if same else given.keys
    warnings = RowWarnings()
    warnings.add(layer.measures, queries)
    return MeasuredRun(
        given.settings,
        queries,
        keys,
        (layer,),
        asked.top,
        asked.window,
        asked.map_grid,
        tuple(warnings.lines()),
        notes_of(given),
        provenance(given.call.query),
    )


def notes_of(given: GivenCall) -> tuple[str, ...]:
    """Return the notes of a call, and that it is widened if its type is narrow."""
    dtype = given.call.query.dtype
    if dtype.itemsize >= 4:
        return given.notes
    name = str(dtype).removeprefix("torch.")
    return (*given.notes, f"{name} vectors are widened: their weights are computed in float32")


def window_run(given: GivenCall, rows: slice, keys: slice, budget: Budget) -> Run:
    """Return some rows by some keys of a call that a source has made ready, every step exact.

    Raises: SizeError if the window is larger than the budget.
    """
    result = checked_window(given.call, rows, keys, budget)
    queries, key_axis = part_of_axis(given.queries, rows), part_of_axis(given.keys, keys)
    note = window_note(queries, len(given.queries), key_axis, len(given.keys))
    warnings = window_warnings(result, rows_that_see(given.call, rows), queries, key_axis)
    return Run(
        given.settings, queries, key_axis, (result,), None, tuple(warnings),
        (*notes_of(given), note),
        provenance(given.call.query),
    )  # fmt: skip


def window_warnings(
    result: AttentionResult, seeing: Tensor, queries: Axis, keys: Axis
) -> list[str]:
    """Return the warnings about a window. `seeing`: which of its rows see a key, here or outside.

    Shapes: seeing (heads or 1, rows) bool.
    """
    # a row that sees a key outside the window is not blind
    everywhere = torch.ones_like(result.steps.visible)
    rows = replace(result, steps=replace(result.steps, visible=everywhere))
    blind = RowWarnings()
    blind.add_rows(~seeing, result.weights.isnan().any(dim=-1), queries)
    return [*warnings_of(rows, queries.labels, keys.labels), *blind.lines()]


def checked_window(
    call: AttentionCall | ObservedCall, rows: slice, keys: slice, budget: Budget
) -> AttentionResult:
    """Compute a window. Raises: SizeError if it is larger than the budget."""
    check_window(call, rows, keys, budget)
    return window_of(call, rows, keys)


def check_window(
    call: AttentionCall | ObservedCall, rows: slice, keys: slice, budget: Budget
) -> None:
    """Raise SizeError if a window is larger than the budget. Only shapes are looked at."""
    down, across = (len(range(n)[part]) for part, n in ((rows, call.queries), (keys, call.keys)))
    dtype = torch.promote_types(call.value.dtype, torch.float32)  # half types are widened
    needed = dense_bytes(call.heads, down, across, dtype)
    needed += 3 * call.heads * down * call.keys * dtype.itemsize
    budget.check(needed, f"{down} × {across} cells of {call.heads} heads", "Give a smaller window")


def window_note(queries: Axis, all_queries: int, keys: Axis, all_keys: int) -> str:
    """Return what a reader of a window must know."""
    return (
        f"{_range(queries, 'query', 'queries')} of {all_queries}, {_range(keys, 'key', 'keys')} of "
        f"{all_keys}: weights, entropy and context are those of whole rows"
    )


def _range(axis: Axis, one: str, many: str) -> str:
    last = axis.first + len(axis) - 1
    return f"{one} {last}" if len(axis) == 1 else f"{many} {axis.first}–{last}"
