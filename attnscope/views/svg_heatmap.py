"""The weights of a run as an SVG picture, fit for a paper: cells, labels, a legend.

Text stays text, every token gives valid XML, and nothing is fetched.
"""

import math
import re
from collections.abc import Iterator
from xml.sax.saxutils import escape

from attnscope.errors import SizeError
from attnscope.run import Axis, Run
from attnscope.views.look import Look
from attnscope.views.style import tint

_CELL, _FONT, _LABEL_GAP = 26, 12, 6
_SMALL_CELL, _SMALL_FROM = 10, 40  # from this many tokens on cells are small
_TITLE, _GAP, _MARGIN, _LEGEND = 24, 28, 16, 44
_ACROSS = 1600  # a grid of heads is about this wide
_MOST_CELLS = 400_000  # an SVG of more rectangles opens in no editor
_MOST_LABEL = 24  # characters
# Width of a character in ems: wide enough for Latin text in any sans-serif font; CJK is 1.
_NARROW, _WIDE = 0.62, 1.0
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_HIDDEN_FILL, _NAN_FILL = "#ececec", "#ff0050"


def render_svg(run: Run, look: Look) -> str:
    """Return the heat maps of the heads to show. Raises: SizeError for too many cells."""
    maps = [
        (layer, head, result)
        for layer, result in enumerate(run.layers)
        for head in look.heads(result.call.heads)
    ]
    rows = look.rows(len(run.queries))
    cells = len(maps) * len(rows) * len(run.keys)
    if cells > _MOST_CELLS:
        raise SizeError(
            f"a picture of {cells:,} cells is more than the {_MOST_CELLS:,} that an SVG can hold",
            "Choose one with --head, some rows with --query, or draw blocks with --downsample 200",
        )
    size = _CELL if max(len(rows), len(run.keys)) < _SMALL_FROM else _SMALL_CELL
    font = _FONT if size == _CELL else 8
    left = _label_width(run.queries, rows, font) + _LABEL_GAP
    top = _label_width(run.keys, tuple(range(len(run.keys))), font) + _LABEL_GAP + _TITLE
    width, height = left + len(run.keys) * size, top + len(rows) * size
    across = max(1, min(len(maps), (_ACROSS + _GAP) // (width + _GAP)))
    down = math.ceil(len(maps) / across)
    total_width = max(across * (width + _GAP) - _GAP, 280) + 2 * _MARGIN
    total_height = down * (height + _GAP) - _GAP + 2 * _MARGIN + _LEGEND
    pieces = [_opening(run, total_width, total_height, font)]
    for i, (layer, head, result) in enumerate(maps):
        x = _MARGIN + (i % across) * (width + _GAP)
        y = _MARGIN + (i // across) * (height + _GAP)
        title = f"head {head}"
        if len(run.layers) > 1:
            title = f"layer {run.layer_name(layer)}, {title}"
        pieces.append(f'<g transform="translate({x} {y})">')
        pieces.append(f'<text class="title" x="{left}" y="{font + 2}">{title}</text>')
        pieces += _labels(run, rows, size, left, top)
        weights, seen = result.weights[head], result.visible[head]
        pieces += _cells(weights[list(rows)].tolist(), seen[list(rows)].tolist(), size, left, top)
        pieces.append("</g>")
    pieces += _legend(total_height - _LEGEND)
    return "\n".join([*pieces, "</svg>", ""])


def _opening(run: Run, width: int, height: int, font: int) -> str:
    s = run.settings
    about = f"Attention weights, {s.variant}, {len(run.queries)} queries by {len(run.keys)} keys"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{_text(about)}">\n'
        f"<title>{_text(about)}</title>\n"
        "<style>text{font-family:'DejaVu Sans','Noto Sans','Noto Sans CJK SC',Arial,sans-serif;"
        f"font-size:{font}px;fill:#222}}.title{{font-weight:bold}}.end{{text-anchor:end}}</style>\n"
        '<defs><pattern id="hidden" width="6" height="6" patternUnits="userSpaceOnUse">'
        f'<rect width="6" height="6" fill="{_HIDDEN_FILL}"/>'
        '<path d="M0 6L6 0" stroke="#c8c8c8"/></pattern></defs>\n'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    )


def _labels(run: Run, rows: tuple[int, ...], size: int, left: int, top: int) -> Iterator[str]:
    for i, row in enumerate(rows):
        y = top + i * size + size * 0.68
        yield (
            f'<text class="end" x="{left - _LABEL_GAP}" y="{y:g}">'
            f"{_text(_short(run.queries.labels[row]))}</text>"
        )
    for column, label in enumerate(run.keys.labels):
        x = left + column * size + size * 0.68
        yield (
            f'<text transform="translate({x:g} {top - _LABEL_GAP}) rotate(-90)">'
            f"{_text(_short(label))}</text>"
        )


def _cells(
    weights: list[list[float]], seen: list[list[bool]], size: int, left: int, top: int
) -> Iterator[str]:
    for row, values in enumerate(weights):
        for column, weight in enumerate(values):
            fill = _fill(weight, seen[row][column])
            x, y = left + column * size, top + row * size
            note = f"{weight:.6g}" if seen[row][column] else "hidden"
            yield (
                f'<rect x="{x}" y="{y}" width="{size}" height="{size}" fill="{fill}">'
                f"<title>{note}</title></rect>"
            )


def _fill(weight: float, seen: bool) -> str:
    if not seen:
        return "url(#hidden)"
    colour = tint(weight)
    return _NAN_FILL if colour is None else "#{:02x}{:02x}{:02x}".format(*colour[0])


def _legend(y: int) -> Iterator[str]:
    steps, width = 32, 5
    yield f'<g transform="translate({_MARGIN} {y})"><text x="0" y="14">0</text>'
    for i in range(steps):
        yield (
            f'<rect x="{12 + i * width}" y="3" width="{width}" height="14" '
            f'fill="{_fill(i / (steps - 1), True)}"/>'
        )
    end = 12 + steps * width
    yield f'<text x="{end + 4}" y="14">1</text>'
    yield f'<rect x="{end + 22}" y="3" width="14" height="14" fill="url(#hidden)"/>'
    yield f'<text x="{end + 40}" y="14">hidden</text></g>'


def _label_width(axis: Axis, positions: tuple[int, ...], font: int) -> int:
    return math.ceil(max(_ems(_short(axis.labels[i])) for i in positions) * font)


def _ems(text: str) -> float:
    return sum(_WIDE if ord(character) > 0x2E7F else _NARROW for character in text)


def _short(label: str) -> str:
    return label if len(label) <= _MOST_LABEL else f"{label[: _MOST_LABEL - 1]}…"


def _text(text: str) -> str:
    """Return text as XML, with a � for each character that XML forbids."""
    return escape(_NOT_XML.sub("�", text), {'"': "&quot;"})
