"""One text and the pieces it was cut into."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Tokens:
    """A text and its tokens, in order.

    Units: `spans` are half-open character ranges of `text`; a token that a tokenizer added
    has an empty span. `labels` are safe to print; `pieces` are what the tokenizer says.
    """

    text: str
    pieces: tuple[str, ...]
    labels: tuple[str, ...]
    ids: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    special: tuple[bool, ...]
    unknown: tuple[bool, ...]
    vocabulary: "Vocabulary"

    def __len__(self) -> int:
        return len(self.pieces)

    def source(self, position: int) -> str:
        """Return the characters of the text that the token at `position` came from."""
        start, end = self.spans[position]
        return self.text[start:end]


def part_of_tokens(tokens: Tokens, part: slice) -> Tokens:
    """Return some consecutive tokens of a text; their spans stay places in the whole of it."""
    names = ("pieces", "labels", "ids", "spans", "special", "unknown")
    return replace(tokens, **{name: getattr(tokens, name)[part] for name in names})


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Where the ids come from: a built or loaded vocabulary.

    `entries` holds every piece if there are few, else those of the text (`complete` says which).
    `rows` is one more than the largest id: how many rows an embedding table needs.
    """

    source: str
    name: str
    size: int
    rows: int
    entries: dict[str, int]
    complete: bool
    notes: tuple[str, ...] = ()
