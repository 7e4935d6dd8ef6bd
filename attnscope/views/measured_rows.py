"""Measures of rows, one query and head a line: NDJSON, which streams, and CSV."""

import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from attnscope.attention.measured import Measures
from attnscope.measured_run import MeasuredLayer, MeasuredRun
from attnscope.run import Axis, Settings
from attnscope.views.json_text import VERSION, dump
from attnscope.views.look import Look
from attnscope.views.measured_json import array_of, measured_axis
from attnscope.views.measured_summary import (
    numbers_by_row,
    places_shown,
    position,
    strongest_of_row,
)
from attnscope.views.survey_parts import csv_of, exact

if TYPE_CHECKING:
    from torch import Tensor

_BY_ROW = ("logsumexp", "entropy", "effective_keys", "largest", "first", "special", "local",
           "distance", "row_sum")  # fmt: skip


def header_line(
    settings: Settings,
    queries: Axis,
    keys: Axis,
    *,
    top: int,
    window: int,
    provenance: dict[str, str] | None = None,
) -> str:
    """Return the first line of an NDJSON stream: what the rows that follow are of."""
    return dump(
        {
            "schema": "attnscope.measured-rows",
            "version": VERSION,
            "settings": dataclasses.asdict(settings),
            "measured": {"top": top, "window": window},
            "queries": measured_axis(queries),
            "keys": None if keys is queries else measured_axis(keys),
            "provenance": provenance or {},
        }
    )


def rows_as_ndjson(
    layer: MeasuredLayer, queries: Axis, keys: Axis, name: str = "0"
) -> Iterator[str]:
    """Yield a line per query and head of a layer, or of a block of its rows, query by query.

    `queries` are the rows that the measures have: `queries.first` says where the block stands.
    `name`: of the layer, where it has no site.
    """
    name = name if layer.site is None else layer.site.name
    measures = layer.measures
    arrays = {name: array_of(tensor) for name, tensor in _by_row(measures).items()}
    weights = array_of(measures.strongest_weights)
    for row in range(len(queries)):
        for place, head in enumerate(layer.numbers):
            numbers = {name: array[place, row] for name, array in arrays.items()}
            tops = [key for key in measures.strongest_keys[place, row].tolist() if key >= 0]
            blind, largest = bool(measures.blind[place, row]), int(measures.largest_key[place, row])
            shown = weights[place, row, : len(tops)]
            # the log-sum-exp of a row that sees nothing is −inf, which is no accident
            finite = [math.isfinite(n) for n in numbers.values()][1 if blind else 0 :]
            yield dump(
                {
                    "layer": name,
                    "head": head,
                    "key_head": layer.key_heads[place],
                    "query": queries.first + row,
                    "label": queries.labels[row],
                    **numbers,
                    "largest_key": position(keys, largest),
                    "blind": blind,
                    "strongest_keys": [keys.first + key for key in tops],
                    "strongest_labels": [keys.labels[key] for key in tops],
                    "strongest_weights": shown,
                    "nonfinite": finite.count(False) + sum(not math.isfinite(n) for n in shown),
                }
            )


def csv_of_measured(run: MeasuredRun, look: Look) -> str:
    """Return a line per layer, head and query: all measures of the row, and its strongest keys."""
    header = ["layer", "head", "key_head", "query", "label", *_BY_ROW]
    header += ["largest_key", "largest_key_label", "blind"]
    count = max((layer.measures.strongest_keys.shape[-1] for layer in run.layers), default=0)
    for i in range(1, count + 1):
        header += [f"key_{i}", f"key_{i}_label", f"weight_{i}"]
    return csv_of(header, _csv_rows(run, look, count))


def _csv_rows(run: MeasuredRun, look: Look, count: int) -> Iterator[list[object]]:
    for i, layer in enumerate(run.layers):
        keys = run.keys
        numbers = {name: tensor.tolist() for name, tensor in _by_row(layer.measures).items()}
        for place in places_shown(layer, look):
            for row in look.rows(len(run.queries)):
                largest = int(layer.measures.largest_key[place, row])
                cells: list[object] = [run.layer_name(i), layer.numbers[place]]
                cells += [layer.key_heads[place], run.queries.first + row, run.queries.labels[row]]
                cells += [
                    exact(numbers[name][place][row]) if name in numbers else "" for name in _BY_ROW
                ]
                cells += _key_cells(keys, largest)
                cells.append(str(bool(layer.measures.blind[place, row])).lower())
                tops = strongest_of_row(layer.measures, place, row)[:count]
                for key, weight in tops:
                    cells += [*_key_cells(keys, key), exact(weight)]
                yield [*cells, *[""] * (3 * (count - len(tops)))]


def _key_cells(keys: Axis, place: int) -> list[object]:
    return ["", ""] if place < 0 else [keys.first + place, keys.labels[place]]


def _by_row(measures: Measures) -> "dict[str, Tensor]":
    """Return every measure of a row that is a number, log-sum-exp first."""
    numbers = {"logsumexp": measures.logsumexp, **numbers_by_row(measures)}
    return {name: numbers[name] for name in _BY_ROW if name in numbers}
