"""Attention written by hand: a softmax over the last axis, followed to the product with values."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from attnscope.errors import ShapeError
from attnscope.sources.capture.products import Product, key_axis, product
from attnscope.sources.capture.seen import Seen, fold

SOFTMAX = {
    functional.softmax,
    torch.softmax,
    Tensor.softmax,
    torch.special.softmax,
    torch.ops.aten.softmax.int,
    torch.ops.aten._softmax.default,
}
# What takes numbers out of the weights is no step on the way to the values.
_ENDS = {
    torch.topk,
    Tensor.topk,
    torch.argmax,
    Tensor.argmax,
    torch.max,
    Tensor.max,
    torch.sum,
    Tensor.sum,
    torch.mean,
    Tensor.mean,
    torch.multinomial,
    Tensor.multinomial,
}
# Casts, dropout, head masks, reshapes, mixing of heads: nobody takes more steps than these.
_MOST_STEPS = 12


class PartialError(ShapeError):
    """Only a part of a softmax's weights met values: the others are elsewhere."""


@dataclass(slots=True, eq=False)
class Trail:
    """One softmax whose values have not been met yet."""

    scores: Tensor
    version: int | None
    shape: torch.Size
    depth: int  # of the module that it belongs to, among those that run
    module: torch.nn.Module


@dataclass(slots=True, eq=False)
class _Tag:
    tensor: Tensor  # kept: else its id could become another tensor's
    trail: Trail
    axis: int  # where the keys are, counted from the end
    steps: int


class Observer:
    """Follows what became of each softmax."""

    def __init__(self) -> None:
        self._tags: dict[int, _Tag] = {}
        self.lost = 0  # softmax results that met no values

    @property
    def idle(self) -> bool:
        """Whether there is nothing to follow."""
        return not self._tags

    def softmax(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Any,
        depth: int,
        module: torch.nn.Module,
    ) -> None:
        """Start to follow a softmax, if it is over the last axis."""
        scores = args[0] if args else kwargs.get("input", kwargs.get("self"))
        dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if not isinstance(scores, Tensor) or scores.dim() < 2 or dim not in (-1, scores.dim() - 1):
            return
        scores = scores.detach()
        if scores.is_inference():
            version = None
            scores = scores.clone()  # changes to it could not be noticed
        else:
            version = scores._version
        trail = Trail(scores, version, scores.shape, depth, module)
        self._tags[id(out)] = _Tag(out, trail, -1, 0)

    def follow(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
    ) -> "tuple[Trail, Product] | None":
        """Take one step; return the product with the values once it is met."""
        hit = next((self._tags[id(x)] for x in _tensors(args, kwargs) if id(x) in self._tags), None)
        if hit is None or not isinstance(out, Tensor) or function in _ENDS:
            return None
        met, found = product(function, args, kwargs, out, hit.tensor, hit.axis)
        if met:
            self._drop(hit.trail)
            return None if found is None else (hit.trail, found)
        # weights that grow have become something else, e.g. gates times what they gate
        if out.is_floating_point() and out.dim() >= 2 and out.numel() <= hit.trail.shape.numel():
            axis = key_axis(function, args, kwargs, out, hit.tensor, hit.axis)
            if axis is not None and hit.steps < _MOST_STEPS:
                self._tags[id(out)] = _Tag(out, hit.trail, axis, hit.steps + 1)
        return None

    def forget(self, depth: int) -> list[Trail]:
        """Let go of every softmax that belongs to a module deeper than `depth`; return them."""
        lost = {id(t.trail): t.trail for t in self._tags.values() if t.trail.depth > depth}
        self.lost += len(lost)
        self._tags = {i: tag for i, tag in self._tags.items() if id(tag.trail) not in lost}
        return list(lost.values())

    def _drop(self, trail: Trail) -> None:
        self._tags = {i: tag for i, tag in self._tags.items() if tag.trail is not trail}


def seen_by_observer(
    trail: Trail,
    found: Product,
    module: torch.nn.Module,
    batch: int | None,
    tokens: Collection[int],
) -> Seen:
    """Return what was observed as a call, with a batch and a head axis.

    `tokens`: how many the module was given, where they may be counted, or nothing. Axes between
    batch and queries are heads if all tokens are queries there; else they are blocks of tokens.
    Raises: PartialError if the values are those of some keys only (one key fewer is a sink);
    ShapeError for blocks.
    """
    if trail.shape[-1] - found.weights.shape[-1] > 1:
        raise PartialError(
            f"a softmax over {trail.shape[-1]} keys met the values of {found.weights.shape[-1]}",
            "Attention by blocks is not recorded",
        )
    lead, queries = found.output.shape[:-2], found.output.shape[-2]
    if len(lead) > 2 and tokens and queries not in tokens:
        raise ShapeError(
            f"weights of {len(lead) + 2} axes have {queries} queries of {max(tokens)} tokens",
            "Attention by blocks is not recorded",
        )
    rows = lead.numel()
    if len(lead) >= 2:
        to = (lead[0], lead[1:].numel())
    elif len(trail.shape) >= 4 and trail.shape[:-2].numel() == rows:
        to = (trail.shape[0], trail.shape[1:-2].numel())  # they were one axis only for the product
    else:
        to = fold(rows, module, batch) if len(lead) else (1, 1)
    scores: Tensor | None = trail.scores
    if trail.version is not None and trail.scores._version != trail.version:
        scores = None  # the model has written over them since
    elif trail.shape[-2:] != found.weights.shape[-2:] or trail.shape[:-2].numel() != rows:
        scores = None  # e.g. the softmax had a sink as one more column
    return Seen(
        route="softmax",
        weights=_shaped(found.weights, lead, to),
        value=_shaped(found.value, lead, to),
        output=_shaped(found.output, lead, to),
        scores=None if scores is None else scores.reshape(*to, *trail.shape[-2:]),
    )


def _shaped(tensor: Tensor, lead: torch.Size, to: tuple[int, int]) -> Tensor:
    tensor = tensor.detach()
    return tensor.expand(*lead, *tensor.shape[-2:]).reshape(*to, *tensor.shape[-2:])


def _tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Tensor]:
    for value in (*args, *kwargs.values()):
        for item in value if isinstance(value, list | tuple) else (value,):
            if isinstance(item, Tensor):
                yield item
