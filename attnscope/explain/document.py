"""Explanation: one query and the steps to its context vector, as plain numbers and words."""

from dataclasses import dataclass

from attnscope.run import Run


@dataclass(frozen=True, slots=True)
class Term:
    """One summand, left · right = product; `right` is None where it is one number."""

    place: str
    left: float
    right: float | None
    product: float


@dataclass(frozen=True, slots=True)
class Sum:
    """A number of the Run as a sum; `left_out` terms that add to `left_out_sum` are not listed."""

    name: str
    terms: tuple[Term, ...]
    result: float
    left_out: int = 0
    left_out_sum: float = 0.0


@dataclass(frozen=True, slots=True)
class Table:
    """Numbers by row and column; `hidden` marks the cells that the mask leaves empty."""

    row_name: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    positions: tuple[int, ...] | None = None
    hidden: tuple[tuple[bool, ...], ...] | None = None
    weight_columns: frozenset[int] = frozenset()

    def is_hidden(self, row: int, column: int) -> bool:
        """Return whether the mask leaves a cell empty."""
        return self.hidden is not None and self.hidden[row][column]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What a step does not list: `count` of `what`, the largest of them `largest`."""

    what: str
    count: int
    measure: str
    largest: float


@dataclass(frozen=True, slots=True)
class Step:
    """One step: what it computes (shape), how (formula), why (sentence), and its numbers.

    `facts` are single numbers by name, `words` texts by name that are safe to print.
    """

    name: str
    title: str
    formula: str
    sentence: str
    shape: tuple[int, ...] = ()
    head: int | None = None
    number: int = 0
    words: tuple[tuple[str, str], ...] = ()
    facts: tuple[tuple[str, float], ...] = ()
    sums: tuple[Sum, ...] = ()
    tables: tuple[Table, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True, slots=True)
class Walk:
    """One query, step by step; `label` is safe to print."""

    query: int
    label: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Prefix:
    """What a token may see, as positions and as words, and the token that comes next."""

    query: int
    sees: tuple[int, ...]
    words: str
    next: str


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """Some queries of a run, worked out; `prefixes` is empty unless tokens see what precedes."""

    run: Run
    walks: tuple[Walk, ...]
    prefixes: tuple[Prefix, ...]
