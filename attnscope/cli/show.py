"""`attnscope show`: a saved run, in any format."""

from pathlib import Path
from typing import Annotated

import typer

from attnscope.cli import options as o
from attnscope.cli.output import prepare
from attnscope.cli.present import Drawing, look_for, present
from attnscope.views.look import read_steps

RunFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="A file that run --save wrote.", show_default=False)
]


def command(
    path: RunFile,
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
    """Show a saved run again.

    The file holds every number, so each format comes out with the same bytes as from the run
    itself, on any machine.
    """
    steps = read_steps(show)
    target = prepare(format_, json, output, force, color, width, formats=o.RUN_FORMATS)
    drawing = Drawing(heatmap, downsample, budget)
    drawing.check(target, query, show, precision)

    from attnscope.runfile import load_run

    run = load_run(path)
    present(run, target, look_for(run, target, steps, query, head, precision), drawing)
