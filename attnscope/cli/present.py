"""Show a Run in the format that was asked for: the end of `run` and of `show`."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from attnscope.cli.options import Format
from attnscope.cli.output import Target, say
from attnscope.errors import OptionError
from attnscope.views.look import Look

if TYPE_CHECKING:
    from attnscope.run import Run


def look_for(
    run: "Run",
    target: Target,
    steps: tuple[str, ...],
    query: str | None,
    head: int | None,
    precision: int,
) -> Look:
    """Return how to show a run. Raises: OptionError for a query or head that is not there."""
    from attnscope.run import check_head, find_queries

    check_head(run, head)
    queries = None if query is None else find_queries(run, query)
    return Look(steps, queries, head, precision, target.width, target.for_people, target.colours)


def check_heatmap(heatmap: bool, target: Target, query: str | None, show: str | None) -> None:
    """Raise OptionError if --heatmap contradicts another option."""
    if heatmap and target.format not in (Format.TABLE, Format.PLAIN):
        raise OptionError(
            f"--heatmap is for terminals, and the format is {target.format}",
            "Leave it out: html, svg and png are heat maps",
        )
    for name, value in (("--query", query), ("--show", show)):
        if heatmap and value is not None:
            raise OptionError(f"--heatmap shows every query's weights, and {name} is given", "")


def present(run: "Run", target: Target, look: Look, *, heatmap: bool = False) -> None:
    """Print notes and warnings, and write the run."""
    from attnscope.views.run_parts import parts_of_run, steps_missing

    say("note", [*run.notes, *steps_missing(run, look.show)])
    say("warning", run.warnings)
    if target.format in _PICTURES:
        target.write_bytes(_PICTURES[target.format](run, look))
    elif target.format in _DOCUMENTS:
        target.write(_DOCUMENTS[target.format](run, look))
    elif heatmap:
        from attnscope.views.heatmap import parts_of_heatmap

        target.write_parts(parts_of_heatmap(run, look), look)
    else:
        target.write_parts(parts_of_run(run, look), look)


def _json(run: "Run", look: Look) -> str:
    from attnscope.views.json_text import render_run

    return render_run(run, look)


def _html(run: "Run", look: Look) -> str:
    from attnscope.views.html_page import render_html

    return render_html(run, look)


def _svg(run: "Run", look: Look) -> str:
    from attnscope.views.svg_heatmap import render_svg

    return render_svg(run, look)


def _png(run: "Run", look: Look) -> bytes:
    from attnscope.views.png_heatmap import render_png

    return render_png(run, look)


_DOCUMENTS: dict[Format, Callable[["Run", Look], str]] = {
    Format.JSON: _json,
    Format.HTML: _html,
    Format.SVG: _svg,
}
_PICTURES: dict[Format, Callable[["Run", Look], bytes]] = {Format.PNG: _png}
