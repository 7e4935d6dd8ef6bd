"""What the HTML page holds: how each head is stored, what heads share, and how large that is.

A head is stored in one of three forms. "vectors": query, key and each row's log-sum-exp, from
which the page computes any cell; this grows with the tokens, not with their square. "cells": every
omega, scaled score and weight, for heads that this formula does not reproduce. "bytes": every
weight in 8 bits, for pages that would be large, where that is clearly smaller.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnscope.run import Run
from attnscope.views.look import Look

if TYPE_CHECKING:
    from torch import Tensor

    from attnscope.attention.result import AttentionResult

Array = NDArray[Any]

LARGE_PAGE = 10_000_000  # from here on, exact numbers make room for 8-bit weights
SMALL_PAGE = 1_000_000  # below, float64 runs keep their float64
# 8-bit weights must save a quarter: fewer bytes are not worth losing the omegas and the digits.
CLEARLY_SMALLER = 0.75
BLOCK_OVERHEAD = 400  # the tags and names around the numbers of one head
ROWS_AT_ONCE = 512


@dataclass(frozen=True, slots=True)
class Stored:
    """One head and how it is stored: `form` is "vectors", "cells" or "bytes"."""

    layer: int
    head: int
    form: str
    double: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The heads to store and the size of their numbers in the page, in bytes."""

    heads: tuple[Stored, ...]
    size: int


def make_plan(run: Run, look: Look) -> Plan:
    """Decide how each head is stored; nothing is written yet."""
    heads = [
        Stored(layer, head, "vectors" if reproduced(result, head) else "cells")
        for layer, result in enumerate(run.layers)
        for head in look.heads(result.call.heads)
    ]
    wide = [
        Stored(one.layer, one.head, one.form, run.layers[one.layer].call.query.element_size() == 8)
        for one in heads
    ]
    if _size(run, wide) < SMALL_PAGE:
        return Plan(tuple(wide), _size(run, wide))
    if _size(run, heads) > LARGE_PAGE:
        heads = [_smaller(run, one) for one in heads]
    return Plan(tuple(heads), _size(run, heads))


def _smaller(run: Run, stored: Stored) -> Stored:
    call = run.layers[stored.layer].call
    share = call.key_heads / call.heads
    exact = _own_size(run, stored) + share * _key_size(run, stored)
    rounded = Stored(stored.layer, stored.head, "bytes")
    return rounded if _own_size(run, rounded) < CLEARLY_SMALLER * exact else stored


def _size(run: Run, heads: list[Stored]) -> int:
    shared: dict[str, int] = {}
    for one in heads:
        for name, size in _shared_blocks(run, one):
            if name not in shared:
                shared[name] = size()
    own = sum(_own_size(run, one) + BLOCK_OVERHEAD for one in heads)
    return own + sum(shared.values())


