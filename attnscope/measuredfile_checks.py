"""A file of measures may be forged: every field and every tensor is checked before it is used."""

import dataclasses
from typing import cast

import torch
from torch import Tensor

from attnscope.attention.call import AttentionCall
from attnscope.attention.engine import visible as engine_visible
from attnscope.attention.masks import Mask, from_tensor
from attnscope.attention.measured import Measures, histogram
from attnscope.attention.verify import TOLERANCES, ObservedCall
from attnscope.measured_run import MeasuredLayer
from attnscope.recordfile_checks import AxisHeader, rule_called
from attnscope.run import Axis, Settings, Site
from attnscope.text.display import visible

_PARTS = ("", "encoder", "decoder", "cross")
# Measures by row, and those that a file may lack.
BY_ROW = ("logsumexp", "entropy", "largest", "first", "special", "local", "distance", "row_sum")
OPTIONAL = ("special", "map_mean", "map_max", "context")
# Rows whose cells are compared at once.
_ROWS = 256
# A row cannot stand farther from the keys: numbers of places stay far below 64 bits.
_FARTHEST = 1 << 40


def read_axis(header: AxisHeader) -> Axis:
    """Return an axis of the file, every label safe to print. Raises: ValueError."""
    axis = header.axis()
    if not axis.labels or axis.first >= _FARTHEST:
        raise ValueError(f"an axis has {len(axis)} places from {axis.first} on")
    return axis


@dataclasses.dataclass(frozen=True, slots=True)
class SiteHeader:
    """Where a call was made, in the file; `error` is the text of a float: JSON has no NaN."""

    name: str
    layer: int
    part: str
    module_name: str
    nth: int
    route: str
    error: str
    tolerance: float

    def read(self) -> Site:
        """Return the site, every text safe to print. Raises: ValueError."""
        error = float(self.error)
        if error < 0 or self.tolerance not in TOLERANCES.values():
            raise ValueError(f"a call has the error {error}, tolerance {self.tolerance}")
        if self.part not in _PARTS or min(self.layer, self.nth) < 0:
            raise ValueError(f"a call is of layer {self.layer}, part {self.part[:40]!r}")
        name, module, route = (visible(t) for t in (self.name, self.module_name, self.route))
        return Site(name, self.layer, self.part, module, self.nth, route, error, self.tolerance)


@dataclasses.dataclass(frozen=True, slots=True)
class CallHeader:
    """What a kept call has beside its tensors. `visible`: whether its cells are a tensor."""

    observed: bool
    scale: float | None
    softcap: float | None
    query_offset: int
    mask: str
    visible: bool


@dataclasses.dataclass(frozen=True, slots=True)
class LayerHeader:
    """A layer in the file: numbers and names."""

    numbers: tuple[int, ...]
    key_heads: tuple[int, ...]
    nearest: int
    map_cell: tuple[int, int] | None
    site: SiteHeader | None
    call: CallHeader | None


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """What a file's measures were asked with, and how many rows and columns they are of."""

    settings: Settings
    queries: int
    keys: int
    top: int
    window: int
    grid: int | None

    def check(self) -> None:
        """Raise ValueError for what cannot have been asked."""
        if self.top < 0 or self.window < 1 or (self.grid is not None and self.grid < 1):
            raise ValueError(f"measured with {self.top}, {self.window} and {self.grid}")


def read_layer(
    prefix: str, header: LayerHeader, asked: Asked, tensors: dict[str, Tensor]
) -> MeasuredLayer:
    """Return a layer of the file. Raises: ValueError, KeyError."""
    heads, numbers = len(header.numbers), header.numbers
    if not heads or list(numbers) != sorted(set(numbers)) or numbers[0] < 0:
        raise ValueError(f"{prefix} has the heads {numbers[:5]}")
    if numbers[-1] >= asked.settings.heads or len(header.key_heads) != heads:
        raise ValueError(f"{prefix} has other heads than the settings")
    if any(not 0 <= one < asked.settings.heads for one in header.key_heads):
        raise ValueError(f"{prefix} has the key heads {header.key_heads[:5]}")
    measures = _measures(prefix, header, asked, tensors)
    call = None if header.call is None else _call(prefix, header.call, asked, heads, tensors)
    site = None if header.site is None else header.site.read()
    return MeasuredLayer(measures, numbers, header.key_heads, call, site)


