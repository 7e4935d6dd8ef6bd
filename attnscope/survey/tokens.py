"""TokenSurvey: what a token attends to, or who attends to it, over all heads of a model."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from attnscope.errors import OptionError
from attnscope.run import Site
from attnscope.text.display import label, visible
from attnscope.text.tokens import Tokens
from attnscope.text.whole_words import word_label, words_of

LINKS = 20
_LISTED = 10


class Direction(StrEnum):
    """Which end of attention is asked about."""

    TOP = "top"  # the token is the query: what does it attend to
    WHO = "who"  # the token is the key: who attends to it


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """Which token, in which layers and heads, and how. `layer`, `head`: None is all of them."""

    direction: Direction
    token: str
    layer: str | None = None
    head: int | None = None
    words: bool = False
    no_sink: bool = False
    limit: int = LINKS

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise OptionError(f"--limit {self.limit} is not positive", "Give 1 or more")
        if self.head is not None and self.head < 0:
            raise OptionError(f"--head {self.head} is out of range", "Heads count from 0")


@dataclass(frozen=True, slots=True)
class Place:
    """A token, or the pieces of a word: its positions, and a name that is safe to print."""

    positions: tuple[int, ...]
    label: str

    @property
    def name(self) -> str:
        """Position and label: "7 cat", "7–8 tokenizer"."""
        first, last = self.positions[0], self.positions[-1]
        where = str(first) if first == last else f"{first}–{last}"
        return f"{where} {self.label}"


@dataclass(frozen=True, slots=True)
class Link:
    """How much one head lets the focus give to another place, or get from it.

    `first`: what the same row, or the mean of a word's rows, gives to the first token; None where
    it may not see that.
    """

    site: Site
    head: int
    key_head: int
    place: Place
    weight: float
    first: float | None


@dataclass(frozen=True, slots=True)
class Focus:
    """One place that was asked about: the strongest links, and the mean over all heads.

    `part`: encoder, decoder or cross in a model that has all three. `heads`: how many heads there
    are; `means`: the places with the largest mean weight over all of them. `first`: the mean that
    goes to the first token, where rows are of this place alone.
    """

    part: str
    place: Place
    heads: int
    links: tuple[Link, ...]
    means: tuple[tuple[Place, float], ...]
    first: float | None


@dataclass(frozen=True, slots=True)
class TokenSurvey:
    """What was asked about a token of one text."""

    model: str
    text: str
    source: str | None
    options: LinkOptions
    focuses: tuple[Focus, ...]
    sites: tuple[Site, ...]
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    provenance: dict[str, str] = field(default_factory=dict)


def places_of(tokens: Tokens | None, labels: Sequence[str], *, words: bool) -> tuple[Place, ...]:
    """Return the places of rows or columns: tokens, whole words, or what has only a number."""
    if tokens is None or not words:
        return tuple(Place((i,), label) for i, label in enumerate(labels))
    return tuple(Place(word, word_label(tokens, word)) for word in words_of(tokens))


def find_places(tokens: Tokens, places: Sequence[Place], wanted: str) -> tuple[int, ...]:
    """Return which places `--token` means: a position, or every place of a word; maybe none.

    A number is always a position, also where a token looks like one.
    """
    if re.fullmatch(r"[0-9]{1,18}", wanted):
        return tuple(i for i, place in enumerate(places) if int(wanted) in place.positions)
    return tuple(i for i, place in enumerate(places) if wanted in _names(tokens, place))


def not_found(wanted: str, sides: Sequence[Tokens]) -> OptionError:
    """Return the error for a token that is in none of the texts."""
    total = max(len(tokens) for tokens in sides)
    if re.fullmatch(r"-?[0-9]{1,18}", wanted):
        return OptionError(
            f"--token {wanted} is out of range: there {'is' if total == 1 else 'are'} {total} "
            f"token{'' if total == 1 else 's'}",
            f"Positions count from 0: give 0 to {total - 1}",
        )
    names = list(dict.fromkeys(name for tokens in sides for name in tokens.labels))
    more = ", …" if len(names) > _LISTED else ""
    return OptionError(
        f'--token "{visible(wanted)}" is not a token of the text',
        f"Give a position from 0 to {total - 1} or one of: {', '.join(names[:_LISTED])}{more}",
    )


def nothing_left(total: int) -> OptionError:
    """Return the error for a text of which --no-sink leaves nothing to look at."""
    tokens = "1 token" if total == 1 else f"{total} tokens"
    return OptionError(
        f"--no-sink leaves nothing of a text of {tokens}", "Leave it out, or give a longer text"
    )


def _names(tokens: Tokens, place: Place) -> set[str]:
    start, end = tokens.spans[place.positions[0]][0], tokens.spans[place.positions[-1]][1]
    source = tokens.text[start:end]
    names = {place.label, source, source.strip(), _bare(source)}
    if len(place.positions) == 1:
        here = place.positions[0]
        names |= {tokens.pieces[here], tokens.labels[here], label(source)}
    return names - {""}


def _bare(word: str) -> str:
    """Return a word without the marks around it, so that "cat" finds "cat,"."""
    return re.sub(r"^\W+|\W+$", "", word)
