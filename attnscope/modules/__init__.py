"""The lesson's attention modules, trainable: each projects and hands one call to the engine.

Parameters are drawn uniform in [0, 1) as the lesson draws them, so that
`torch.manual_seed(123); SelfAttention(3, 2, 4)` holds the lesson's weights. Inputs are
(tokens, d_model) or have any axes before those: (batch, tokens, d_model).
"""

import torch
from torch import Tensor, nn

from attnscope.attention.call import AttentionCall
from attnscope.attention.engine import attention_context
from attnscope.attention.masks import CAUSAL, EVERYTHING, Mask
from attnscope.errors import ShapeError


class CrossAttention(nn.Module):
    """Attention of one sequence (the queries) to another (the keys and values).

    Shapes: (…, queries, d_model), (…, keys, d_model) -> (…, queries, d_value).
    """

    mask: Mask = EVERYTHING

    def __init__(self, d_model: int, d_key: int, d_value: int) -> None:
        super().__init__()
        self.w_query = nn.Parameter(torch.rand(d_model, d_key))
        self.w_key = nn.Parameter(torch.rand(d_model, d_key))
        self.w_value = nn.Parameter(torch.rand(d_model, d_value))

    def forward(self, query_inputs: Tensor, key_inputs: Tensor) -> Tensor:
        """Return the context vectors of the first sequence."""
        context = attention_context(self.call(query_inputs, key_inputs))
        return context.reshape(*query_inputs.shape[:-1], context.shape[-1])

    def call(self, query_inputs: Tensor, key_inputs: Tensor) -> AttentionCall:
        """Return the AttentionCall of a forward pass; each text of a batch takes a head's place.

        Raises: ShapeError if the batches differ, or a causal mask could be aligned in two ways.
        """
        self._check(tuple(query_inputs.shape), tuple(key_inputs.shape))
        return AttentionCall(
            _stacked(query_inputs @ self.w_query),  # (texts, queries, d_key)
            _stacked(key_inputs @ self.w_key),
            _stacked(key_inputs @ self.w_value),
            mask=self.mask,
        )

    def _check(self, queries: tuple[int, ...], keys: tuple[int, ...]) -> None:
        if queries[:-2] != keys[:-2]:
            raise ShapeError(
                f"the queries have shape {queries} and the keys {keys}", "Give equal batches"
            )
        if self.mask is not EVERYTHING and queries[-2] != keys[-2]:
            raise ShapeError(
                f"a causal mask over {queries[-2]} queries and {keys[-2]} keys can be aligned in "
                "two ways",
                "Make an AttentionCall with the query_offset that you mean",
            )


class SelfAttention(CrossAttention):
    """Attention of a sequence to itself. Shapes: (…, tokens, d_model) -> (…, tokens, d_value)."""

    def forward(self, inputs: Tensor, key_inputs: Tensor | None = None) -> Tensor:
        """Return the context vectors; `key_inputs` is for the cross-attention this stands on."""
        return super().forward(inputs, inputs if key_inputs is None else key_inputs)


class CausalAttention(SelfAttention):
    """Self-attention in which a token sees itself and what comes before it."""

    mask = CAUSAL


class MultiHeadAttention(nn.Module):
    """Several heads over the same inputs, their context vectors concatenated.

    Shapes: (…, tokens, d_model) -> (…, tokens, heads · d_value). With a second sequence it is
    cross-attention, with `causal` each head is causal.
    """

    def __init__(
        self, d_model: int, d_key: int, d_value: int, heads: int, *, causal: bool = False
    ) -> None:
        super().__init__()
        if heads < 1:
            raise ShapeError(f"{heads} heads", "Give 1 or more")
        kind = CausalAttention if causal else SelfAttention
        self.heads = nn.ModuleList(kind(d_model, d_key, d_value) for _ in range(heads))

    def forward(self, inputs: Tensor, key_inputs: Tensor | None = None) -> Tensor:
        """Return the concatenated context vectors of all heads."""
        return torch.cat([head(inputs, key_inputs) for head in self.heads], dim=-1)


def _stacked(vectors: Tensor) -> Tensor:
    """Fold the axes before (tokens, width) into one."""
    return vectors.reshape(-1, *vectors.shape[-2:])


__all__ = ["CausalAttention", "CrossAttention", "MultiHeadAttention", "SelfAttention"]
