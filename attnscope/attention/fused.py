"""Context and log-sum-exp of rows by keys in one call of torch's own fused kernel.

The operator that also returns the log-sum-exp has a private name, so nothing depends on it: where
it is missing or refuses, `attended` returns None and the caller computes in tiles.
"""

import torch
from torch import Tensor

from attnscope.attention.head_group import HeadGroup

# Products of one call of the kernel, about a fifth of a second: an interrupt waits for it.
MOST = 1 << 32


def takes(group: HeadGroup) -> bool:
    """Return whether the fused kernel computes what this group means."""
    call = group.call
    return (
        group.plain
        and call.query.device.type == "cpu"
        and call.query.shape[2] == call.value.shape[2]
        and bool(call.value.isfinite().all())
    )


def attended(
    group: HeadGroup, rows: slice, keys: slice, *, causal: bool
) -> tuple[Tensor, Tensor] | None:
    """Return context and log-sum-exp as if rows saw these keys only, or None if it cannot.

    `causal`: row i of the rows sees the keys up to number i of these keys.
    Shapes: (heads, rows, d_value), (heads, rows).
    """
    try:
        operator = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        context, logsumexp = operator(
            group.query(rows)[None],
            group.key(keys)[None],
            group.value(keys)[None],
            0.0,
            causal,
            scale=group.call.scale,
        )
    except (AttributeError, RuntimeError):
        return None
    return context[0], logsumexp[0].to(group.dtype)
