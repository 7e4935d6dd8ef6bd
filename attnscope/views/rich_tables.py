"""Parts as Rich tables, in column blocks so that no number is cut or lost."""

from collections.abc import Iterable, Iterator

from rich import box
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.style import Style
from rich.table import Table
from rich.text import Text

from attnscope.views.look import Look
from attnscope.views.parts import Grid, HeatMaps, Line, Listing, Pair, Part, Tone
from attnscope.views.rich_heatmap import render_heatmaps
from attnscope.views.style import HIDDEN, number, tint

_TONES = {
    Tone.PLAIN: "",
    Tone.HEADING: "bold",
    Tone.SECTION: "bold",
    Tone.GOOD: "green",
    Tone.WARNING: "bold yellow",
    Tone.HINT: "dim",
}
_HEADER = "bold"
_GAP = 2  # between cells: one of padding, one that the box has for a rule
_FOLDED = 10  # how narrow a column of words may get by folding them
_BESIDE = 4  # between two tables that stand side by side


def render(parts: Iterable[Part], look: Look) -> tuple[RenderableType, int]:
    """Return everything as one renderable, and its width: more than asked if one number is."""
    drawn = [piece for part in parts for piece in _draw(part, look)]
    needed = max((width for _, width in drawn), default=0)
    return Group(*(piece for piece, _ in drawn)), max(look.width, needed)


def _draw(part: Part, look: Look) -> Iterator[tuple[RenderableType, int]]:
    if isinstance(part, Line):
        if part.tone is Tone.SECTION:
            yield Text(""), 0
        yield _wrapped(Text(part.text, style=_TONES[part.tone]), look.width), 0
    elif isinstance(part, Listing):
        yield from _listing(part, look)
    elif isinstance(part, Pair):
        yield from _pair(part, look)
    elif isinstance(part, HeatMaps):
        yield from ((line, line.cell_len) for line in render_heatmaps(part, look))
    else:
        yield from _grid(part, look)


def _wrapped(text: Text, width: int) -> RenderableType:
    """Keep a text within the width that was asked, also where a table needs more."""
    return Padding(text, 0, expand=False) if cell_len(text.plain) <= width else _Narrow(text, width)


class _Narrow:
    def __init__(self, text: Text, width: int) -> None:
        self.text, self.width = text, width

    def __rich_console__(self, console: object, options: object) -> Iterator[Text]:
        from rich.console import Console

        assert isinstance(console, Console)
        yield from self.text.wrap(console, self.width, overflow="fold")


def _listing(part: Listing, look: Look) -> Iterator[tuple[RenderableType, int]]:
    yield _title(part.title, look), 0
    columns = [
        (_longest_word(name), max([cell_len(row[i]) for row in part.rows] or [0]))
        for i, name in enumerate(part.columns)
    ]
    # a word may be folded where it is a token of any length, but not where it may be a number
    words = [
        max((_longest_word(row[i]) for row in part.rows if len(row[i]) > 40), default=0)
        for i in range(len(part.columns))
    ]
    least = [
        max(cells, min(name, _FOLDED)) if numeric else min(max(_FOLDED, word), max(name, cells))
        for (name, cells), numeric, word in zip(columns, part.numeric, words, strict=True)
    ]
    widths = _fitted([max(name, cells) for name, cells in columns], least, look.width)
    if sum(widths) + _GAP * (len(widths) - 1) > look.width:
        yield from _records(part, look)
        return
    table = _table()
    for name, numeric, width in zip(part.columns, part.numeric, widths, strict=True):
        _column(table, name, width, numeric=numeric)
    for row in part.rows:
        table.add_row(*(Text(cell) for cell in row))
    yield table, sum(widths) + _GAP * (len(widths) - 1)


def _records(part: Listing, look: Look) -> Iterator[tuple[RenderableType, int]]:
    """Draw a listing that fits no table: each row as its cells with their names, wrapped."""
    for row in part.rows:
        cells = zip(part.columns, row, strict=True)
        record = ", ".join(f"{name} {cell}" for name, cell in cells if cell)
        yield _wrapped(Text(record), look.width), 0


def _longest_word(name: str) -> int:
    return max((cell_len(word) for word in name.split()), default=0)


def _fitted(wanted: list[int], least: list[int], width: int) -> list[int]:
    """Narrow the widest column to the next, and so on, until all fit or none can give more."""
    widths = list(wanted)
    while (over := sum(widths) + _GAP * (len(widths) - 1) - width) > 0:
        loose = sorted(
            (i for i in range(len(widths)) if widths[i] > least[i]), key=widths.__getitem__
        )
        if not loose:
            break
        widest = loose[-1]
        next_one = max([widths[i] for i in loose[:-1]] or [0])
        give = max(1, min(over, widths[widest] - max(next_one, least[widest])))
        widths[widest] -= give
    return widths


