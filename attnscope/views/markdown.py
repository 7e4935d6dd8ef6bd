"""Parts as Markdown: headings, paragraphs and tables, to paste into notes.

For CommonMark with tables, as GitHub, Jupyter and Pandoc read them.
"""

import re
from collections.abc import Iterable, Iterator

from attnscope.views.look import Look
from attnscope.views.parts import Grid, HeatMaps, Line, Listing, Pair, Part, Tone
from attnscope.views.style import HIDDEN, number

# Characters that can begin markup anywhere, each harmless after a backslash. A colon is one only
# where something follows it at once (an address, an emoji code).
_MARKUP = re.compile(r"[\\`*_{}\[\]|~#!$@^]|:(?=\S)")
_HTML = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
# What is markup only as the first thing of a line: lists, rules, underlines of headings.
_FIRST = re.compile(r"^\s*([-+=]|\d+(?=[.)]))")
_ADDRESS = re.compile(r"(?i)(?<=www)\.")


def render(parts: Iterable[Part], look: Look) -> str:
    """Return the parts as one Markdown document; text of the user is text, never markup."""
    blocks: list[str] = []
    for part in parts:
        blocks.extend(_blocks(part, look, first=not blocks))
    return "\n\n".join(blocks) + "\n"


def escaped(text: str) -> str:
    """Return text that Markdown shows as it is, in a line or in a cell of a table."""
    text = " ".join(text.splitlines())
    text = _MARKUP.sub(lambda match: "\\" + match.group(), text)
    text = re.sub("[&<>]", lambda match: _HTML[match.group()], text)
    return _ADDRESS.sub("&#46;", text)


def _blocks(part: Part, look: Look, *, first: bool) -> Iterator[str]:
    if isinstance(part, Line):
        if part.text.strip():  # an empty line is only there to part what stands close on a screen
            yield _line(part, first=first)
    elif isinstance(part, Listing):
        yield f"**{escaped(part.title)}**"
        yield _table(part.columns, part.rows, part.numeric)
    else:
        for grid in _grids(part):
            yield f"**{escaped(grid.title)}**"
            yield _grid(grid, look)


def _grids(part: Grid | Pair | HeatMaps) -> tuple[Grid, ...]:
    if isinstance(part, Grid):
        return (part,)
    return part.grids if isinstance(part, Pair) else part.maps


def _line(part: Line, *, first: bool) -> str:
    text = escaped(part.text)
    if part.tone in (Tone.HEADING, Tone.SECTION):
        return f"{'#' if first else '##'} {text}"
    text = _FIRST.sub(_not_first, text)
    return f"**{text}**" if part.tone is Tone.WARNING else text


def _not_first(match: re.Match[str]) -> str:
    mark = match.group(1)
    # the point after a number can be escaped, a digit cannot
    return f"{mark}\\" if mark.isdigit() else f"\\{mark}"


def _grid(part: Grid, look: Look) -> str:
    columns = [part.columns.heading(i) for i in range(len(part.columns.labels))]
    rows = [
        (part.rows.heading(row), *(_cell(part, row, i, look) for i in range(len(columns))))
        for row in range(len(part.rows.labels))
    ]
    return _table((part.rows.name, *columns), rows, (False, *(True for _ in columns)))


def _cell(part: Grid, row: int, column: int, look: Look) -> str:
    if part.is_hidden(row, column):
        return HIDDEN
    value = part.values[row][column]
    return str(int(value)) if part.whole else number(value, look.precision)


def _table(columns: Iterable[str], rows: Iterable[tuple[str, ...]], numeric: Iterable[bool]) -> str:
    rules = ["--:" if right else ":--" for right in numeric]
    lines = [[escaped(name) for name in columns], rules]
    lines += [[escaped(cell) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
