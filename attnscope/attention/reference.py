"""The same context by torch's own kernel: the oracle every run is compared with."""

import torch
from torch import Tensor
from torch.nn import functional

from attnscope.attention import engine
from attnscope.attention.call import AttentionCall

NAME = "torch.nn.functional.scaled_dot_product_attention"

# How far two orders of the same sums may lie apart, relative to the largest value: about a
# hundred units in the last place of the dtype (a few for the half types, which round each step).
TOLERANCES = {
    torch.float64: 1e-12,
    torch.float32: 1e-5,
    torch.float16: 5e-3,
    torch.bfloat16: 2e-2,
}


def reference_context(call: AttentionCall) -> Tensor | None:
    """Return the context as torch computes it, or None for a softcap, which its kernel has not.

    A sink becomes one more key with logit = sink and value 0: the same equation.
    Shapes: (heads, queries, d_value).
    """
    if call.softcap is not None:
        return None
    seen = engine.visible(call).expand(call.heads, -1, -1)
    query, key, value = call.query, call.key, call.value
    mask: Tensor = seen
    if call.bias is not None or call.sinks is not None:
        mask = torch.zeros(seen.shape, dtype=query.dtype, device=query.device)
        if call.bias is not None:
            mask = mask + call.bias.to(query.dtype)
        mask = mask.masked_fill(~seen, -torch.inf)
    if call.sinks is not None:
        sink = call.sinks.to(query.dtype)[:, None, None].expand(-1, call.queries, 1)
        mask = torch.cat([mask, sink], dim=-1)
        key = functional.pad(key, (0, 0, 0, 1))
        value = functional.pad(value, (0, 0, 0, 1))
    return functional.scaled_dot_product_attention(
        query[None],
        key[None],
        value[None],
        attn_mask=mask[None],
        scale=call.scale,
        enable_gqa=call.heads != call.key_heads,
    )[0]


def difference(mine: Tensor, theirs: Tensor) -> float:
    """Return max |Δ|; NaN if either holds a NaN that the other does not, 0 where both agree."""
    a, b = mine.detach().double(), theirs.detach().double()
    same = (a == b) | (a.isnan() & b.isnan())
    gaps = (a - b).abs().masked_fill(same, 0.0)
    return float(gaps.max())


def agrees(gap: float, context: Tensor, scaled: Tensor) -> bool:
    """Return whether max |Δ| is within the tolerance of the dtype.

    Rounding a score of size s moves its weight by s units, so the tolerance grows with the
    largest score, and with the largest number of the context, where those are above 1.
    """
    return gap <= TOLERANCES[context.dtype] * _size(context) * _size(scaled)


def _size(numbers: Tensor) -> float:
    finite = numbers.detach().double()
    finite = finite[finite.isfinite()]
    return max(1.0, float(finite.abs().max()) if finite.numel() else 1.0)
