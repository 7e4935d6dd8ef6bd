"""`attnscope show`: a saved run or a record of models, in any format."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnscope.cli import options as o
from attnscope.cli.options import Format
from attnscope.cli.output import Target, prepare
from attnscope.cli.present import Drawing, look_for, present
from attnscope.errors import OptionError
from attnscope.text.display import visible
from attnscope.views.look import Look, read_steps

if TYPE_CHECKING:
    from attnscope.model_run import ModelRun

SavedFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", help="A file that run --save or record wrote.", show_default=False
    ),
]
RunNumber = Annotated[
    str | None,
    typer.Option(
        "--run",
        metavar="N",
        help="Of a record of several runs: this one, counted from 0; or all.",
        show_default=False,
    ),
]
Layer = Annotated[
    str | None,
    typer.Option(
        "--layer",
        metavar="LAYER",
        help="Of a record: the weights of these layers, e.g. 3, 0-5, cross.2 or all.",
        show_default=False,
    ),
]


def command(
    path: SavedFile,
    run: RunNumber = None,
    layer: Layer = None,
    show: o.Show = None,
    query: o.Query = None,
    head: o.Head = None,
    heatmap: o.Heatmap = False,
    downsample: o.Downsample = None,
    budget: o.Budget = None,
    precision: o.Precision = 4,
    format_: o.RunFormatOption = None,
    json: o.Json = False,
    output: o.PictureOutput = None,
    force: o.Force = False,
    color: o.Color = o.ColorMode.AUTO,
    width: o.Width = None,
) -> None:
    """Show a saved run again, or what a program's record holds.

    A run file holds every number, so each format comes out with the same bytes as from the run
    itself, on any machine. A record holds what each attention call used; its numbers are computed
    from that.
    """
    steps = read_steps(show)
    target = prepare(format_, json, output, force, color, width, formats=o.RUN_FORMATS)
    drawing = Drawing(heatmap, downsample, budget)
    drawing.check(target, query, show, precision)

    from attnscope.measuredfile import is_measured

    if is_measured(path):
        _refuse_choices(run, layer, "the measures of one run")
        _show_measures(path, target, steps, query, head, precision, drawing)
        return
    if target.format is Format.NDJSON:
        raise OptionError("ndjson is for measures, and this file holds none", "Use --format json")

    from attnscope.recordfile import is_record, load_record

    if is_record(path):
        from attnscope.cli.present_model import Selection, present_models

        selection = Selection(layer, steps, query, head, precision)
        selection.check(target, drawing)
        runs = load_record(path)
        if run is None and len(runs) > 1:
            _list(runs, path, target, layer)
        else:
            present_models(_chosen(runs, run), target, selection, drawing)
        return
    _refuse_choices(run, layer, "one run")

    from attnscope.runfile import load_run

    saved = load_run(path)
    present(saved, target, look_for(saved, target, steps, query, head, precision), drawing)


def _refuse_choices(run: str | None, layer: str | None, what: str) -> None:
    for name, value in (("--run", run), ("--layer", layer)):
        if value is not None:
            raise OptionError(f"{name} is for a record, and this file holds {what}", "Leave it out")


def _show_measures(
    path: Path,
    target: Target,
    steps: tuple[str, ...],
    query: str | None,
    head: int | None,
    precision: int,
    drawing: Drawing,
) -> None:
    from attnscope.cli.present_measured import present_measured
    from attnscope.measuredfile import load_measured
    from attnscope.run import places_on

    saved = load_measured(path).only(head)
    queries = None if query is None else places_on(saved.queries, query)
    look = Look(steps, queries, head, precision, target.width, target.for_people, target.colours)
    present_measured(saved, target, look, drawing)


def _chosen(runs: "Sequence[ModelRun]", wanted: str | None) -> "Sequence[ModelRun]":
    if wanted in (None, "all"):
        return runs
    if re.fullmatch(r"[0-9]{1,9}", wanted) is None or int(wanted) >= len(runs):
        there = "is run 0" if len(runs) == 1 else f"are runs 0 to {len(runs) - 1}"
        raise OptionError(f'--run "{visible(wanted)}" is not in the file', f"There {there}; or all")
    return [runs[int(wanted)]]


def _list(runs: "Sequence[ModelRun]", path: Path, target: Target, layer: str | None) -> None:
    """Show what there is to choose from. Raises: OptionError where one run is needed."""
    from attnscope.views.record_parts import parts_of_record

    tables = (Format.TABLE, Format.PLAIN, Format.CSV)
    if layer is not None or target.format not in tables:
        asked = f"--layer {visible(layer)}" if layer is not None else str(target.format)
        raise OptionError(
            f"{visible(str(path))} holds {len(runs)} runs, and {asked} is of one",
            f"Choose with --run 0 to {len(runs) - 1}, or --run all",
        )
    look = Look(width=target.width, summarise=target.for_people, colour=target.colours)
    target.write_parts(parts_of_record(runs), look)
