"""A long text through a loaded model: each call measured as it is made, and let go.

Memory does not grow with the layers: of the calls that were asked for their measures stay, of the
others only that they were made.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace

import torch

from attnscope.attention.call import AttentionCall
from attnscope.attention.gathered import with_rule
from attnscope.attention.head_choice import chosen_captured
from attnscope.attention.head_scores import prove
from attnscope.attention.measured import MeasureOptions, Measures
from attnscope.attention.memory import Budget
from attnscope.attention.result import AttentionResult
from attnscope.attention.row_choice import captured_rows, rows_that_see
from attnscope.attention.stripes import measure
from attnscope.attention.verify import CapturedCall, output_error
from attnscope.measured_run import MeasuredLayer, MeasuredRun
from attnscope.model_run import ModelCall, ModelRun
from attnscope.run import Axis, Run, axis_of_positions, axis_of_tokens, part_of_axis
from attnscope.sources.capture import capture
from attnscope.sources.capture.assemble import Proven
from attnscope.sources.capture.document import model_run
from attnscope.sources.measured import (
    MeasureAsked,
    RowWarnings,
    check_room,
    check_window,
    checked_window,
    measured,
    window_note,
    window_warnings,
)
from attnscope.sources.model.batch import batch, forward
from attnscope.sources.model.loaded import LoadedModel
from attnscope.sources.model.sides import CallKey, Sides, key_of, outline, sides_of
from attnscope.sources.model.survey import sketch_of
from attnscope.text.tokens import Tokens

Report = Callable[[str, float | None], None]
Take = Callable[[CapturedCall, Sides], float]


@dataclass(slots=True, eq=False)
class _Listener:
    """Takes the calls of one forward; `take` proves what is kept of a call."""

    take: Take
    wanted: Collection[CallKey] | None
    report: Report
    found: dict[CallKey, Proven] = field(default_factory=dict)

    def run(self, loaded: LoadedModel, texts: tuple[Tokens, Tokens | None]) -> ModelRun:
        """Run a text, and its target, and return the calls that were wanted, without vectors."""
        source, target = texts
        batched = batch(loaded, [source], None if target is None else [target])
        sides = sides_of(batched)

        def on_call(captured: CapturedCall) -> None:
            key, error = key_of(captured), 0.0
            if self.wanted is None or key in self.wanted:
                self.report(f"layer {captured.layer}", None)
                captured = replace(captured, call=with_rule(captured.call))
                error = self.take(captured, sides)
            else:  # it tells which part of a model the others are, and is left out in the end
                captured = replace(captured, unknown=())
            self.found[key] = Proven(outline(captured), error)

        with capture(loaded.model, on_call=on_call) as cap:
            forward(loaded, batched)
        cap.require()
        document = model_run(
            loaded.name,
            list(self.found.values()),
            sides.axes(),
            without=cap.without,
            skipped=cap.skipped,
            notes=loaded.notes,
        )
        if self.wanted is None:
            return document
        return document.only([c for c in document.calls if key_of(c.captured) in self.wanted])


def prove_text(
    loaded: LoadedModel, texts: tuple[Tokens, Tokens | None], report: Report
) -> ModelRun:
    """Run a text and prove every call, keeping none: what `run` shows without a layer.

    Memory: the model, one call, and some of its rows.
    """

    def take(captured: CapturedCall, _: Sides) -> float:
        options = MeasureOptions(top=0, grid=None, keep_context=True)
        return prove(captured, measure(captured.call, options))

    return _Listener(take, None, report).run(loaded, texts)


def measure_text(
    loaded: LoadedModel,
    texts: tuple[Tokens, Tokens | None],
    layer: str,
    choose: Callable[[Axis], MeasureAsked],
    report: Report,
) -> MeasuredRun:
    """Run a text and measure the layers that were asked for, each proven.

    `choose(queries)` says what to measure of a layer over these queries.
    Memory: the model, one call, some of its rows, and the measures.
    Raises: OptionError for a layer or head that is not there, before the text is run.
    """
    calls = _wanted(loaded, texts[0], layer)
    for one in _foreseen(calls, texts):
        check_room(one, choose(axis_of_tokens(texts[0])))
    layers: list[MeasuredLayer] = []

    def take(captured: CapturedCall, sides: Sides) -> float:
        asked = choose(_rows_axis(sides, captured))
        columns = sides.columns(captured)
        special = None if columns is None else columns.special

        def tell(done: int, total: int) -> None:
            report(f"layer {captured.layer}", done / total)

        found = measured(captured.call, replace(asked, context=True), special, tell)
        part = chosen_captured(captured, found.numbers)
        error = prove(
            part if asked.rows is None else captured_rows(part, asked.rows), found.measures
        )
        layers.append(replace(found, measures=replace(found.measures, context=None)))
        if len(layers) == 1:  # the others will take as much
            check_room(captured.call, asked, kept=(len(calls) - 1) * _bytes_of(layers[0].measures))
        return error

    document = _Listener(take, set(calls), report).run(loaded, texts)
    asked = choose(document.calls[0].queries)
    queries, keys = _one_pair_of_axes(document, asked.rows)
    named = [
        replace(measures, site=call.site)
        for measures, call in zip(layers, document.calls, strict=True)
    ]
    warnings = list(document.warnings)
    for call, found in zip(document.calls, layers, strict=True):
        rows = RowWarnings()
        rows.add(found.measures, queries)
        warnings += [f"layer {call.site.name}: {line}" for line in rows.lines()]
    return MeasuredRun(
        document.settings_of(document.calls),
        queries,
        keys,
        tuple(named),
        asked.top,
        asked.window,
        asked.map_grid,
        tuple(warnings),
        document.notes,
        document.provenance,
    )


def window_of_text(
    loaded: LoadedModel,
    texts: tuple[Tokens, Tokens | None],
    layer: str,
    window: Callable[[int, int], tuple[slice, slice]],
    budget: Budget,
    report: Report,
) -> Run:
    """Run a text and return some rows by some keys of the layers that were asked for.

    `window(queries, keys)` says which rows and keys of so many.
    """
    calls = _wanted(loaded, texts[0], layer)
    for one in _foreseen(calls, texts):
        check_window(one, *window(one.queries, one.keys), budget)
    results: list[AttentionResult] = []
    seeing: list[torch.Tensor] = []

    def take(captured: CapturedCall, _: Sides) -> float:
        rows, columns = window(captured.call.queries, captured.call.keys)
        results.append(checked_window(captured.call, rows, columns, budget))
        seeing.append(rows_that_see(captured.call, rows))
        return output_error(results[-1].context, captured.output[:, rows], seeing[-1][..., None])

    document = _Listener(take, set(calls), report).run(loaded, texts)
    all_rows, all_keys = _one_pair_of_axes(document, None)
    rows, columns = window(len(all_rows), len(all_keys))
    queries, keys = part_of_axis(all_rows, rows), part_of_axis(all_keys, columns)
    note = window_note(queries, len(all_rows), keys, len(all_keys))
    warnings = list(document.warnings)
    for call, result, rows_seeing in zip(document.calls, results, seeing, strict=True):
        said = window_warnings(result, rows_seeing, queries, keys)
        warnings += [f"layer {call.site.name}: {line}" for line in said]
    return Run(
        document.settings_of(document.calls),
        queries,
        keys,
        tuple(results),
        None,
        tuple(warnings),
        (*document.notes, note),
        document.provenance,
        tuple(call.site for call in document.calls),
    )


def _rows_axis(sides: Sides, captured: CapturedCall) -> Axis:
    rows = sides.rows(captured)
    return axis_of_positions("q", captured.call.queries) if rows is None else axis_of_tokens(rows)


def _wanted(loaded: LoadedModel, text: Tokens, layer: str) -> dict[CallKey, ModelCall]:
    """Return which calls are asked for. Raises: OptionError before anything long is begun."""
    sketch = sketch_of(loaded, text)
    calls = sketch.find(layer)
    sketch.check_same_tokens(calls)
    return {key_of(call.captured): call for call in calls}


def _foreseen(
    calls: Mapping[CallKey, ModelCall], texts: tuple[Tokens, Tokens | None]
) -> list[AttentionCall]:
    """Return outlines of the calls that a text will make, as far as they are known before."""
    if texts[1] is not None:
        return []
    own = [call.captured for call in calls.values() if call.site.part == ""]
    found = [outline(captured, len(texts[0])).call for captured in own]
    return [call for call in found if isinstance(call, AttentionCall)]


def _bytes_of(measures: Measures) -> int:
    tensors = (getattr(measures, field.name) for field in fields(measures))
    return sum(one.nbytes for one in tensors if isinstance(one, torch.Tensor))


def _one_pair_of_axes(document: ModelRun, rows: slice | None) -> tuple[Axis, Axis]:
    """Return the axes of all calls. Raises: OptionError if they are over different tokens."""
    document.check_same_tokens(document.calls)
    queries, keys = document.calls[0].queries, document.calls[0].keys
    if rows is None:
        return queries, keys
    return part_of_axis(queries, rows), keys
