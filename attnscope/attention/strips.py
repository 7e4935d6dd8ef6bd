"""Some rows by some keys of a call, with rows and keys merged: the pieces of a word are one."""

from dataclasses import dataclass

import torch
from torch import Tensor

from attnscope.attention.gathered import Call, weights_between

# Cells of one block, over all heads: 16 MB in float32.
_CELLS = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """Which rows, or which keys, belong together.

    Shapes: positions (n,), their numbers in the call; groups (n,), which of `count` each is of.
    """

    positions: Tensor
    groups: Tensor
    count: int


def merged(places: tuple[tuple[int, ...], ...], *, lost: int = 0) -> Merged:
    """Return places, each some positions; `lost`: how many positions the call begins without."""
    pairs = [(p - lost, i) for i, place in enumerate(places) for p in place if p >= lost]
    numbers = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)
    return Merged(numbers[:, 0], numbers[:, 1], len(places))


def strip(call: Call, logsumexp: Tensor, rows: Merged, keys: Merged) -> tuple[Tensor, Tensor]:
    """Return the weights of places by places: the mean over rows, the sum over keys.

    Shapes: logsumexp (heads, queries), of all rows; (heads, rows.count, keys.count), and as many
    truth values: whether any of the rows may see any of the keys. A mean is over all the rows of
    a place, those that see nothing included.
    Memory: blocks of 16 MB beside the result.
    """
    device = logsumexp.device
    columns, key_groups = keys.positions.to(device), keys.groups.to(device)
    weights = logsumexp.new_zeros(call.heads, rows.count, keys.count)
    seen = logsumexp.new_zeros(call.heads, rows.count, keys.count)
    step = max(1, _CELLS // (call.heads * max(1, len(columns))))
    for start in range(0, len(rows.positions) if len(columns) else 0, step):
        some = rows.positions[start : start + step].to(device)
        row_groups = rows.groups[start : start + step].to(device)
        part, visible = weights_between(call, logsumexp, some, columns)
        for total, cells in ((weights, part), (seen, visible.expand(part.shape).to(part.dtype))):
            by_key = total.new_zeros(call.heads, len(some), keys.count)
            by_key.index_add_(2, key_groups, cells.to(total.dtype))
            total.index_add_(1, row_groups, by_key)
    return weights / sizes(rows).to(weights)[:, None], seen > 0


def row_means(by_row: Tensor, rows: Merged) -> Tensor:
    """Return the mean of a number per row over the rows of each place: (heads, rows.count)."""
    total = by_row.new_zeros(by_row.shape[0], rows.count)
    positions, groups = rows.positions.to(by_row.device), rows.groups.to(by_row.device)
    return total.index_add_(1, groups, by_row[:, positions]) / sizes(rows).to(by_row)


def sizes(places: Merged) -> Tensor:
    """Return how many positions each place has: (count,), at least 1."""
    return torch.bincount(places.groups, minlength=places.count).clamp(min=1)