def _own_size(run: Run, stored: Stored) -> int:
    call = run.layers[stored.layer].call
    cells, width = call.queries * call.keys, 8 if stored.double else 4
    if stored.form == "vectors":
        return _base64_size(width * call.queries * (call.query.shape[2] + 1))
    if stored.form == "cells":
        return 3 * _base64_size(width * cells)
    finite = bool(run.layers[stored.layer].weights[stored.head].isfinite().all())
    return _base64_size(cells) + (0 if finite else _base64_size(cells // 8 + 1))


def _key_size(run: Run, stored: Stored) -> int:
    call = run.layers[stored.layer].call
    return _base64_size((8 if stored.double else 4) * call.keys * call.key.shape[2])


def _shared_blocks(run: Run, stored: Stored) -> Iterator[tuple[str, Callable[[], int]]]:
    """Yield the blocks that heads may share, each with what computes its size."""
    result = run.layers[stored.layer]
    yield mask_block(result, stored), lambda: _mask_size(result, stored.head)
    if stored.form == "vectors":
        yield key_block(result, stored), lambda: _key_size(run, stored)
    bias = bias_block(result, stored)
    if bias is not None:
        width = 8 if stored.double else 4
        yield bias, lambda: _base64_size(width * head_bias(result, stored.head).size)


def _mask_size(result: "AttentionResult", head: int) -> int:
    if rule(result, head):
        return 0
    return _base64_size(result.call.queries * result.call.keys // 8 + 1)


def _base64_size(size: int) -> int:
    return (size + 2) // 3 * 4


def reproduced(result: "AttentionResult", head: int) -> bool:
    """Return whether exp(softcap(scale · q·k) + bias − logsumexp) gives this head's weights.

    False too if a number is not finite: such a head is shown from its cells, as it was computed.
    """
    call = result.call
    if result.observed or result.mask_steps is not None or call.query.element_size() < 4:
        return False
    with np.errstate(all="ignore"):  # a NaN or ∞ compares as False, which is the answer
        return _reproduced(result, head)


def _reproduced(result: "AttentionResult", head: int) -> bool:
    call = result.call
    query, key = array(call.query[head]), array(call.key[call.key_head(head)])
    whole = None if call.bias is None else call.bias.expand(call.heads, call.queries, call.keys)
    largest = float(np.linalg.norm(key, axis=1).max())
    for start in range(0, call.queries, ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        omegas = query[rows] @ key.T
        # a float32 dot product is only known to about this much, in whichever order it is added
        doubt = 1e-5 * largest * float(np.linalg.norm(query[rows], axis=1).max())
        scaled = _softcapped(omegas * call.scale, call.softcap)
        if whole is not None:
            scaled = scaled + array(whole[head, rows])
        if not (
            _near(omegas, array(result.scores[head, rows]), doubt)
            and _near(scaled, array(result.steps.scaled[head, rows]), doubt * abs(call.scale))
            and _weights_near(result, head, rows, scaled)
        ):
            return False
    return True


def _weights_near(result: "AttentionResult", head: int, rows: slice, scaled: Array) -> bool:
    seen = array(result.visible[head, rows])
    sums = array(result.steps.logsumexp[head, rows])[:, None]
    weights = np.where(seen, np.exp(np.minimum(scaled - sums, 0.0)), 0.0)
    # float32 logits of size s are rounded to about s · 6e-8, and their exponentials with them
    size = float(np.abs(scaled).max())
    return _near(weights, array(result.weights[head, rows]), 1e-6 * (1.0 + size), 0.0)


def _softcapped(scaled: Array, softcap: float | None) -> Array:
    return scaled if softcap is None else softcap * np.tanh(scaled / softcap)


def _near(mine: Array, theirs: Array, absolute: float, relative: float = 1e-5) -> bool:
    return bool((np.abs(mine - theirs) <= absolute + relative * np.abs(theirs)).all())


def array(tensor: "Tensor") -> Array:
    """Return a tensor as a numpy array: halves, which numpy lacks in part, as float32."""
    if tensor.is_floating_point() and tensor.element_size() < 4:
        tensor = tensor.float()
    numbers: Array = tensor.detach().cpu().numpy()
    return numbers


def rule(result: "AttentionResult", head: int) -> dict[str, Any] | None:
    """Return the mask as a rule on positions, or None if it is no plain rule.

    The cells are asked, not the mask's name: a mask that was given may be causal all the same.
    """
    seen = array(result.visible[head])
    if seen.all():
        return {"kind": "none"}
    offset = result.call.query_offset
    if np.array_equal(seen, np.tri(seen.shape[0], seen.shape[1], offset, dtype=bool)):
        return {"kind": "causal", "offset": offset}
    return None


def mask_block(result: "AttentionResult", stored: Stored) -> str:
    """Return the name of the block with this head's mask; heads share one where they can."""
    return _block("mask", stored, one_for_all=result.steps.visible.shape[0] == 1)


def key_block(result: "AttentionResult", stored: Stored) -> str:
    """Return the name of the block with the keys this head reads."""
    return f"key-{stored.layer}-{result.call.key_head(stored.head)}"


def bias_block(result: "AttentionResult", stored: Stored) -> str | None:
    """Return the name of the block with this head's bias, if it is not in the cells already."""
    bias = result.call.bias
    if bias is None or stored.form != "vectors":
        return None
    return _block("bias", stored, one_for_all=bias.dim() < 3 or bias.shape[0] == 1)


def _block(name: str, stored: Stored, *, one_for_all: bool) -> str:
    return f"{name}-{stored.layer}" if one_for_all else f"{name}-{stored.layer}-{stored.head}"


def head_bias(result: "AttentionResult", head: int) -> Array:
    """Return the bias as it was given, with axes of 1 where it is repeated."""
    bias = result.call.bias
    assert bias is not None
    numbers = array(bias)
    numbers = numbers.reshape((1,) * (3 - numbers.ndim) + numbers.shape)
    own: Array = numbers[head if numbers.shape[0] > 1 else 0]
    return own
