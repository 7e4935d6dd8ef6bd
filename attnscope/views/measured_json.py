"""A MeasuredRun as strict JSON: its measures in arrays."""

import dataclasses
from typing import TYPE_CHECKING, Any

from attnscope.attention.weight_windows import window_weights
from attnscope.measured_run import MeasuredLayer, MeasuredRun
from attnscope.run import Axis
from attnscope.views.json_text import VERSION, axis_document, dump, site_document, text_of
from attnscope.views.look import Look
from attnscope.views.measured_summary import (
    QUANTILES,
    numbers_by_row,
    places_shown,
    position,
    spreads,
)
from attnscope.views.survey_parts import finite

if TYPE_CHECKING:
    from torch import Tensor


def render_measured(run: MeasuredRun, look: Look) -> str:
    """Return a measured run as one JSON document and a newline."""
    return dump(measured_document(run, look))


def measured_document(run: MeasuredRun, look: Look) -> dict[str, Any]:
    """Return a measured run as a JSON-ready dict; arrays are numpy's."""
    rows = list(look.rows(len(run.queries)))
    return {
        "schema": "attnscope.measures",
        "version": VERSION,
        "settings": dataclasses.asdict(run.settings),
        "measured": {"top": run.top, "window": run.window, "grid": run.grid},
        "queries": measured_axis(run.queries),
        "keys": measured_axis(run.keys) if run.crossed else None,
        "rows": [position(run.queries, row) for row in rows],
        "layers": [
            {
                "name": run.layer_name(i),
                "site": None if layer.site is None else site_document(layer.site),
                "heads": _heads(run, layer, rows, look),
            }
            for i, layer in enumerate(run.layers)
        ],
        "warnings": list(run.warnings),
        "notes": list(run.notes),
        "provenance": run.provenance,
    }


def measured_axis(axis: Axis) -> dict[str, Any]:
    """Return what rows or columns stand for: how many, from which position on, and the words."""
    return {
        "count": len(axis),
        "first": axis.first,
        "text": text_of(axis),
        "tokens": None if axis.tokens is None else axis_document(axis),
    }


def _heads(
    run: MeasuredRun, layer: MeasuredLayer, rows: list[int], look: Look
) -> list[dict[str, Any]]:
    places = places_shown(layer, look)
    weights = None
    if layer.call is not None and len(rows) == 1 and places:
        row = slice(rows[0], rows[0] + 1)
        weights, _ = window_weights(layer.call, row, slice(None))
    documents = []
    for place in places:
        document = _head(run, layer, place, rows)
        if weights is not None:
            document["weights"] = array_of(weights[place, 0])
            document["nonfinite"] += count_nonfinite(weights[place, 0])
        documents.append(document)
    return documents


def _head(run: MeasuredRun, layer: MeasuredLayer, place: int, rows: list[int]) -> dict[str, Any]:
    measures = layer.measures
    by_row = {name: numbers[place, rows] for name, numbers in numbers_by_row(measures).items()}
    blind, sums = measures.blind[place, rows], measures.logsumexp[place, rows]
    strongest = measures.strongest_weights[place, rows]
    by_key = {"received": measures.received[place], "received_max": measures.received_max[place]}
    bins = measures.distance_histogram[place]
    # the log-sum-exp of a row that sees nothing is −inf, which is no accident
    counted = [*by_row.values(), *by_key.values(), sums[~blind], strongest, bins]
    maps = _map(measures.map_cell, measures.map_mean, measures.map_max, place)
    if measures.map_mean is not None and measures.map_max is not None:
        counted += [measures.map_mean[place], measures.map_max[place]]
    found = spreads(measures, place)
    return {
        "head": layer.numbers[place],
        "key_head": layer.key_heads[place],
        **{name: array_of(numbers) for name, numbers in by_row.items()},
        "logsumexp": array_of(sums),
        "blind": array_of(blind),
        "largest_key": positions_of(run.keys, measures.largest_key[place, rows]),
        "strongest_keys": [
            positions_of(run.keys, keys) for keys in measures.strongest_keys[place, rows]
        ],
        "strongest_weights": array_of(strongest),
        **{name: array_of(numbers) for name, numbers in by_key.items()},
        "received_max_query": positions_of(run.queries, measures.received_max_query[place]),
        "mean": {name: finite(spread.mean) for name, spread in found.items()},
        "quantiles": {
            "at": list(QUANTILES),
            **{name: [finite(one) for one in spread.quantiles] for name, spread in found.items()},
        },
        "rows_that_see": int((~measures.blind[place]).sum()),
        "histogram": {"edges": measures.distance_edges.tolist(), "weight": array_of(bins)},
        "map": maps,
        "nonfinite": sum(count_nonfinite(numbers) for numbers in counted),
    }


def _map(
    cell: tuple[int, int] | None, mean: "Tensor | None", most: "Tensor | None", place: int
) -> dict[str, Any] | None:
    if cell is None or mean is None or most is None:
        return None
    return {"cell": list(cell), "mean": array_of(mean[place]), "max": array_of(most[place])}


def positions_of(axis: Axis, places: "Tensor") -> list[int | None]:
    """Return the positions of places; null for −1."""
    return [position(axis, place) for place in places.tolist()]


def count_nonfinite(numbers: "Tensor") -> int:
    """Return how many numbers JSON has no way to write."""
    return int((~numbers.isfinite()).sum())


def array_of(numbers: "Tensor") -> Any:
    """Return a tensor as numpy's array; what is not finite is written as null."""
    return numbers.detach().cpu().contiguous().numpy()
