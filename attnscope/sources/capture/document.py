"""Captured calls as the document that is shown: names, tokens, proofs."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import Module

from attnscope.attention.norms import projected_lengths
from attnscope.attention.verify import TOLERANCES, CapturedCall, ObservedCall
from attnscope.model_run import ModelCall, ModelRun
from attnscope.run import Axis, Site, axis_of_positions
from attnscope.sources.capture.assemble import Assembly, Proven
from attnscope.sources.capture.output_projection import CallKey, call_key
from attnscope.sources.provenance import provenance

_MOST_OF_A_ROW = 1.05  # in half types rounding takes a row that far above 1, and no further


@dataclass(frozen=True, slots=True)
class TextAxes:
    """The tokens that a text's calls are about; None: not known, and places are numbered."""

    queries: Axis | None = None
    source: Axis | None = None


@dataclass(slots=True)
class _Axes:
    """Finds the axis of rows and of columns, the same object for the same tokens."""

    text: TextAxes
    numbered: dict[tuple[str, int, int], Axis] = field(default_factory=dict)
    odd: list[str] = field(default_factory=list)

    def of(self, captured: CapturedCall, part: str) -> tuple[Axis, Axis]:
        """Return (queries, keys) of a call."""
        rows, columns = captured.call.queries, captured.call.keys
        own = self.text.source if part == "encoder" else self.text.queries
        other = self.text.source if captured.kind == "cross" else own
        if own is not None and len(own) == rows and captured.query_offset == 0:
            queries = own
        else:
            queries = self._number("q", captured.query_offset, rows)
        if other is not None and len(other) == columns and captured.key_offset == 0:
            return queries, other
        if other is not None:
            self.odd.append(captured.module_name)
        if other is None and captured.kind == "self" and _same_places(captured):
            return queries, queries
        return queries, self._number("k", captured.key_offset, columns)

    def _number(self, prefix: str, offset: int, count: int) -> Axis:
        key = (prefix, offset, count)
        if key not in self.numbered:
            labels = tuple(f"{prefix}{offset + i}" for i in range(count))
            self.numbered[key] = axis_of_positions(prefix, count) if not offset else Axis(labels)
        return self.numbered[key]


def _same_places(captured: CapturedCall) -> bool:
    return (captured.call.queries, captured.query_offset) == (
        captured.call.keys,
        captured.key_offset,
    )


def model_run(
    model: str,
    records: Sequence[Proven],
    text: TextAxes = TextAxes(),
    *,
    without: Sequence[str] = (),
    skipped: Sequence[str] = (),
    notes: Sequence[str] = (),
    projections: Mapping[CallKey, Tensor] | None = None,
) -> ModelRun:
    """Return the records of one text as a document. `records` is not empty.

    `projections` are the matrices W_O, of the calls where they were found.
    """
    axes = _Axes(text)
    parts = _parts([record.captured for record in records])
    names = _names([record.captured for record in records], parts)
    calls, warnings = [], []
    for record, part, name in zip(records, parts, names, strict=True):
        captured = record.captured
        site = Site(
            name=name,
            layer=captured.layer,
            part=part,
            module_name=captured.module_name,
            nth=captured.nth,
            route=captured.route,
            error=record.error,
            tolerance=TOLERANCES[captured.output.dtype],
        )
        lengths = _projected(captured, projections or {})
        calls.append(ModelCall(site, captured, *axes.of(captured, part), lengths))
        warnings += _doubts(site, captured)
    said = [*notes]
    if axes.odd:
        said.append(f"keys of {_some(axes.odd)} are not the text's tokens: they are numbered")
    queries = text.queries or calls[-1].queries
    return ModelRun(
        model,
        queries,
        tuple(calls),
        text.source,
        tuple(without),
        tuple(skipped),
        tuple(said),
        tuple(warnings),
        provenance(records[0].captured.output),
    )


class Captured(Protocol):
    """What a capture has heard."""

    calls: list[CapturedCall]
    skipped: list[str]
    model: Module

    @property
    def without(self) -> list[str]:
        """The blocks that have no attention."""


def runs_of(capture: Captured) -> list[ModelRun]:
    """Return what a capture kept, one document per text and per forward that began anew."""
    assembly = Assembly()
    for call in capture.calls:
        assembly.take(call)
    name = type(capture.model).__name__
    skipped = dict.fromkeys(capture.skipped)
    return [
        model_run(name, records, without=capture.without, skipped=tuple(skipped))
        for _, records in assembly.texts()
    ]


def _projected(captured: CapturedCall, projections: Mapping[CallKey, Tensor]) -> Tensor | None:
    projection = projections.get(call_key(captured))
    if projection is None:
        return None
    call = captured.call
    return projected_lengths(call.value, projection, call.heads)


def _doubts(site: Site, captured: CapturedCall) -> list[str]:
    if site.proven and not captured.unknown:
        return _changed(site, captured)
    if captured.dropout:
        return [
            f"layer {site.name}: dropout {captured.dropout:g} was on, so the weights shown are "
            "those before it and cannot be proven. Call model.eval() first"
        ]
    found = []
    if not site.proven:
        found.append(
            f"layer {site.name}: the record does not reproduce the model's own output: relative "
            f"error {'NaN' if math.isnan(site.error) else f'{site.error:.2g}'}, tolerance "
            f"{site.tolerance:g}"
        )
    if captured.unknown:
        found.append(
            f"layer {site.name}: its implementation was given {', '.join(captured.unknown)}, "
            "which the record does not hold"
        )
    return found


def _changed(site: Site, captured: CapturedCall) -> list[str]:
    """Say if rows of observed weights add to more than 1: they are used as they are shown."""
    call = captured.call
    # one number that stands for all says nothing: of a long text the weights were let go
    if not isinstance(call, ObservedCall) or call.weights.stride() == (0, 0, 0):
        return []
    most = float(call.weights.sum(dim=-1, dtype=torch.float32).max())
    if not most > _MOST_OF_A_ROW:
        return []
    return [
        f"layer {site.name}: rows of its weights add to as much as {most:.3g}: the model changed "
        "them after the softmax. If it is dropout, call model.eval() first"
    ]


def _parts(calls: Sequence[CapturedCall]) -> list[str]:
    if all(call.kind == "self" for call in calls):
        return [""] * len(calls)
    return [part_of(call) for call in calls]


def part_of(call: CapturedCall) -> str:
    """Return whether a call is of the encoder, the decoder, or between both."""
    if call.kind == "cross":
        return "cross"
    words = re.split(r"[._]", call.module_name)
    return "encoder" if "encoder" in words and "decoder" not in words else "decoder"


def _names(calls: Sequence[CapturedCall], parts: Sequence[str]) -> list[str]:
    """Name each call by its layer; where that is not enough, by its module and turn."""
    plain = [
        f"{part}.{call.layer}" if part else str(call.layer)
        for call, part in zip(calls, parts, strict=True)
    ]
    count = Counter(plain)
    modules: dict[str, set[str]] = {}
    for name, call in zip(plain, calls, strict=True):
        modules.setdefault(name, set()).add(call.module_name)
    names = []
    for name, call in zip(plain, calls, strict=True):
        if count[name] == 1:
            names.append(name)
        elif len(modules[name]) == 1:
            names.append(f"{name}#{call.nth}")
        else:
            names.append(call.module_name + (f"#{call.nth}" if call.nth else ""))
    return names


def _some(names: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(names))
    more = f" and {len(distinct) - 3} more" if len(distinct) > 3 else ""
    return ", ".join(distinct[:3]) + more
