"""A call of a batch becomes one record per text: tensors cloned, masks made rules."""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from attnscope.attention.call import AttentionCall
from attnscope.attention.masks import CAUSAL, EVERYTHING, Mask, from_tensor, split_additive
from attnscope.attention.verify import ObservedCall
from attnscope.sources.capture.seen import Seen

Split = tuple[Tensor | None, Tensor | None]


class MaskStore:
    """Masks are cloned once, however many layers were given the same one.

    The model's own tensor is kept until the forward ends: else its memory could be given to
    another mask that would be taken for the first.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[object, ...], tuple[Tensor, Tensor, Split]] = {}

    def split(self, mask: Tensor | None) -> Split:
        """Return (visible, bias) of a mask, bool or added, each None if it changes nothing."""
        if mask is None:
            return None, None
        mask = mask.detach()
        place = (mask.data_ptr(), mask.shape, mask.stride(), mask.dtype, mask.device)
        version = None if mask.is_inference() else mask._version
        kept = self._kept.get((*place, version))
        # a tensor of inference_mode does not count its changes, so it is compared
        if kept is not None and (version is not None or torch.equal(kept[1], mask)):
            return kept[2]
        clone = mask.clone()
        parts = (clone, None) if clone.dtype == torch.bool else _split_added(clone)
        self._kept[(*place, version)] = (mask, clone, parts)
        return parts

    def forget(self) -> None:
        """Let go of the model's tensors."""
        self._kept.clear()


def _split_added(mask: Tensor) -> Split:
    visible, bias = split_additive(mask)
    return (None if bool(visible.all()) else visible), bias


def texts(seen: Seen, masks: MaskStore) -> Iterator[tuple[AttentionCall | ObservedCall, Tensor]]:
    """Yield (record, output) for each text of the batch."""
    output = seen.output.detach().clone()
    if seen.query is None or seen.key is None:
        yield from _observed(seen, output)
        return
    batch = output.shape[0]
    query, key, value = _one_dtype(seen.query, seen.key, seen.value)
    query, key, value = (x.expand(batch, -1, -1, -1) for x in (query, key, value))
    visible, bias = _visible_and_bias(seen, masks)
    sinks = None if seen.sinks is None else seen.sinks.detach().reshape(-1).clone()
    for text in range(batch):
        yield (
            AttentionCall(
                query[text],
                key[text],
                value[text],
                scale=math.nan if seen.scale is None else float(seen.scale),
                mask=_rule(_of_text(visible, text), seen),
                bias=_of_text(bias, text),
                softcap=seen.softcap,
                sinks=sinks,
            ),
            output[text],
        )


def _one_dtype(*tensors: Tensor) -> tuple[Tensor, ...]:
    # under autocast the three can differ; the widest holds every number of the others
    dtype = tensors[0].dtype
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return tuple(tensor.detach().to(dtype, copy=True) for tensor in tensors)


def _visible_and_bias(seen: Seen, masks: MaskStore) -> Split:
    visible, bias = masks.split(seen.mask)
    more_visible, more_bias = masks.split(seen.bias)
    return _both(visible, more_visible, torch.logical_and), _both(bias, more_bias, torch.add)


def _both(
    a: Tensor | None, b: Tensor | None, join: Callable[[Tensor, Tensor], Tensor]
) -> Tensor | None:
    if a is None or b is None:
        return b if a is None else a
    return join(a, b)


def _of_text(tensor: Tensor | None, text: int) -> Tensor | None:
    """Return (heads or 1, queries or 1, keys or 1) of one text."""
    if tensor is None:
        return None
    while tensor.dim() < 4:
        tensor = tensor[None]
    return tensor[text if tensor.shape[0] > 1 else 0]


def _rule(visible: Tensor | None, seen: Seen) -> Mask:
    mask = EVERYTHING
    if visible is not None:
        mask = from_tensor(visible.expand(-1, seen.queries, seen.keys))
    # torch aligns is_causal to the upper left corner, also where there are more keys
    return mask & CAUSAL if seen.causal else mask


def _observed(seen: Seen, output: Tensor) -> Iterator[tuple[ObservedCall, Tensor]]:
    assert seen.weights is not None
    weights, value = seen.weights.detach().clone(), seen.value.detach().clone()
    scores = None if seen.scores is None else seen.scores.detach().clone()
    for text in range(output.shape[0]):
        yield (
            ObservedCall(weights[text], value[text], None if scores is None else scores[text]),
            output[text],
        )
