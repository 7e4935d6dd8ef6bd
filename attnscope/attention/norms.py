"""How long the vectors are that a weight moves: a large weight on a short value moves little.

Source: Kobayashi et al. 2020, "Attention is Not Only a Weight: Analyzing Transformers with Vector
Norms", equations 3 and 4.
"""

import torch
from torch import Tensor

from attnscope.attention.call import AttentionCall


def value_lengths(call: AttentionCall) -> Tensor:
    """Return ‖v‖ of each key as each head reads it: (heads, keys), in float32 at least."""
    value = call.value.float() if call.value.dtype.itemsize < 4 else call.value
    lengths: Tensor = torch.linalg.vector_norm(value, dim=-1)
    return lengths.repeat_interleave(call.heads // call.key_heads, dim=0)


def projected_lengths(value: Tensor, projection: Tensor, heads: int) -> Tensor:
    """Return ‖v·W_O‖ of each key, with the rows of W_O that a head's context is multiplied by.

    Shapes: value (key_heads, keys, d_value) and projection (heads · d_value, d_model) ->
    (heads, keys).
    """
    wide = torch.promote_types(value.dtype, torch.float32)
    parts = projection.to(wide).reshape(heads, value.shape[2], -1)
    group = heads // value.shape[0]
    lengths = [
        torch.linalg.vector_norm(value[head // group].to(wide) @ parts[head], dim=-1)
        for head in range(heads)
    ]
    return torch.stack(lengths)