def _grid(part: Grid, look: Look) -> Iterator[tuple[RenderableType, int]]:
    cells = [
        [_cell(part, row, column, look) for column in range(len(part.columns.labels))]
        for row in range(len(part.rows.labels))
    ]
    names = [part.rows.heading(i) for i in range(len(part.rows.labels))]
    heading_width = 7 if look.width < 76 else 10
    name_width = _name_width([*names, part.rows.name], part, cells, look.width)
    yield _title(part.title, look), 0
    for start, end, widths in _blocks(part, cells, look.width - name_width, heading_width):
        if (start, end) != (0, len(part.columns.labels)):
            block = _block_name(part, start, end)
            yield _wrapped(Text(block, style="dim italic"), look.width), 0
        table = _table()
        _column(table, part.rows.name, name_width, numeric=False)
        for column, width in zip(range(start, end), widths, strict=True):
            _column(table, part.columns.heading(column), width, numeric=True)
        for name, row in zip(names, cells, strict=True):
            table.add_row(Text(name), *row[start:end])
        yield table, name_width + sum(widths) + _GAP * len(widths)


def _name_width(names: list[str], part: Grid, cells: list[list[Text]], width: int) -> int:
    """Return the width of row names: a third at most, on a narrow screen what one number leaves."""
    most = width // 3
    if width < 60:
        headings = [part.columns.heading(i) for i in range(len(part.columns.labels))]
        number = max(cell.cell_len for row in cells for cell in row)
        heading = min(7, max(cell_len(heading) for heading in headings))
        most = max(most, width - _GAP - max(number, heading))
    return min(max(cell_len(name) for name in names), max(4, most))


def _block_name(part: Grid, start: int, end: int) -> str:
    which = f" {start}" if end == start + 1 else f"s {start}–{end - 1}"
    return f"{part.columns.name}{which} of {len(part.columns.labels)}"


def _blocks(
    part: Grid, cells: list[list[Text]], width: int, heading_width: int
) -> Iterator[tuple[int, int, list[int]]]:
    """Split the columns into blocks that fit; a column is as wide as its widest number."""
    headings = [part.columns.heading(i) for i in range(len(part.columns.labels))]
    start, widths = 0, list[int]()
    for column, heading in enumerate(headings):
        numbers = max((row[column].cell_len for row in cells), default=0)
        # a heading may fold to two lines or more, a number may not
        wide = max(numbers, min(cell_len(heading), heading_width))
        if widths and sum(widths) + wide + _GAP * (len(widths) + 1) > width:
            yield start, column, widths
            start, widths = column, []
        widths.append(wide)
    yield start, len(headings), widths


def _pair(part: Pair, look: Look) -> Iterator[tuple[RenderableType, int]]:
    """Draw two grids side by side if both fit whole, else one below the other."""
    sides = [
        list(_grid(side, look)) if side is not None else [] for side in (part.left, part.right)
    ]
    widths = [max((width for _, width in side), default=0) for side in sides]
    whole = all(len(side) <= 2 for side in sides)  # a title and one block
    if not whole or sum(widths) + _BESIDE > look.width:
        yield from (piece for side in sides for piece in side)
        return
    beside = Table.grid(padding=(0, _BESIDE, 0, 0))
    beside.add_row(*(Group(*(piece for piece, _ in side)) for side in sides if side))
    yield beside, sum(widths) + _BESIDE


def _cell(part: Grid, row: int, column: int, look: Look) -> Text:
    if part.is_hidden(row, column):
        return Text(HIDDEN, style="dim")
    value = part.values[row][column]
    text = str(int(value)) if part.whole else number(value, look.precision)
    colour = tint(value) if column in part.tinted else None
    if colour is None:
        return Text(text)
    (red, green, blue), dark_text = colour
    ink = "black" if dark_text else "white"
    return Text(text, style=Style.parse(f"{ink} on rgb({red},{green},{blue})"))


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, padding=(0, _GAP - 1, 0, 0), pad_edge=False, show_edge=False)


def _column(table: Table, name: str, width: int, *, numeric: bool) -> None:
    table.add_column(
        Text(name, style=_HEADER),
        justify="right" if numeric else "left",
        width=width,
        overflow="fold",
        vertical="top",
    )


def _title(title: str, look: Look) -> RenderableType:
    return Group(Text(""), _wrapped(Text(title, style="bold cyan"), look.width))
