"""Parts as CSV: one number a line, with the names of its row and column."""

import csv
import io
import math
from collections.abc import Iterable, Iterator

from attnscope.errors import OptionError
from attnscope.views.parts import Grid, Listing, Pair, Part

_HEADER = (
    "step", "layer", "head",
    "row_kind", "row", "row_label", "column_kind", "column", "column_label", "value",
)  # fmt: skip


def render(parts: Iterable[Part]) -> str:
    """Return every number of every grid on a line of its own, to full precision.

    A hidden cell has an empty value; NaN, inf and -inf are written so. A document without grids
    (tokens) gives its listing, with the columns that has. Raises: OptionError if there are several.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    everything = list(parts)
    header, rows = table_of_grids(everything)
    if rows:
        writer.writerow(header)
        writer.writerows(rows)
        return stream.getvalue()
    listings = [part for part in everything if isinstance(part, Listing)]
    if len(listings) != 1:
        raise OptionError(
            f"--format csv writes one table, and the steps to show give {len(listings)}",
            "Show steps that are matrices, or one that is not",
        )
    writer.writerow(listings[0].columns)
    writer.writerows(listings[0].rows)
    return stream.getvalue()


def table_of_grids(parts: Iterable[Part]) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """Return (header, rows): every number of every grid with its names.

    There is a column for the layer if the parts are about a model's layers.
    """
    rows = list(_rows_of_grids(parts))
    layer = _HEADER.index("layer")
    if any(row[layer] is not None for row in rows):
        return _HEADER, rows
    header = (*_HEADER[:layer], *_HEADER[layer + 1 :])
    return header, [(*row[:layer], *row[layer + 1 :]) for row in rows]


def _rows_of_grids(parts: Iterable[Part]) -> Iterator[tuple[object, ...]]:
    for part in parts:
        if isinstance(part, Grid):
            yield from _grid_rows(part)
        elif isinstance(part, Pair):
            for grid in part.grids:
                yield from _grid_rows(grid)


def _grid_rows(part: Grid) -> Iterable[tuple[object, ...]]:
    head = "" if part.head is None else part.head
    for row, values in enumerate(part.values):
        for column, value in enumerate(values):
            yield (
                part.step,
                part.layer,
                head,
                part.rows.name,
                part.rows.position(row),
                part.rows.labels[row],
                part.columns.name,
                part.columns.position(column),
                part.columns.labels[column],
                "" if part.is_hidden(row, column) else _full(value, part.whole),
            )


def _full(value: float, whole: bool) -> str:
    if whole:
        return str(int(value))
    if math.isnan(value):
        return "NaN"
    return repr(value) if math.isfinite(value) else ("inf" if value > 0 else "-inf")