def _measures(
    prefix: str, header: LayerHeader, asked: Asked, tensors: dict[str, Tensor]
) -> Measures:
    found: dict[str, Tensor | None] = {}
    for field in dataclasses.fields(Measures):
        if field.name not in ("nearest", "map_cell"):
            name = f"{prefix}.{field.name}"
            found[field.name] = tensors.get(name) if field.name in OPTIONAL else tensors[name]
    measures = Measures(nearest=header.nearest, map_cell=header.map_cell, **found)  # type: ignore[arg-type]
    heads, queries, keys = len(header.numbers), asked.queries, asked.keys
    dtype = measures.entropy.dtype
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"{prefix}.entropy holds {dtype}")
    top = min(asked.top, keys)
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(BY_ROW, (heads, queries))
    shapes |= {"strongest_weights": (heads, queries, top), "distance_profile":
               (heads, queries + keys - 1)}  # fmt: skip
    shapes |= dict.fromkeys(("received", "received_max"), (heads, keys))
    for name, shape in shapes.items():
        if (tensor := getattr(measures, name)) is not None:
            check(f"{prefix}.{name}", tensor, shape, dtype)
    check(f"{prefix}.blind", measures.blind, (heads, queries), torch.bool)
    context = measures.context
    if context is not None:
        check(f"{prefix}.context", context, (heads, queries, context.shape[-1]), dtype)
    _check_places(prefix, measures, (heads, queries, keys), top)
    _check_distances(prefix, measures, asked)
    _check_map(prefix, measures, asked)
    return measures


def _check_places(prefix: str, measures: Measures, sizes: tuple[int, int, int], top: int) -> None:
    heads, queries, keys = sizes
    for name, shape, end in (
        ("largest_key", (heads, queries), keys),
        ("strongest_keys", (heads, queries, top), keys),
        ("received_max_query", (heads, keys), queries),
    ):
        places = getattr(measures, name)
        check(f"{prefix}.{name}", places, shape, torch.int64)
        if bool(((places < -1) | (places >= end)).any()):
            raise ValueError(f"{prefix}.{name} names places that are not there")


def _check_distances(prefix: str, measures: Measures, asked: Asked) -> None:
    nearest, profile = measures.nearest, measures.distance_profile
    # the first row stands at 0 or later
    if not -_FARTHEST < nearest <= 1 - asked.queries:
        raise ValueError(f"{prefix}.nearest is {nearest}")
    bins, edges = histogram(profile, nearest)
    check(f"{prefix}.distance_histogram", measures.distance_histogram, tuple(bins.shape),
          profile.dtype)  # fmt: skip
    check(f"{prefix}.distance_edges", measures.distance_edges, tuple(edges.shape), torch.int64)
    if not torch.equal(measures.distance_edges, edges):
        raise ValueError(f"{prefix}.distance_edges are not 0, 1, 2, 4, …")


