"""Show a MeasuredRun, and save it: the end of `run` for texts of any length."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from attnscope.cli.options import Format
from attnscope.cli.output import Target, say, write_file
from attnscope.cli.present import Drawing, present
from attnscope.errors import OptionError
from attnscope.views.look import Look

if TYPE_CHECKING:
    from attnscope.measured_run import MeasuredRun

DRAWN = (Format.HTML, Format.SVG, Format.PNG)


def present_measured(run: "MeasuredRun", target: Target, look: Look, drawing: Drawing) -> None:
    """Print notes and warnings, and write the measures, or the map where a picture is wanted."""
    if look.show:
        raise OptionError(
            "--show picks steps, and a measured run has no matrices",
            "Leave it out, or give a window: --rows A:B --keys C:D",
        )
    if target.format in DRAWN or drawing.heatmap:
        from attnscope.views.measured_map import look_at_map, map_run

        maps = () if target.format is Format.HTML else ("largest",)
        shown = map_run(run, maps) if maps else map_run(run)
        _check_cells(len(shown.queries), len(shown.keys), drawing.downsample)
        present(shown, target, look_at_map(run, look), drawing)
        return
    say("note", run.notes)
    say("warning", run.warnings)
    if target.format is Format.JSON:
        from attnscope.views.measured_json import render_measured

        target.write_all([render_measured(run, look)])
    elif target.format is Format.CSV:
        from attnscope.views.measured_rows import csv_of_measured

        target.write_all([csv_of_measured(run, look)])
    elif target.format is Format.NDJSON:
        target.write_stream(_lines(run))
    else:
        from attnscope.views.measured_parts import parts_of_measured

        bars = target.format is Format.TABLE
        target.write_parts(parts_of_measured(run, look, bars=bars), look)


def _check_cells(rows: int, columns: int, most: int | None) -> None:
    # cells of cells would not show what they say: a share is no largest weight
    if most is not None and max(rows, columns) > most:
        raise OptionError(
            f"the map has {rows} × {columns} cells, and --downsample {most} asks for fewer",
            f"Measure again with --grid {most}",
        )


def _lines(run: "MeasuredRun") -> Iterator[str]:
    from attnscope.views.measured_rows import header_line, rows_as_ndjson

    yield header_line(
        run.settings, run.queries, run.keys, top=run.top, window=run.window,
        provenance=run.provenance,
    )  # fmt: skip
    for i, layer in enumerate(run.layers):
        yield from rows_as_ndjson(layer, run.queries, run.keys, run.layer_name(i))


def save_measured(run: "MeasuredRun", path: Path, *, keep_qkv: bool, force: bool) -> None:
    """Write the measures to a file, and query, key and value if asked."""
    from attnscope.measuredfile import dump_measured

    write_file(path, dump_measured(run, keep_qkv=keep_qkv), force=force)
