"""KeySums: what all rows of a call give to its keys, added stripe by stripe."""

from dataclasses import dataclass

import torch
from torch import Tensor

from attnscope.attention.stripe_plan import Plan


@dataclass(frozen=True, slots=True, eq=False)
class KeySums:
    """Sums and maxima over the rows that have been read.

    Shapes, by key (heads, keys): received; highest, the largest weight; stripe_of_highest, the
    number of the first stripe that has it, or query_of_highest, its first query, whichever the
    stripes tell (−1: the other one, or none). profile (heads, queries + keys − 1), by distance.
    map_sum, map_max (heads, cells, columns). Sums are in float64 where there is such a thing.
    """

    received: Tensor
    highest: Tensor
    stripe_of_highest: Tensor
    query_of_highest: Tensor
    profile: Tensor
    map_sum: Tensor
    map_max: Tensor

    @staticmethod
    def empty(plan: Plan, heads: int, like: Tensor) -> "KeySums":
        """Return the sums over no rows."""
        queries, keys = plan.queries, plan.keys
        zeros = like.new_zeros
        wide = torch.float64 if like.device.type != "mps" else like.dtype
        cells = (heads, -(-queries // plan.cell_rows), -(-keys // plan.cell_keys))
        return KeySums(
            received=zeros(heads, keys, dtype=wide),
            highest=zeros(heads, keys),
            stripe_of_highest=zeros(heads, keys, dtype=torch.int32) - 1,
            query_of_highest=zeros(heads, keys, dtype=torch.int32) - 1,
            profile=zeros(heads, queries + keys - 1, dtype=wide),
            map_sum=zeros(cells, dtype=wide),
            map_max=zeros(cells),
        )
