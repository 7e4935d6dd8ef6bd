"""Heat maps in the terminal: half-block cells, or digits where there is no colour.

A half block (▀) shows two cells in one character: the upper in its own colour, the lower in the
background's. So a cell is about as wide as it is high, at one, two or four characters.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.color import Color
from rich.style import Style
from rich.text import Text

from attnscope.views.look import Look
from attnscope.views.parts import Band, Grid, HeatMaps
from attnscope.views.style import HIDDEN, tint

_NAN_COLOUR = (255, 0, 80)  # red: in no scale
_GAP = 3  # between two maps side by side
_MOST_LABEL = 16
_LEGEND_CELLS = 16


@dataclass(frozen=True, slots=True)
class _Layout:
    """How large cells and row names are: `zoom` characters wide and `zoom` half lines high."""

    zoom: int
    label: int


def render_heatmaps(part: HeatMaps, look: Look) -> Iterator[Text]:
    """Return the lines of a grid of heat maps, as many side by side as the width has room for."""
    if not part.maps:
        return
    layout = _layout(part, look)
    room = max(1, (look.width - layout.label - 1) // layout.zoom)
    columns = len(part.maps[0].columns.labels)
    for start in range(0, columns, room):
        end = min(columns, start + room)
        if (start, end) != (0, columns):
            yield Text(f"keys {start}–{end - 1} of {columns}", style="dim italic")
        drawn = [list(_map(one, layout, look, start, end)) for one in part.maps]
        width = layout.label + 1 + (end - start) * layout.zoom
        yield from _side_by_side(drawn, width, look.width)
    yield from _legend(look)
    if not part.same_axes:
        names = part.maps[0].columns
        listed = ", ".join(names.heading(i) for i in range(columns))
        yield from wrapped_lines(f"keys: {listed}", look.width)


def wrapped_lines(text: str, width: int) -> Iterator[Text]:
    """Return a text as lines of at most `width` columns, broken between words."""
    line = ""
    for word in text.split(" "):
        joined = f"{line} {word}" if line else word
        if line and cell_len(joined) > width:
            yield Text(line)
            joined = word
        line = joined
    yield from (Text(piece) for piece in chop_cells(line, width))


def _layout(part: HeatMaps, look: Look) -> _Layout:
    first = part.maps[0]
    names = [first.rows.heading(i) for i in range(len(first.rows.labels))]
    label = min(max(cell_len(name) for name in names), _MOST_LABEL, max(4, look.width // 3))
    columns = len(first.columns.labels)
    for zoom in (4, 2):
        fitting = (look.width + _GAP) // (label + 1 + columns * zoom + _GAP)
        if fitting >= min(len(part.maps), 2 if zoom == 2 else len(part.maps)):
            return _Layout(zoom, label)
    return _Layout(1, label)


def _map(grid: Grid, layout: _Layout, look: Look, start: int, end: int) -> Iterator[Text]:
    """Return the lines of one map: title, key positions, rows."""
    if grid.head is not None:
        yield Text(f"head {grid.head}", style="bold cyan")
    yield from _key_positions(grid.columns, layout, start, end)
    rows = len(grid.rows.labels)
    if not look.colour:
        for row in range(rows):
            cells = (_digit(grid, row, column).ljust(layout.zoom) for column in range(start, end))
            yield _named(grid.rows.heading(row), layout) + Text("".join(cells))
        return
    halves = rows * layout.zoom  # half lines
    for upper in range(0, halves, 2):
        top, below = upper // layout.zoom, (upper + 1) // layout.zoom
        starts_here = upper % layout.zoom == 0 or below != top
        line = _named(grid.rows.heading(top) if starts_here else "", layout)
        for column in range(start, end):
            lower = below if below < rows else None
            line.append(_half_block(grid, top, lower, column, layout.zoom))
        yield line


def _named(name: str, layout: _Layout) -> Text:
    """Return a row name cut to the width of names (the whole name is in the tables)."""
    short = name if cell_len(name) <= layout.label else set_cell_size(name, layout.label - 1) + "…"
    return Text(set_cell_size(short, layout.label) + " ")


def _key_positions(columns: Band, layout: _Layout, start: int, end: int) -> Iterator[Text]:
    """Return the positions of keys, a digit a line, above their columns."""
    digits = len(str(columns.position(end - 1)))
    for place in range(digits):
        line = " " * (layout.label + 1)
        for column in range(start, end):
            text = str(columns.position(column)).rjust(digits)
            line += text[place].ljust(layout.zoom)
        yield Text(line.rstrip(), style="dim")


def _half_block(grid: Grid, top: int, lower: int | None, column: int, zoom: int) -> Text:
    upper_colour = _colour(grid, top, column)
    lower_colour = upper_colour if lower == top else None
    if lower is not None and lower != top:
        lower_colour = _colour(grid, lower, column)
    if upper_colour is None and lower_colour is None:
        mark = HIDDEN if zoom > 1 or lower is not None else " "
        return Text(mark.ljust(zoom) if zoom > 1 else mark, style="dim")
    if upper_colour is None:
        return Text("▄" * zoom, Style(color=lower_colour))
    if upper_colour == lower_colour:
        return Text(" " * zoom, Style(bgcolor=upper_colour))
    return Text("▀" * zoom, Style(color=upper_colour, bgcolor=lower_colour))


def _colour(grid: Grid, row: int, column: int) -> Color | None:
    """Return the colour of a cell; None for a hidden one, which keeps the terminal's own."""
    if grid.is_hidden(row, column):
        return None
    colour = tint(grid.values[row][column])
    return Color.from_rgb(*(colour[0] if colour is not None else _NAN_COLOUR))


def _digit(grid: Grid, row: int, column: int) -> str:
    if grid.is_hidden(row, column):
        return HIDDEN
    value = grid.values[row][column]
    if math.isnan(value) or not 0.0 <= value <= 1.0:
        return "?"
    return str(min(9, int(value * 10)))


def _legend(look: Look) -> Iterator[Text]:
    if not look.colour:
        about = f"0 is a weight below 0.1, 9 one of 0.9 or more; {HIDDEN} hidden, ? NaN"
        yield from wrapped_lines(about, look.width)
        return
    line = Text("0 ")
    for i in range(_LEGEND_CELLS):
        colour = tint(i / (_LEGEND_CELLS - 1))
        assert colour is not None
        line.append(" ", Style(bgcolor=Color.from_rgb(*colour[0])))
    line.append(" 1")
    yield line
    line = Text(f"{HIDDEN} hidden  ")
    line.append("  ", Style(bgcolor=Color.from_rgb(*_NAN_COLOUR)))
    line.append(" NaN")
    yield line


def _side_by_side(maps: list[list[Text]], width: int, screen: int) -> Iterator[Text]:
    beside = max(1, (screen + _GAP) // (width + _GAP))
    for start in range(0, len(maps), beside):
        group = maps[start : start + beside]
        for lines in zip(*group, strict=True):
            joined = Text()
            for i, line in enumerate(lines):
                if i:
                    joined.append(" " * _GAP)
                padding = width - line.cell_len if i < len(lines) - 1 else 0
                joined.append_text(line)
                joined.append(" " * padding)
            yield joined
        yield Text("")
