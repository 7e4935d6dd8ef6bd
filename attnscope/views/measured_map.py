"""The map of a MeasuredRun as a Run whose cells are blocks, for every view that draws weights."""

import dataclasses
import math
from typing import TYPE_CHECKING

from attnscope.attention.call import AttentionCall
from attnscope.attention.engine import MaskMethod, Steps
from attnscope.attention.masks import CAUSAL, Reach, from_tensor
from attnscope.attention.measured import Measures
from attnscope.attention.measures import strongest
from attnscope.attention.result import STRONGEST, AttentionResult
from attnscope.errors import OptionError
from attnscope.measured_run import MeasuredLayer, MeasuredRun
from attnscope.run import Axis, Run
from attnscope.views.look import Look

if TYPE_CHECKING:
    from torch import Tensor

# What a cell can show, and what that is.
MAPS = {
    "largest": "the largest weight that a query of the block gives to a key of it",
    "share": "how much of its weight a query gives to all keys of the block together, in the mean "
    "over the block's queries",
}

# What rounding may make of 1.
_BARELY = 1.0 + 1e-4


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class MapRun(Run):
    """A Run of maps: `names` are those of its layers, e.g. "16 · largest"."""

    names: tuple[str, ...] = ()

    def layer_name(self, index: int) -> str:
        """Return the name of a layer and of what its cells show."""
        return self.names[index]


def map_run(run: MeasuredRun, maps: tuple[str, ...] = tuple(MAPS)) -> MapRun:
    """Return the maps of a measured run: one layer for each attention call and each of `maps`.

    A block is hidden if the mask hides all of it. What a block has not (omegas, context, entropy)
    is NaN. If some heads were measured, each keeps its number, and those between are hidden:
    `look_at_map` chooses the one that is there.
    Raises: OptionError if no map was made.
    """
    cell = next((layer.measures.map_cell for layer in run.layers), None)
    if cell is None:
        raise OptionError("this run was measured without a map", "Measure it again with one")
    rows, columns = cell
    queries = _grouped(run.queries, rows)
    keys = queries if not run.crossed and rows == columns else _grouped(run.keys, columns)
    results, names, sites = [], [], []
    for i, layer in enumerate(run.layers):
        for name in maps:
            results.append(_result(run, layer, name))
            names.append(f"{run.layer_name(i)} · {name}" if len(run.layers) > 1 else name)
            if layer.site is not None:
                names[-1] = f"{layer.site.name} · {name}"
                sites.append(dataclasses.replace(layer.site, name=names[-1]))
    variant = f"map of {run.settings.variant}"
    return MapRun(
        dataclasses.replace(run.settings, variant=variant),
        queries,
        keys,
        tuple(results),
        warnings=run.warnings,
        notes=(*_explained(run, cell, maps), *run.notes),
        provenance=run.provenance,
        sites=tuple(sites),
        names=tuple(names),
    )


def look_at_map(run: MeasuredRun, look: Look) -> Look:
    """Return how to show the map: all of its rows, and the head if only one was measured."""
    numbers = {number for layer in run.layers for number in layer.numbers}
    head = look.head
    if head is None and len(numbers) == 1:
        (head,) = numbers
    return dataclasses.replace(look, queries=None, head=head)


def _explained(run: MeasuredRun, cell: tuple[int, int], maps: tuple[str, ...]) -> list[str]:
    of = f"{len(run.queries):,} queries × {len(run.keys):,} keys"
    lines = [f"a map of {of}: each cell is a block of up to {cell[0]} queries × {cell[1]} keys"]
    return [*lines, *(f"{name}: {MAPS[name]}" for name in maps)]


def _grouped(axis: Axis, block: int) -> Axis:
    """Return an axis with one place for each block of places: "0–511 The"."""
    labels = []
    for start in range(0, len(axis), block):
        first, last = axis.first + start, axis.first + min(start + block, len(axis)) - 1
        places = f"{first}" if first == last else f"{first}–{last}"
        word = "" if axis.tokens is None else f" {axis.labels[start]}"
        labels.append(places + word)
    return Axis(tuple(labels))


def _result(run: MeasuredRun, layer: MeasuredLayer, name: str) -> AttentionResult:
    measures = layer.measures
    assert measures.map_mean is not None
    assert measures.map_max is not None
    seen = _seen(run, layer, measures.map_max)
    numbers = measures.map_max if name == "largest" else _shares(measures, len(run.keys))
    weights = numbers.new_zeros(max(layer.numbers) + 1, *numbers.shape[1:])
    visible = seen.new_zeros(weights.shape)
    heads = list(layer.numbers)
    # sums in float32 may be a last digit off: no colour is for a weight above 1
    numbers = numbers.masked_fill((numbers > 1.0) & (numbers < _BARELY), 1.0)
    weights[heads], visible[heads] = numbers.masked_fill(~seen, 0.0), seen
    return _blank(weights, visible, run.settings.scale)


def _shares(measures: Measures, keys: int) -> "Tensor":
    """Return the weight that goes to all keys of each block, in the mean over its queries."""
    mean, cell = measures.map_mean, measures.map_cell
    assert mean is not None
    assert cell is not None
    starts = range(0, keys, cell[1])
    widths = mean.new_tensor([min(cell[1], keys - start) for start in starts])
    return mean * widths


def _seen(run: MeasuredRun, layer: MeasuredLayer, largest: "Tensor") -> "Tensor":
    """Return which blocks hold a cell that may be seen, as far as the mask's reach tells.

    Shapes: (heads, rows, columns) -> the same, bool.
    """
    measures, cell = layer.measures, layer.measures.map_cell
    assert cell is not None
    reach = CAUSAL.reach if run.settings.causal else Reach()
    if isinstance(layer.call, AttentionCall):
        reach = layer.call.mask.reach
    offset = -measures.nearest - (len(run.queries) - 1)  # the position of the first row
    rows = [start + offset for start in range(0, len(run.queries), cell[0])]
    ends = [min(row + cell[0], offset + len(run.queries)) - 1 for row in rows]
    keys = list(range(0, len(run.keys), cell[1]))
    lasts = [min(key + cell[1], len(run.keys)) - 1 for key in keys]
    like = largest.new_zeros((), dtype=measures.largest_key.dtype)
    first, last = like.new_tensor(rows)[:, None], like.new_tensor(ends)[:, None]
    near = like.new_tensor(keys) <= last + reach.last
    near &= like.new_tensor(lasts) >= first + reach.first
    # a number other than 0 was seen, whatever is known of the mask
    return near | (largest != 0)


def _blank(weights: "Tensor", visible: "Tensor", scale: float) -> AttentionResult:
    """Return a result that has weights and nothing else: a block has no query and no key."""
    heads, rows, columns = weights.shape
    unknown = weights.new_full(weights.shape, math.nan)
    call = AttentionCall(
        weights.new_zeros(heads, rows, 1),
        weights.new_zeros(heads, columns, 1),
        weights.new_zeros(heads, columns, 1),
        scale=scale,
        mask=from_tensor(visible, name="map"),
    )
    steps = Steps(
        visible=visible,
        scores=unknown,
        scaled=unknown,
        logits=unknown.masked_fill(~visible, -math.inf),
        weights=weights,
        context=weights.new_full((heads, rows, 1), math.nan),
        logsumexp=weights.new_full((heads, rows), math.nan),
        mask_steps=None,
    )
    values, keys = strongest(weights, visible, STRONGEST)
    entropy = weights.new_full((heads, rows), math.nan)
    return AttentionResult(call, MaskMethod.NEG_INF, steps, entropy, values, keys, None)
