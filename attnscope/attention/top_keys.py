"""The largest numbers of each row, without sorting the row."""

import math

import torch
from torch import Tensor
from torch.nn import functional

# Below this many columns torch's topk is the quickest way.
_FEW = 64


def strongest_columns(numbers: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Return the largest numbers of each row and their columns, largest first, a NaN before all.

    A group that holds one of the `most` largest has one of the `most` largest maxima, so that only
    that many groups are looked into. Which of equal numbers are taken is not told.
    Shapes: (rows, columns) -> twice (rows, min(most, columns)).
    """
    rows, columns = numbers.shape
    most = min(most, columns)
    group = math.isqrt(columns // most)
    if columns <= _FEW or group < 2:
        return torch.topk(numbers, most, dim=1)
    missing = -columns % group
    if missing:
        numbers = functional.pad(numbers, (0, missing), value=-torch.inf)
    cut = numbers.view(rows, -1, group)
    chosen = torch.topk(cut.amax(dim=2), most, dim=1, sorted=False).indices
    base = torch.arange(rows, device=numbers.device)[:, None] * cut.shape[1]
    inside = cut.reshape(-1, group).index_select(0, (base + chosen).flatten()).view(rows, -1)
    values, places = torch.topk(inside, most, dim=1)
    return values, chosen.gather(1, places // group) * group + places % group
