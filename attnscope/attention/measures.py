"""Numbers per row, read off the weights."""

import torch
from torch import Tensor


def entropy(weights: Tensor) -> Tensor:
    """Return −Σ w·ln w of each row: 0 for one key, ln n for n equal ones.

    Shapes: (..., queries, keys) -> (..., queries). Units: nats. A weight of 0 adds 0.
    """
    wide = weights.float() if weights.dtype.itemsize < 4 else weights
    surprise: Tensor = torch.special.entr(wide)
    return surprise.sum(dim=-1)


def strongest(weights: Tensor, seen: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Return the largest weights of each row, and the keys that got them, largest first.

    Hidden keys come last with weight −1 and key −1; a NaN comes first.
    Shapes: (heads, queries, keys) -> twice (heads, queries, min(most, keys)).
    """
    visible_weights = weights.masked_fill(~seen, -1.0)
    values, keys = torch.topk(visible_weights, min(most, weights.shape[-1]), dim=-1)
    return values, keys.masked_fill(values == -1.0, -1)
