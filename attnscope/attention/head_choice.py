"""Some heads of a call, or of its measures, and nothing of the others."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from torch import Tensor

from attnscope.attention.call import AttentionCall
from attnscope.attention.masks import Mask
from attnscope.attention.measured import Measures
from attnscope.attention.verify import CapturedCall, ObservedCall

# What measures hold that is not one thing per head.
_SHARED = ("nearest", "distance_edges", "map_cell")


def chosen_heads(
    call: AttentionCall | ObservedCall, heads: Sequence[int]
) -> AttentionCall | ObservedCall:
    """Return the call of some of its query heads, each with a head of keys of its own."""
    places = list(heads)
    if places == list(range(call.heads)):
        return call
    if isinstance(call, ObservedCall):
        scores = None if call.scores is None else call.scores[places]
        return ObservedCall(call.weights[places], call.value[places], scores)
    read = [call.key_head(head) for head in places]
    return replace(
        call,
        query=call.query[places],
        key=call.key[read],
        value=call.value[read],
        mask=_of_heads(call.mask, places),
        bias=None if call.bias is None else _rows_of(call.bias, places),
        sinks=None if call.sinks is None else call.sinks[places],
    )


def chosen_captured(captured: CapturedCall, heads: Sequence[int]) -> CapturedCall:
    """Return a captured call with some of its heads."""
    return replace(
        captured, call=chosen_heads(captured.call, heads), output=captured.output[list(heads)]
    )


def chosen_measures(measures: Measures, heads: Sequence[int]) -> Measures:
    """Return the measures of some heads, by their places in `measures`."""
    places = list(heads)
    own: dict[str, Any] = {
        field.name: value[places]
        for field in fields(measures)
        if field.name not in _SHARED and isinstance(value := getattr(measures, field.name), Tensor)
    }
    return replace(measures, **own)


def _of_heads(mask: Mask, heads: list[int]) -> Mask:
    return Mask(mask.name, lambda q, k: _rows_of(mask.rule(q, k), heads), mask.reach)


def _rows_of(tensor: Tensor, heads: list[int]) -> Tensor:
    """Return the heads' own parts of what may be the same for all."""
    return tensor if tensor.dim() < 3 or tensor.shape[0] == 1 else tensor[heads]
