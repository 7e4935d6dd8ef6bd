"""Parts as CSV: one number a line, with the names of its row and column."""

import csv
import io
import math
from collections.abc import Iterable

from attnscope.errors import OptionError
from attnscope.views.parts import Grid, Listing, Pair, Part

HEADER = (
    "step", "head", "row_kind", "row", "row_label", "column_kind", "column", "column_label", "value"
)  # fmt: skip


def render(parts: Iterable[Part]) -> str:
    """Return every number of every grid on a line of its own, to full precision.

    A hidden cell has an empty value; NaN, inf and -inf are written so. A document without grids
    (tokens) gives its listing, with the columns that has. Raises: OptionError if there are several.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    everything = list(parts)
    grids = [part for part in everything if isinstance(part, Grid)]
    grids += [grid for part in everything if isinstance(part, Pair) for grid in part.grids]
    if grids:
        writer.writerow(HEADER)
        for grid in grids:
            writer.writerows(_grid_rows(grid))
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


def _grid_rows(part: Grid) -> Iterable[tuple[object, ...]]:
    head = "" if part.head is None else part.head
    for row, values in enumerate(part.values):
        for column, value in enumerate(values):
            yield (
                part.step,
                head,
                part.rows.name,
                part.rows.positions[row] if part.rows.positions else row,
                part.rows.labels[row],
                part.columns.name,
                part.columns.positions[column] if part.columns.positions else column,
                part.columns.labels[column],
                "" if part.is_hidden(row, column) else _full(value, part.whole),
            )


def _full(value: float, whole: bool) -> str:
    if whole:
        return str(int(value))
    if math.isnan(value):
        return "NaN"
    return repr(value) if math.isfinite(value) else ("inf" if value > 0 else "-inf")
