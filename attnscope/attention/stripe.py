"""A stripe: some whole rows of a call at once, and what is known about them from then on."""

import math
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

# exp2 costs a third of exp, so that logits are taken to base 2.
LOG2_E = 1.0 / math.log(2.0)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """What is known about some rows once their weights are.

    Shapes: logsumexp (heads, rows), float64 where there is such a thing, the sink included, −inf
    for a row that sees nothing; context (heads, rows, d_value) or None; blind (heads, rows), the
    rows that may see no key.
    """

    logsumexp: Tensor
    context: Tensor | None
    blind: Tensor


class Stripe(Protocol):
    """Some rows of a group of heads, over all keys that one of them may see."""

    rows: slice
    size: int  # heads

    def fill(self, keys: slice, out: Tensor) -> Tensor:
        """Write the weights into `out` and return −Σ w·log₂ w of each row.

        `keys` are all that a row may see; there may be none.
        Shapes: out (heads · rows, keys or more), 0 in what is more; (heads · rows,).
        """

    def known(self) -> Rows:
        """Return what is known, after `fill`."""


@dataclass(slots=True, eq=False)
class Scratch:
    """Memory that stripes of one worker share, so that it stays in the cache."""

    dtype: torch.dtype
    device: torch.device
    logits: Tensor | None = None
    # what hides keys, by the places of keys and rows beside each other
    penalties: dict[tuple[int, int, int], Tensor] = field(default_factory=dict)

    def logit_rows(self, rows: int, keys: int) -> Tensor:
        """Return room for some logits: (rows, keys)."""
        if self.logits is None or self.logits.numel() < rows * keys:
            self.logits = torch.empty(rows * keys, dtype=self.dtype, device=self.device)
        return self.logits[: rows * keys].view(rows, keys)
