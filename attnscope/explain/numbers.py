"""Tensors of a Run as sums and tables of plain numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from attnscope.attention.call import AttentionCall
from attnscope.attention.result import AttentionResult
from attnscope.explain.document import LeftOut, Sum, Table, Term
from attnscope.run import Run

WORKED_KEYS = 32  # of more keys, only those with the largest weights are worked out

# A column of a table: its name, its numbers, whether the mask hides them, whether they are weights.
Column = tuple[str, Tensor, bool, bool]


@dataclass(frozen=True, eq=False)
class Row:
    """One query in one head of a run, its tensors on the CPU.

    Shapes: query_vector (d_key,); keys (keys, d_key); values (keys, d_value); seen, scores,
    scaled, logits, weights (keys,); context (d_value,).
    """

    run: Run
    result: AttentionResult
    head: int
    query: int
    dims: int

    @property
    def call(self) -> AttentionCall:
        """The call of this run."""
        return self.result.call

    @property
    def query_name(self) -> str:
        """Position and label of the query."""
        return f"{self.query} {self.run.queries.labels[self.query]}"

    def key_name(self, key: int) -> str:
        """Position and label of a key."""
        return f"{key} {self.run.keys.labels[key]}"

    def of(self, matrices: Tensor) -> Tensor:
        """Return this row of (heads, queries, …), on the CPU."""
        return matrices[self.head, self.query].detach().cpu()

    @cached_property
    def seen(self) -> Tensor:
        """Which keys this query may see."""
        return self.of(self.result.visible)

    @cached_property
    def sink(self) -> Tensor | None:
        """The logit of this head's sink."""
        sinks = self.call.sinks
        return None if sinks is None else sinks[self.head].detach().cpu()

    @cached_property
    def query_vector(self) -> Tensor:
        """The vector q."""
        return self.of(self.call.query)

    @cached_property
    def keys(self) -> Tensor:
        """The vectors k."""
        return self.call.key[self.call.key_head(self.head)].detach().cpu()

    @cached_property
    def values(self) -> Tensor:
        """The vectors v."""
        return self.call.value[self.call.key_head(self.head)].detach().cpu()

    @cached_property
    def context(self) -> Tensor:
        """The vector z."""
        return self.of(self.result.context)

    @cached_property
    def worked_keys(self) -> list[int]:
        """The keys that are worked out: all, or those with the largest weights."""
        return kept(self.of(self.result.weights), max(self.dims, WORKED_KEYS))

    def keys_left_out(self) -> tuple[LeftOut, ...]:
        """Say how many keys are not worked out, and the largest weight among them."""
        return left_out(
            "keys", self.of(self.result.weights), self.worked_keys, "the largest weight of them"
        )


def kept(numbers: Tensor, most: int) -> list[int]:
    """Return the places of the `most` largest numbers in size, in order of place.

    Shapes: numbers (n,). What is not a number counts as the largest: it must be seen.
    """
    return sorted(_by_size(numbers)[:most])


def left_out(
    what: str, numbers: Tensor, places: list[int], measure: str = "the largest in size"
) -> tuple[LeftOut, ...]:
    """Say what is not listed of (n,) numbers when those at `places` are; nothing if all are."""
    others = sorted(set(range(len(numbers))) - set(places))
    if not others:
        return ()
    sizes = numbers[others].double().abs()
    return (LeftOut(what, len(others), measure, float(sizes.max())),)


def sum_of(
    name: str,
    left: Tensor,
    right: Tensor | None,
    result: Tensor,
    dims: int,
    places: Sequence[str],
) -> Sum:
    """Return result = Σ left · right, the `dims` largest terms first if there are more.

    Shapes: left, right (n,); result (). The products are exact: float64 from what is given.
    """
    products = left.double() if right is None else left.double() * right.double()
    order = list(range(len(products)))
    if len(products) > dims:
        order = _by_size(products)
    listed, others = order[:dims], order[dims:]
    lefts, exact = left.tolist(), products.tolist()
    rights = [None] * len(lefts) if right is None else right.tolist()
    terms = tuple(Term(places[i], lefts[i], rights[i], exact[i]) for i in listed)
    over = float(products[others].sum()) if others else 0.0
    return Sum(name, terms, float(result), len(others), over)


def vector(row_name: str, name: str, letter: str, numbers: Tensor, places: list[int]) -> Table:
    """Return the numbers of a vector (n,) at some places as a table of one row."""
    columns = tuple(f"{letter}{i}" for i in places)
    return Table(row_name, (name,), columns, (tuple(numbers[places].tolist()),))


def key_table(row: Row, columns: Sequence[Column], keys: list[int] | None = None) -> Table:
    """Return numbers of each key, or of some, as a table with a row per key.

    Shapes: each column (keys,).
    """
    places = list(range(len(row.seen))) if keys is None else keys
    unseen = (~row.seen[places]).tolist()
    return Table(
        "key",
        tuple(row.run.keys.labels[key] for key in places),
        tuple(name for name, _, _, _ in columns),
        tuple(zip(*(numbers[places].tolist() for _, numbers, _, _ in columns), strict=True)),
        tuple(places),
        tuple(tuple(hides and hidden for _, _, hides, _ in columns) for hidden in unseen)
        if any(hides for _, _, hides, _ in columns)
        else None,
        frozenset(i for i, column in enumerate(columns) if column[3]),
    )


def _by_size(numbers: Tensor) -> list[int]:
    # torch sorts NaN as the largest
    return [int(i) for i in numbers.double().abs().argsort(descending=True, stable=True)]
