"""How much weight goes to earlier places of a row's own token, and to what followed those.

Places are sorted by token, so that a row and the places it is asked about are neighbours: the work
grows with the number of repetitions, and no matrix of queries × keys is made.
"""

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from attnscope.attention.gathered import Call, weights_between
from attnscope.attention.workers import Crew

_ROWS = 128
# Cells of one block, over all heads: 16 MB in float32.
_CELLS = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """The weight of some keys of each row, and which rows have such a key that they may see.

    Shapes: (heads, queries), (heads, queries) bool.
    """

    weight: Tensor
    there: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class TokenMatches:
    """`same`: earlier places with the row's token. `after`: the places that follow those.

    What follows counts only before the row itself: of two equal neighbours, the second would be
    what follows the first.
    """

    same: Matches
    after: Matches


def token_matches(
    call: Call, logsumexp: Tensor, ids: Tensor, *, first_key: int = 0
) -> TokenMatches:
    """Return how much each row gives to earlier places of its token, and to what followed.

    `first_key`: which token the first column is, where the call has lost some.
    Shapes: logsumexp (heads, queries), of all rows; ids (queries,): rows and columns are the same
    tokens.
    Memory: blocks of 16 MB, one per thread.
    """
    ids = ids.to(logsumexp.device)
    order = ids.argsort(stable=True)
    ordered = ids[order]
    again = torch.nonzero(ordered[1:] == ordered[:-1]).flatten() + 1
    same, after = _Found(call, logsumexp, first_key), _Found(call, logsumexp, first_key)
    crew = Crew(0)

    def look(rows: Tensor) -> None:
        start = int(torch.searchsorted(ordered, ordered[rows[0]]))
        width = max(_ROWS, _CELLS // (call.heads * len(rows)))
        for left in range(start, int(rows[-1]), width):
            crew.check()
            columns = torch.arange(left, min(left + width, int(rows[-1])), device=ids.device)
            earlier = (ordered[rows][:, None] == ordered[columns]) & (columns < rows[:, None])
            same.add(order[rows], order[columns], earlier)
            nearer = order[columns] + 1 < order[rows][:, None]
            after.add(order[rows], order[columns] + 1, earlier & nearer)

    stripes = torch.split(again, _ROWS) if len(again) else ()
    workers = torch.get_num_threads() if ids.device.type == "cpu" else 1
    # small products: a thread for each stripe, none inside; rows are written without a lock
    crew.run([functools.partial(look, rows) for rows in stripes], workers)
    return TokenMatches(same.matches(), after.matches())


class _Found:
    def __init__(self, call: Call, logsumexp: Tensor, first_key: int) -> None:
        self._call, self._logsumexp, self._first = call, logsumexp, first_key
        self._weight = torch.zeros_like(logsumexp)
        self._there = torch.zeros_like(logsumexp, dtype=torch.bool)

    def add(self, rows: Tensor, keys: Tensor, wanted: Tensor) -> None:
        """Add the weights of wanted cells: (rows, keys) bool."""
        kept = wanted.any(dim=0) & (keys >= self._first) & (keys - self._first < self._call.keys)
        if not bool(kept.any()):
            return
        wanted, columns = wanted[:, kept], keys[kept] - self._first
        weights, seen = weights_between(self._call, self._logsumexp, rows, columns)
        cells = wanted & seen
        # a cell that is not wanted may be NaN, and is no part of the sum
        self._weight[:, rows] += torch.where(cells, weights, 0.0).sum(dim=-1)
        self._there[:, rows] |= cells.any(dim=-1)

    def matches(self) -> Matches:
        return Matches(self._weight, self._there)
