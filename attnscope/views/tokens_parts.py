"""Tokens as a table: position, token, id, span, the text it came from."""

from attnscope.text.display import label, visible
from attnscope.text.tokens import Tokens
from attnscope.views.parts import Line, Listing, Part, Tone

_LISTED = 12


def parts_of_tokens(
    tokens: Tokens,
    title: str = "tokens and ids",
    positions: tuple[int, ...] | None = None,
    first: int = 0,
) -> Listing:
    """Return one row per token, or per token at `positions`; the first stands at `first`."""
    marked = any(tokens.special) or any(tokens.unknown)
    columns: tuple[str, ...] = ("position", "token", "id", "span", "text")
    numeric: tuple[bool, ...] = (True, False, True, True, False)
    if marked:
        columns, numeric = (*columns, "mark"), (*numeric, False)
    rows = []
    for i in range(len(tokens)) if positions is None else positions:
        start, end = tokens.spans[i]
        source = label(tokens.source(i)) if end > start else "–"
        row = (str(first + i), tokens.labels[i], str(tokens.ids[i]), f"{start}–{end}", source)
        rows.append((*row, mark(tokens, i)) if marked else row)
    return Listing(title, columns, tuple(rows), numeric)


def mark(tokens: Tokens, position: int) -> str:
    """Return what is particular about a token: special, unknown or nothing."""
    if tokens.unknown[position]:
        return "unknown"
    return "special" if tokens.special[position] else ""


def document_of_tokens(tokens: Tokens) -> list[Part]:
    """Return the parts of a tokenized text: the text, its tokens, the vocabulary."""
    vocabulary = tokens.vocabulary
    listed = list(vocabulary.entries.items())
    shown = ", ".join(f"{label(piece)} {piece_id}" for piece, piece_id in listed[:_LISTED])
    more = f", … {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    where = f" from {visible(vocabulary.name)}" if vocabulary.name else " built from the text"
    return [
        Line(f"text: {visible(tokens.text)}", Tone.HEADING),
        parts_of_tokens(tokens),
        Line(f"vocabulary of {vocabulary.size}{where}: {shown}{more}"),
    ]
