"""AttentionCall: everything one attention call used, its shapes checked once."""

import math
from dataclasses import dataclass

from torch import Tensor

from attnscope.attention.masks import EVERYTHING, Mask
from attnscope.errors import ShapeError


@dataclass(frozen=True, slots=True, eq=False)
class AttentionCall:
    """One attention call of one text: softmax(softcap(scale · q·kᵀ) + bias, masked) · v.

    Shapes: query (heads, queries, d_key); key (key_heads, keys, d_key); value (key_heads, keys,
    d_value), where query head h reads key head h // (heads / key_heads); bias broadcasts to
    (heads, queries, keys); sinks (heads,): one more logit in each row's softmax, without a value.
    The query of row i stands at position query_offset + i, the key of column j at j.

    Raises: ShapeError naming both numbers.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    scale: float = math.nan  # NaN: 1/√d_key, set below
    mask: Mask = EVERYTHING
    bias: Tensor | None = None
    softcap: float | None = None
    sinks: Tensor | None = None
    query_offset: int = 0

    def __post_init__(self) -> None:
        _check_axes(self)
        _check_widths(self)
        _check_extras(self)
        if math.isnan(self.scale):
            # Vaswani et al. 2017, equation 1. A width of 0 has no scale and is rejected above.
            object.__setattr__(self, "scale", 1.0 / math.sqrt(self.query.shape[2]))

    @property
    def heads(self) -> int:
        """The number of query heads."""
        return self.query.shape[0]

    @property
    def key_heads(self) -> int:
        """The number of heads of keys and values."""
        return self.key.shape[0]

    @property
    def queries(self) -> int:
        """The number of queries."""
        return self.query.shape[1]

    @property
    def keys(self) -> int:
        """The number of keys."""
        return self.key.shape[1]

    def key_head(self, head: int) -> int:
        """Return the key head that query head `head` reads."""
        return head // (self.heads // self.key_heads)


def _check_axes(call: AttentionCall) -> None:
    for name, tensor in (("query", call.query), ("key", call.key), ("value", call.value)):
        if tensor.dim() != 3:
            raise ShapeError(
                f"{name} has shape {_shape(tensor)}: {tensor.dim()} axes, not 3",
                "Give (heads, tokens, width)",
            )
        if 0 in tensor.shape:
            raise ShapeError(f"{name} has shape {_shape(tensor)}: an axis is empty", "")


def _check_widths(call: AttentionCall) -> None:
    query, key, value = call.query, call.key, call.value
    if query.shape[2] != key.shape[2]:
        raise ShapeError(
            f"query has width {query.shape[2]} and key has width {key.shape[2]}",
            "The dot product q·k needs equal widths",
        )
    if key.shape[1] != value.shape[1]:
        raise ShapeError(
            f"there are {key.shape[1]} keys and {value.shape[1]} values",
            "Each key needs one value",
        )
    if key.shape[0] != value.shape[0]:
        raise ShapeError(
            f"key has {key.shape[0]} heads and value has {value.shape[0]}",
            "Give key and value the same heads",
        )
    if query.shape[0] % key.shape[0]:
        raise ShapeError(
            f"query has {query.shape[0]} heads, which {key.shape[0]} key heads do not divide",
            "Give as many key heads as query heads, or a divisor of them",
        )
    if len({query.dtype, key.dtype, value.dtype}) > 1:
        raise ShapeError(
            f"query is {query.dtype}, key is {key.dtype}, value is {value.dtype}",
            "Give all three the same dtype",
        )


def _check_extras(call: AttentionCall) -> None:
    whole = (call.heads, call.queries, call.keys)
    if call.bias is not None and not _broadcasts(tuple(call.bias.shape), whole):
        raise ShapeError(
            f"bias has shape {_shape(call.bias)}, which does not broadcast to "
            f"{whole} (heads, queries, keys)",
        )
    if call.sinks is not None and tuple(call.sinks.shape) != (call.heads,):
        raise ShapeError(
            f"sinks has shape {_shape(call.sinks)} for {call.heads} heads",
            "Give one number per query head",
        )


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    if len(shape) > len(to):
        return False
    return all(a in (1, b) for a, b in zip(reversed(shape), reversed(to), strict=False))


def _shape(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))