def _check_map(prefix: str, measures: Measures, asked: Asked) -> None:
    cell, maps = measures.map_cell, (measures.map_mean, measures.map_max)
    if (asked.grid is None) != (cell is None) or any((cell is None) != (m is None) for m in maps):
        raise ValueError(f"{prefix} has half a map")
    if cell is None or asked.grid is None:
        return
    if cell != (-(-asked.queries // asked.grid), -(-asked.keys // asked.grid)):
        raise ValueError(f"{prefix} has cells of {cell}")
    heads = measures.entropy.shape[0]
    shape = (heads, -(-asked.queries // cell[0]), -(-asked.keys // cell[1]))
    for name, tensor in zip(("map_mean", "map_max"), maps, strict=True):
        check(f"{prefix}.{name}", cast(Tensor, tensor), shape, measures.entropy.dtype)


def _call(
    prefix: str, header: CallHeader, asked: Asked, heads: int, tensors: dict[str, Tensor]
) -> AttentionCall | ObservedCall:
    record: AttentionCall | ObservedCall
    if header.observed:
        scores = tensors.get(f"{prefix}.call.scores")
        weights, value = (tensors[f"{prefix}.call.{name}"] for name in ("weights", "value"))
        _floating(prefix, weights, value, *([] if scores is None else [scores]))
        record = ObservedCall(weights, value, scores)
        shape = (heads, asked.queries, asked.keys)
        for one in (weights, *([] if scores is None else [scores])):
            check(f"{prefix}.call", one, shape, one.dtype)
        check(f"{prefix}.call.value", value, (heads, asked.keys, value.shape[-1]), value.dtype)
    else:
        record = _scored(prefix, header, tensors)
    if (record.heads, record.queries, record.keys) != (heads, asked.queries, asked.keys):
        raise ValueError(f"{prefix} has a call of other heads, queries or keys")
    return record


def _scored(prefix: str, header: CallHeader, tensors: dict[str, Tensor]) -> AttentionCall:
    query, key, value = (tensors[f"{prefix}.call.{name}"] for name in ("query", "key", "value"))
    bias, sinks = (tensors.get(f"{prefix}.call.{name}") for name in ("bias", "sinks"))
    _floating(prefix, query, key, value, *(one for one in (bias, sinks) if one is not None))
    if header.scale is None or (header.softcap is not None and header.softcap <= 0):
        raise ValueError(f"{prefix} has scale {header.scale} and softcap {header.softcap}")
    if not 0 <= header.query_offset < _FARTHEST:
        raise ValueError(f"{prefix}.query_offset is {header.query_offset}")
    call = AttentionCall(
        query,
        key,
        value,
        scale=header.scale,
        bias=bias,
        softcap=header.softcap,
        sinks=sinks,
        query_offset=header.query_offset,
    )
    return dataclasses.replace(call, mask=_mask(prefix, header, call, tensors))


def _mask(prefix: str, header: CallHeader, call: AttentionCall, tensors: dict[str, Tensor]) -> Mask:
    rule = rule_called(header.mask)
    if (rule is None) != header.visible:
        raise ValueError(f"{prefix} has the mask {header.mask[:40]!r}, whose cells are not its own")
    if rule is not None:
        return rule
    seen = tensors[f"{prefix}.call.visible"]
    cells = (seen.shape[0] if seen.dim() == 3 and seen.shape[0] == 1 else call.heads,
             call.queries, call.keys)  # fmt: skip
    check(f"{prefix}.call.visible", seen, cells, torch.bool)
    return from_tensor(seen, query_offset=header.query_offset, name=visible(header.mask))


def says_all(call: AttentionCall) -> bool:
    """Return whether the name of a call's mask says what it lets see."""
    mask, rule = call.mask, rule_called(call.mask.name)
    if rule is None or rule.reach != mask.reach:
        return False
    if rule.reach.filled:
        return True  # both promise the same cells
    for start in range(0, call.queries, _ROWS):
        rows = slice(start, start + _ROWS)
        first = start + call.query_offset
        keys = slice(
            int(min(max(first + rule.reach.first, 0), call.keys)),
            int(min(max(first + _ROWS + rule.reach.last, 0), call.keys)),
        )
        seen = engine_visible(call, rows, keys)
        named = engine_visible(dataclasses.replace(call, mask=rule), rows, keys)
        if not torch.equal(named.expand(seen.shape), seen):
            return False
    return True


def _floating(prefix: str, *tensors: Tensor) -> None:
    for tensor in tensors:
        if tensor.dtype not in TOLERANCES:
            raise ValueError(f"{prefix} has a call of {tensor.dtype}")


def check(name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Raise ValueError unless a tensor has this shape and this type."""
    if tuple(tensor.shape) != shape or tensor.dtype != dtype:
        raise ValueError(
            f"{name} is {tensor.dtype} of {tuple(tensor.shape)}, not {dtype} of {shape}"
        )
