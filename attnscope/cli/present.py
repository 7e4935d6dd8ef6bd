"""Show a Run in the format that was asked for: the end of `run` and of `show`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnscope.cli.options import Format
from attnscope.cli.output import Target, say
from attnscope.errors import OptionError
from attnscope.views.look import Look

if TYPE_CHECKING:
    from attnscope.run import Run
    from attnscope.views.parts import Part


def look_for(
    run: "Run",
    target: Target,
    steps: tuple[str, ...],
    query: str | None,
    head: int | None,
    precision: int,
    norms: bool = False,
) -> Look:
    """Return how to show a run. Raises: OptionError for a query or head that is not there."""
    from attnscope.run import check_head, find_queries

    check_head(run, head)
    queries = None if query is None else find_queries(run, query)
    return Look(
        steps, queries, head, precision, target.width, target.for_people, target.colours, norms
    )


@dataclass(frozen=True, slots=True)
class Drawing:
    """How heat maps are drawn: in the terminal instead of tables, in blocks, within a budget."""

    heatmap: bool = False
    downsample: int | None = None
    budget_megabytes: int | None = None

    def check(self, target: Target, query: str | None, show: str | None, precision: int) -> None:
        """Raise OptionError if drawing options contradict others."""
        drawn = target.format in _DRAWN or self.heatmap
        if self.heatmap and target.format not in (Format.TABLE, Format.PLAIN):
            raise OptionError(
                f"--heatmap is for terminals, and the format is {target.format}",
                "Leave it out: html, svg and png are heat maps",
            )
        for name, value in (("--query", query), ("--show", show)):
            if self.heatmap and value is not None:
                raise OptionError(f"--heatmap shows all weights, and {name} is given", "Give one")
        if self.downsample is not None and self.downsample < 1:
            raise OptionError(f"--downsample {self.downsample} is not positive", "Give 1 or more")
        if self.downsample is not None and (not drawn or query is not None):
            raise OptionError(
                "--downsample is for drawings of every query",
                "Use it with --heatmap, or --output to .html, .svg or .png, without --query",
            )
        if show is not None and target.format in _DRAWN:
            raise OptionError(f"--show picks tables, and the format is {target.format}", "")
        if precision != 4 and target.format in (Format.SVG, Format.PNG):
            raise OptionError("--precision is for printed numbers, and a picture has none", "")
        budget = self.budget_megabytes
        if budget is not None and target.format is not Format.HTML:
            raise OptionError("--budget is for an HTML page", "Use it with --output page.html")
        if budget is not None and budget < 1:
            raise OptionError(f"--budget {budget} is not positive", "Give megabytes")

    def pooled(self, run: "Run") -> "Run":
        """Return a run in blocks, if that was asked for."""
        if self.downsample is None:
            return run
        from attnscope.pooling import pooled

        smaller = pooled(run, self.downsample)
        say("warning", (line for line in smaller.warnings if line not in run.warnings))
        return smaller


def present(run: "Run", target: Target, look: Look, drawing: Drawing) -> None:
    """Print notes and warnings, and write the run."""
    notes_of(run, look.show)
    if target.format in (Format.TABLE, Format.PLAIN, Format.CSV):
        target.write_parts(parts_for_people(run, look, drawing), look)
    else:
        target.write_all([rendered(run, target, look, drawing)])


def notes_of(run: "Run", show: tuple[str, ...]) -> None:
    """Say what a reader of a run must know."""
    from attnscope.views.run_parts import steps_missing

    say("note", [*run.notes, *steps_missing(run, show)])
    say("warning", run.warnings)


def parts_for_people(run: "Run", look: Look, drawing: Drawing) -> "Iterable[Part]":
    """Return a run as parts: tables, or heat maps if those were asked for."""
    if drawing.heatmap:
        from attnscope.views.heatmap import parts_of_heatmap

        return parts_of_heatmap(drawing.pooled(run), look)
    from attnscope.views.run_parts import parts_of_run

    return parts_of_run(drawing.pooled(run), look)


def rendered(run: "Run", target: Target, look: Look, drawing: Drawing) -> str | bytes:
    """Return a run as a document that is not made of parts for people, or as CSV."""
    run = drawing.pooled(run)
    if target.format is Format.PNG:
        return _png(run, look)
    if target.format is Format.HTML:
        return _html(run, look, (drawing.budget_megabytes or 100) * 1_000_000)
    if target.format is Format.CSV:
        from attnscope.views import csv_text
        from attnscope.views.run_parts import parts_of_run

        return csv_text.render(parts_of_run(run, look))
    return _DOCUMENTS[target.format](run, look)


def _json(run: "Run", look: Look) -> str:
    from attnscope.views.json_text import render_run

    return render_run(run, look)


def _html(run: "Run", look: Look, budget_bytes: int) -> str:
    from attnscope.views.html_page import render_html

    return render_html(run, look, budget_bytes=budget_bytes)


def _svg(run: "Run", look: Look) -> str:
    from attnscope.views.svg_heatmap import render_svg

    return render_svg(run, look)


def _png(run: "Run", look: Look) -> bytes:
    from attnscope.views.png_heatmap import render_png

    return render_png(run, look)


_DOCUMENTS: dict[Format, Callable[["Run", Look], str]] = {Format.JSON: _json, Format.SVG: _svg}
_DRAWN = (Format.HTML, Format.SVG, Format.PNG)
