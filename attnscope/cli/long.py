"""Attention of any length: which numbers are computed, decided before any of them is."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from attnscope.cli.long_options import GRID, NEAR, TOP, LongAsked
from attnscope.cli.model_source import progress_bar
from attnscope.cli.options import Format
from attnscope.cli.output import Target, say
from attnscope.cli.present import Drawing, look_for, present
from attnscope.cli.present_measured import DRAWN, present_measured, save_measured
from attnscope.errors import OptionError
from attnscope.views.look import Look

if TYPE_CHECKING:
    from attnscope.attention.memory import Budget
    from attnscope.run import Axis, Run
    from attnscope.sources.given_call import GivenCall
    from attnscope.sources.measured import MeasureAsked

# Rows that are measured and written at once where rows are streamed.
_BLOCK = 1024
_NO_MATRICES = "Leave it out, or give a window: --rows A:B --keys C:D"
# From this many tokens on people get measures: of matrices they would see a summary anyway.
LONG = 2048


@dataclass(frozen=True, slots=True)
class Shown:
    """How to show what comes out, as asked on the command line."""

    target: Target
    steps: tuple[str, ...]
    query: str | None
    head: int | None
    precision: int
    norms: bool
    drawing: Drawing
    long: LongAsked
    save: Path | None = None
    force: bool = False

    @property
    def budget(self) -> "Budget":
        """The memory that may be taken."""
        from attnscope.attention.memory import read_budget

        return read_budget(self.long.max_memory)

    def look(self, run: "Run") -> Look:
        """Return how to show a run."""
        look = look_for(
            run, self.target, self.steps, self.query, self.head, self.precision, self.norms
        )
        return replace(look, window=self.long.is_window)

    def look_at_measures(self) -> Look:
        """Return how to show measures: the rows were chosen before they were measured."""
        target = self.target
        return Look(
            self.steps, None, self.head, self.precision, target.width, target.for_people,
            target.colours,
        )  # fmt: skip

    def check(self) -> None:
        """Raise OptionError for options of which one would say nothing."""
        lines = self.target.format is Format.NDJSON
        if lines and self.long.is_window:
            raise OptionError(
                "--format ndjson writes measures of whole rows, and --rows and --keys show a "
                "window number by number",
                "Give --query N, or the window with --format json",
            )
        self._check_grid()
        if self.long.measured or lines:
            self.check_measured()

    def _check_grid(self) -> None:
        if self.long.grid is None:
            return
        for name, given in (("--query", self.query), ("--downsample", self.drawing.downsample)):
            if given is not None:
                raise OptionError(f"--grid is a map of all rows, and {name} is given", "Give one")
        shows = self.drawn or self.target.format is Format.JSON or self.save is not None
        if not shows:
            raise OptionError(
                f"--grid measures a map, and {self.target.format} shows none",
                "Use it with --heatmap, --json, --save, or --output to .html, .svg or .png",
            )

    def check_measured(self) -> None:
        """Raise OptionError for what only whole matrices can show."""
        if self.norms:
            raise OptionError("--norms is about matrices, and a run is measured", _NO_MATRICES)
        if self.steps:
            raise OptionError("--show picks steps, and a measured run has none", _NO_MATRICES)
        if self.drawn and self.query is not None:
            raise OptionError(
                "a map is of all rows of a measured run, and --query is given",
                "Give another format, or --rows A:B --keys C:D",
            )

    @property
    def drawn(self) -> bool:
        """Whether weights are shown as cells."""
        return self.target.format in DRAWN or self.drawing.heatmap

    def measures(self, queries: "Axis", *, needed: int) -> bool:
        """Return whether to measure instead of computing matrices of `needed` bytes."""
        if self.long.measured or self.target.format is Format.NDJSON:
            return True
        if self.long.is_window:
            return False
        if self.target.for_people and not self.steps and len(queries) > LONG:
            return True
        return not self.budget.allows(needed)

    def asked(self, queries: "Axis") -> "MeasureAsked":
        """Return what to measure. Raises: OptionError for a query that is not there."""
        from attnscope.sources.measured import MeasureAsked

        long = self.long
        default = GRID if self.drawn or self.save is not None else None
        if self.drawing.downsample is not None:
            default = self.drawing.downsample
        return MeasureAsked(
            TOP if long.top is None else long.top,
            NEAR if long.near is None else long.near,
            default if long.grid is None else long.grid,
            self.head,
            None if self.query is None else one_row(queries, self.query),
            keep=long.keep_qkv or self.query is not None,
            budget=self.budget,
        )


def one_row(queries: "Axis", wanted: str) -> slice:
    """Return the row that `--query` means, as a slice. Raises: OptionError if it is not one."""
    from attnscope.run import places_on

    places = places_on(queries, wanted)
    if len(places) > 1:
        listed = ", ".join(str(place) for place in places[:8])
        raise OptionError(
            f'--query "{wanted}" stands at {len(places)} places, and one row is measured',
            f"Give its position: {listed}{', …' if len(places) > 8 else ''}",
        )
    return slice(places[0], places[0] + 1)


def show_call(given: "GivenCall", shown: Shown) -> None:
    """Compute what was asked of a call, and write it: matrices, a window, or measures."""
    from attnscope.attention.device import dense_bytes
    from attnscope.run import check_heads

    check_heads(given.call.heads, shown.head)
    if shown.long.is_window:
        _check_method(given, "a window of it is computed")
        _show_window(given, shown)
        return
    call = given.call
    needed = dense_bytes(call.heads, call.queries, call.keys, call.query.dtype)
    if not shown.measures(given.queries, needed=needed):
        _show_matrices(given, shown)
        return
    _check_method(given, "this run is measured")
    shown.check_measured()
    if not shown.long.measured and shown.target.format is not Format.NDJSON:
        say("note", [measured_note(len(given.queries), len(given.keys))])
    if shown.target.format is Format.NDJSON and shown.save is None and shown.query is None:
        shown.target.write_stream(_stream(given, shown))
        return
    from attnscope.sources.measured import measured_run

    with stripe_bar() as progress:
        run = measured_run(given, shown.asked(given.queries), progress("measuring"))
    if shown.save is not None:
        save_measured(run, shown.save, keep_qkv=shown.long.keep_qkv, force=shown.force)
    present_measured(run, shown.target, shown.look_at_measures(), shown.drawing)


def _check_method(given: "GivenCall", instead: str) -> None:
    if given.settings.mask_method != "neg-inf":
        raise OptionError(
            f"the renormalize method needs whole matrices, and {instead}",
            "Use --mask-method neg-inf, or fewer tokens",
        )


def measured_note(queries: int, keys: int) -> str:
    """Return why no matrix was made."""
    return (
        f"{queries:,} {'query' if queries == 1 else 'queries'} × {keys:,} keys: measured without "
        "their matrices. --rows A:B --keys C:D shows a window of them"
    )


def _show_window(given: "GivenCall", shown: Shown) -> None:
    from attnscope.sources.measured import window_run

    if shown.query is not None:
        raise OptionError("--rows and --query both choose queries", "Give one of them")
    rows, keys = shown.long.window(given.call.queries, given.call.keys)
    _finish(window_run(given, rows, keys, shown.budget), shown)


def _show_matrices(given: "GivenCall", shown: Shown) -> None:
    from attnscope.sources.given_call import run_call

    _finish(run_call(given), shown)


def _finish(run: "Run", shown: Shown) -> None:
    look = shown.look(run)
    if shown.save is not None:
        from attnscope.cli.output import write_file
        from attnscope.runfile import dump_run

        write_file(shown.save, dump_run(run), force=shown.force)
    present(run, shown.target, look, shown.drawing)


def _stream(given: "GivenCall", shown: Shown) -> Iterator[str]:
    """Yield lines as blocks of rows are measured."""
    from dataclasses import replace

    from attnscope.run import part_of_axis
    from attnscope.sources.measured import RowWarnings, measured_run, notes_of
    from attnscope.sources.provenance import provenance
    from attnscope.views.measured_rows import header_line, rows_as_ndjson

    say("note", notes_of(given))
    asked, warnings = shown.asked(given.queries), RowWarnings()
    yield header_line(
        given.settings, given.queries, given.keys, top=asked.top, window=asked.window,
        provenance=provenance(given.call.query),
    )  # fmt: skip
    total = given.call.queries
    for start in range(0, total, _BLOCK):
        rows = slice(start, min(start + _BLOCK, total))
        run = measured_run(given, replace(asked, rows=rows))
        queries = part_of_axis(given.queries, rows)
        warnings.add(run.layers[0].measures, queries)
        yield from rows_as_ndjson(run.layers[0], queries, given.keys)
    say("warning", warnings.lines())


class stripe_bar:  # noqa: N801  used as a function
    """Show how many stripes are done: `with stripe_bar() as progress: f(progress("what"))`."""

    def __init__(self) -> None:
        self._bar = progress_bar()

    def __enter__(self) -> "Callable[[str], Callable[[int, int], None] | None]":
        report = self._bar.__enter__()
        return lambda what: (
            None
            if report is None
            else lambda done, total: report(f"{what}: {done} of {total} stripes", done / total)
        )

    def __exit__(self, *error: object) -> None:
        self._bar.__exit__(*error)  # type: ignore[arg-type]
