"""What the rows of a measured head say together, and how one row is put into words."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnscope.attention.measured import Measures, effective_keys, quantiles
from attnscope.measured_run import MeasuredLayer, MeasuredRun
from attnscope.run import Axis
from attnscope.views.look import Look

if TYPE_CHECKING:
    from torch import Tensor

QUANTILES = (0.05, 0.5, 0.95)
# How far from 1 a row may add up by rounding alone, in float32 and in float64.
_ROUNDING = {4: 1e-4, 8: 1e-10}


@dataclass(frozen=True, slots=True)
class Spread:
    """A measure over the rows that see a key: its mean, and its values at QUANTILES."""

    mean: float
    quantiles: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Received:
    """A key, by its place, and the weight that it gets: of all queries, and the most of one."""

    key: int
    total: float
    most: float
    query: int  # the place of the query that gives the most; −1: none does


def numbers_by_row(measures: Measures) -> "dict[str, Tensor]":
    """Return the measures that every row has, in the order in which they are shown.

    Shapes: (heads, queries) each. `special` is there only if special tokens are known.
    """
    numbers = {
        "entropy": measures.entropy,
        "effective_keys": effective_keys(measures.entropy),
        "largest": measures.largest,
        "first": measures.first,
        "special": measures.special,
        "local": measures.local,
        "distance": measures.distance,
        "row_sum": measures.row_sum,
    }
    return {name: tensor for name, tensor in numbers.items() if tensor is not None}


def spreads(measures: Measures, place: int) -> dict[str, Spread]:
    """Return mean and quantiles of each measure of a head; NaN if no row sees a key."""
    blind = measures.blind[place : place + 1]
    found = {}
    for name, numbers in numbers_by_row(measures).items():
        own = numbers[place : place + 1]
        mean = float(own[~blind].double().mean())
        at = quantiles(own, blind, QUANTILES)[0].tolist()
        found[name] = Spread(mean, tuple(at))
    return found


def most_received(measures: Measures, place: int, most: int) -> list[Received]:
    """Return the keys of a head that get the most weight of all queries; a NaN comes first."""
    received = measures.received[place]
    found = []
    for key in received.argsort(descending=True, stable=True)[:most].tolist():
        total = float(received[key])
        if total != 0.0:
            largest = float(measures.received_max[place, key])
            query = int(measures.received_max_query[place, key])
            found.append(Received(key, total, largest, query))
    return found


def bins_of_distance(measures: Measures, place: int) -> list[tuple[str, float]]:
    """Return the distances of each bin as text, and which part of all weight lies in it."""
    weights = measures.distance_histogram[place].double()
    edges = measures.distance_edges.tolist()
    farthest = max(abs(measures.nearest), measures.nearest + measures.distance_profile.shape[1] - 1)
    ends = [*(edge - 1 for edge in edges[1:]), farthest]
    names = [
        f"{start:,}" if start == end else f"{start:,}–{end:,}"
        for start, end in zip(edges, ends, strict=True)
    ]
    total = float(weights.sum())
    shares = weights / total if total != 0.0 else weights
    return list(zip(names, shares.tolist(), strict=True))


def strongest_of_row(measures: Measures, place: int, row: int) -> list[tuple[int, float]]:
    """Return the places of the strongest keys of a row, and their weights, largest first.

    Where none were kept, the largest alone.
    """
    if measures.strongest_keys.shape[-1] == 0:
        found = [(int(measures.largest_key[place, row]), float(measures.largest[place, row]))]
    else:
        keys = measures.strongest_keys[place, row].tolist()
        found = list(zip(keys, measures.strongest_weights[place, row].tolist(), strict=True))
    return [(key, weight) for key, weight in found if key >= 0]


def named(axis: Axis, place: int) -> str:
    """Return the position of a place and its label: "7 is"."""
    return f"{axis.first + place} {axis.labels[place]}"


def titles(run: MeasuredRun) -> dict[str, str]:
    """Return the name that a person reads of each measure of a row, in the order shown."""
    return {
        "entropy": "entropy (nats)",
        "effective_keys": "effective keys, exp(entropy)",
        "largest": "largest weight",
        "first": f"weight of the first key, {named(run.keys, 0)}",
        "special": "weight of special tokens",
        "local": f"weight less than {run.window} away",
        "distance": "mean distance",
    }


def where(run: MeasuredRun, index: int, place: int | None = None) -> str:
    """Return the end of a title: the layer, and the head, each where there are several."""
    layer = run.layers[index]
    text = ""
    if layer.site is not None and len(run.layers) > 1:
        text += f" · layer {layer.site.name}"
    if place is not None and run.settings.heads > 1:
        text += f" · head {layer.numbers[place]}"
    return text


def position(axis: Axis, place: int) -> int | None:
    """Return the position of a place; None for −1, which is none."""
    return axis.first + place if place >= 0 else None


def places_shown(layer: MeasuredLayer, look: Look) -> list[int]:
    """Return where the heads to show stand in the measures of a layer."""
    if look.head is None:
        return list(range(len(layer.numbers)))
    place = layer.place(look.head)
    return [] if place is None else [place]


def sums_of_rows(measures: Measures, places: list[int]) -> tuple[float, float, float, float]:
    """Return the least and the greatest sum, the largest |sum − 1|, and what rounding explains.

    Over the rows that see a key: NaN if a sum is, or if there is no such row.
    """
    sums = measures.row_sum[places][~measures.blind[places]].double()
    rounding = _ROUNDING[measures.row_sum.dtype.itemsize]
    if sums.numel() == 0:
        return math.nan, math.nan, math.nan, rounding
    return float(sums.min()), float(sums.max()), float((sums - 1).abs().max()), rounding
