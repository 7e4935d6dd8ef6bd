"""W_query, W_key and W_value: embeddings in, an AttentionCall out."""

from dataclasses import dataclass

import torch
from torch import Tensor

from attnscope.attention.call import AttentionCall
from attnscope.attention.masks import EVERYTHING, Mask


@dataclass(frozen=True, slots=True, eq=False)
class Projections:
    """The projection matrices of every head.

    Shapes: w_query, w_key (heads, d_model, d_key); w_value (heads, d_model, d_value).
    """

    w_query: Tensor
    w_key: Tensor
    w_value: Tensor

    def call(
        self,
        query_inputs: Tensor,
        key_inputs: Tensor,
        *,
        mask: Mask = EVERYTHING,
        query_offset: int = 0,
    ) -> AttentionCall:
        """Project two sequences of vectors: the first asks, the second is asked.

        Shapes: (queries, d_model), (keys, d_model).
        """
        return AttentionCall(
            query_inputs @ self.w_query,  # (heads, queries, d_key)
            key_inputs @ self.w_key,
            key_inputs @ self.w_value,
            mask=mask,
            query_offset=query_offset,
        )

    def to(self, device: torch.device, dtype: torch.dtype) -> "Projections":
        """Return the same matrices on another device or in another dtype."""
        return Projections(*(w.to(device, dtype) for w in (self.w_query, self.w_key, self.w_value)))


def draw_projections(
    generator: torch.Generator, heads: int, d_model: int, d_key: int, d_value: int
) -> Projections:
    """Draw W_query, W_key, W_value uniform in [0, 1), head by head, in that order.

    On the CPU in float32, so that every device shows the same numbers.
    """
    drawn = [
        [torch.rand(d_model, width, generator=generator) for width in (d_key, d_key, d_value)]
        for _ in range(heads)
    ]
    w_query, w_key, w_value = (torch.stack(list(w)) for w in zip(*drawn, strict=True))
    return Projections(w_query, w_key, w_value)


def draw_embeddings(seed: int, rows: int, d_model: int, ids: list[int]) -> Tensor:
    """Draw an embedding table of `rows` × `d_model` and return the rows of `ids`.

    Standard normal, after seeding with `seed`, on the CPU in float32: what
    `torch.manual_seed(seed); torch.nn.Embedding(rows, d_model)` holds.
    """
    generator = torch.Generator().manual_seed(seed)
    table = torch.empty(rows, d_model).normal_(generator=generator)
    return table[torch.tensor(ids)]
