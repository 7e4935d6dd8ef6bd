"""The parts a document is shown in: every text format draws the same ones."""

from dataclasses import dataclass
from enum import StrEnum


class Tone(StrEnum):
    """What a line is for."""

    PLAIN = "plain"
    HEADING = "heading"
    SECTION = "section"  # a heading inside a document: a line is left free above it
    GOOD = "good"
    WARNING = "warning"
    HINT = "hint"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of text."""

    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Listing:
    """A table of words: some rows, each with one cell per column.

    `numeric` says which columns are set to the right.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Band:
    """The names along one edge of a grid, e.g. of its queries, with their positions.

    `positions` are rows of the matrix; the matrix may be a part of a longer one, and `first` is the
    position of its first row there.
    """

    name: str
    labels: tuple[str, ...]
    positions: tuple[int, ...] | None = None
    first: int = 0

    def position(self, i: int) -> int:
        """Return the position of place `i` in the whole."""
        return i if self.positions is None else self.first + self.positions[i]

    def heading(self, i: int) -> str:
        """Return position and label of place `i`: "1 is"."""
        return self.labels[i] if self.positions is None else f"{self.position(i)} {self.labels[i]}"


@dataclass(frozen=True, slots=True)
class Grid:
    """A matrix of numbers with named rows and columns.

    `hidden` marks cells that no number belongs in; `tinted` says which columns hold weights.
    """

    step: str
    title: str
    rows: Band
    columns: Band
    values: tuple[tuple[float, ...], ...]
    head: int | None = None
    hidden: tuple[tuple[bool, ...], ...] | None = None
    tinted: frozenset[int] = frozenset()
    whole: bool = False  # whole numbers, shown without decimals
    layer: str | None = None  # of a model

    def is_hidden(self, row: int, column: int) -> bool:
        """Return whether a cell holds no number."""
        return self.hidden is not None and self.hidden[row][column]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two grids that say the same step in two ways, shown side by side where there is room."""

    left: Grid | None
    right: Grid | None

    @property
    def grids(self) -> tuple[Grid, ...]:
        """The grids that are there."""
        return tuple(side for side in (self.left, self.right) if side is not None)


@dataclass(frozen=True, slots=True)
class HeatMaps:
    """Matrices of weights to be shown as coloured cells, several side by side.

    `same_axes`: the keys are the queries, so that row names name columns too.
    """

    maps: tuple[Grid, ...]
    same_axes: bool


Part = Line | Listing | Grid | Pair | HeatMaps
