"""Parts as plain sentences, one a line: for a screen reader and for grep."""

from collections.abc import Iterable, Iterator

from attnscope.views.look import Look
from attnscope.views.parts import Grid, HeatMaps, Line, Listing, Pair, Part
from attnscope.views.style import number


def render(parts: Iterable[Part], look: Look) -> str:
    """Return a line for each row of each part, without boxes and colour."""
    return "".join(f"{line}\n" for part in parts for line in _lines(part, look))


def _lines(part: Part, look: Look) -> Iterator[str]:
    if isinstance(part, Line):
        yield part.text
    elif isinstance(part, Listing):
        for row in part.rows:
            cells = zip(part.columns, row, strict=True)
            yield f"{part.title}: " + ", ".join(f"{name} {cell}" for name, cell in cells if cell)
    else:
        for grid in _grids(part):
            yield from _grid_lines(grid, look)


def _grids(part: Grid | Pair | HeatMaps) -> tuple[Grid, ...]:
    if isinstance(part, Grid):
        return (part,)
    return part.grids if isinstance(part, Pair) else part.maps


def _grid_lines(part: Grid, look: Look) -> Iterator[str]:
    for row in range(len(part.rows.labels)):
        cells = [
            f"{part.columns.heading(column)} {_shown(part, row, column, look)}"
            for column in range(len(part.columns.labels))
        ]
        name = f"{part.rows.name} {part.rows.heading(row)}"
        yield f"{part.title}, {name}: {', '.join(cells)}"


def _shown(part: Grid, row: int, column: int, look: Look) -> str:
    if part.is_hidden(row, column):
        return "hidden"
    value = part.values[row][column]
    return str(int(value)) if part.whole else number(value, look.precision)
