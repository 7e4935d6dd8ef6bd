"""What an implementation was given and returned, before it is a record: with a batch axis."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from attnscope.attention.verify import Route


@dataclass(slots=True, eq=False)
class Seen:
    """One attention call of a whole batch, in the tensors of the model itself.

    Shapes: query (batch, heads, queries, d_key), key and value (batch, key_heads, keys, width),
    output (batch, heads, queries, d_value); mask (bool, True = may see, or added) and bias
    broadcast to (batch, heads, queries, keys); or, for attention that was only observed, weights
    and scores of that shape instead of query and key.
    """

    route: Route
    value: Tensor
    output: Tensor
    query: Tensor | None = None
    key: Tensor | None = None
    mask: Tensor | None = None
    bias: Tensor | None = None
    causal: bool = False
    scale: float | None = None
    softcap: float | None = None
    sinks: Tensor | None = None
    weights: Tensor | None = None
    scores: Tensor | None = None
    dropout: float = 0.0
    unknown: tuple[str, ...] = ()

    @property
    def queries(self) -> int:
        """The number of queries."""
        return self.output.shape[-2]

    @property
    def keys(self) -> int:
        """The number of keys."""
        return self.value.shape[-2]


@contextmanager
def unseen() -> Iterator[None]:
    """Work on the model's tensors so that no mode and no gradient sees it.

    What is cloned here is an ordinary tensor, also of a model under `inference_mode`.
    """
    with torch._C.DisableTorchFunction(), torch.inference_mode(False), torch.no_grad():
        yield


_HEAD_COUNTS = ("num_heads", "n_head", "n_heads", "num_attention_heads", "nhead", "heads")


def fold(rows: int, module: torch.nn.Module, batch: int | None) -> tuple[int, int]:
    """Return (batch, heads) of an axis that holds both, or one of them.

    The module's own number of heads is asked first, then the batch the model was given.
    """
    for name in _HEAD_COUNTS:
        heads = getattr(module, name, None)
        if isinstance(heads, int) and heads > 0 and rows % heads == 0:
            return rows // heads, heads
    if batch and rows % batch == 0:
        return batch, rows // batch
    return 1, rows
