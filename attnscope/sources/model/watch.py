"""Texts through a loaded model, its attention watched: one ModelRun per text."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext

from attnscope.attention.verify import CapturedCall
from attnscope.model_run import ModelRun
from attnscope.run import axis_of_tokens
from attnscope.sources.capture import capture
from attnscope.sources.capture.assemble import Assembly, Proven, Span, narrowed
from attnscope.sources.capture.document import TextAxes, model_run, part_of
from attnscope.sources.capture.output_projection import OutputProjections, call_key
from attnscope.sources.model.architecture import Kind
from attnscope.sources.model.batch import Batch, batch, forward
from attnscope.sources.model.generate import continued, generate
from attnscope.sources.model.loaded import LoadedModel
from attnscope.text.display import visible
from attnscope.text.tokens import Tokens

# Texts that run together: enough to keep the cores busy, few enough to stay small.
_BATCH_TEXTS, _BATCH_TOKENS = 16, 2048
_OPEN = 1 << 62  # the end of what is not known to end


def run_texts(
    loaded: LoadedModel,
    texts: Sequence[Tokens],
    targets: Sequence[Tokens] | None = None,
    *,
    generated: int = 0,
    norms: bool = False,
) -> list[ModelRun]:
    """Run texts through a model and return what its attention did, each text on its own.

    Texts of one batch are padded; padding is left out of every record, which then equals that of
    the text alone, up to rounding. `generated` tokens are written on greedily; the last of them has
    no row, since the model has not read it. `norms` looks for the output projections too.
    Memory: query, key, value and output of every layer.
    Raises: CaptureError if the model has no attention; OptionError, TextError as `batch`.
    """
    runs: list[ModelRun] = []
    for places in _batches(texts, targets, alone=bool(generated and targets)):
        own = [texts[i] for i in places]
        given = None if targets is None else [targets[i] for i in places]
        runs += _run_batch(loaded, batch(loaded, own, given), generated, norms)
    return runs


def _batches(
    texts: Sequence[Tokens], targets: Sequence[Tokens] | None, *, alone: bool
) -> Iterator[list[int]]:
    """Yield which texts run together, in order; `alone`: each by itself."""
    together: list[int] = []
    longest = 0
    for i, text in enumerate(texts):
        longest = max(longest, len(text), 0 if targets is None else len(targets[i]))
        size = len(together) + 1
        full = size > _BATCH_TEXTS or size * longest > _BATCH_TOKENS
        if together and (full or alone):
            yield together
            together, longest = [], len(text)
        together.append(i)
    if together:
        yield together


def _run_batch(loaded: LoadedModel, batched: Batch, generated: int, norms: bool) -> list[ModelRun]:
    assembly = Assembly(lambda call: _spans(call, batched, loaded.kind, open_end=bool(generated)))
    written: list[tuple[int, ...]] = [()] * len(batched.texts)
    projections = OutputProjections()

    def take(captured: CapturedCall) -> None:
        if norms:
            projections.heard(captured)
        assembly.take(captured)

    looking = projections.watching(loaded.model) if norms else nullcontext()
    with looking, capture(loaded.model, on_call=take) as cap:
        if generated:
            continuation = generate(loaded, batched, generated)
            written = [continuation.written(i) for i in range(len(batched.texts))]
        else:
            forward(loaded, batched)
    cap.require()
    runs = []
    for text, records in assembly.texts():
        axes, notes = _axes(loaded, batched, text, written[text])
        if generated:
            records = _ended(records, axes)
        if norms:
            notes += _without_projection(records, projections)
        runs.append(
            model_run(
                loaded.name,
                records,
                axes,
                without=cap.without,
                skipped=cap.skipped,
                notes=[*loaded.notes, *notes],
                projections=projections.found,
            )
        )
    return runs


def _without_projection(records: Sequence[Proven], projections: OutputProjections) -> list[str]:
    """Return a note for the calls whose output projection was not found."""
    names = [
        record.captured.module_name
        for record in records
        if call_key(record.captured) not in projections.found
    ]
    if not names:
        return []
    which = "any call" if len(names) == len(records) else ", ".join(names[:3])
    more = f" and {len(names) - 3} more" if 3 < len(names) < len(records) else ""
    return [f"no output projection was found of {visible(which)}{more}: ‖α·v·W_O‖ is left out"]


def _spans(call: CapturedCall, batched: Batch, kind: Kind, *, open_end: bool) -> tuple[Span, Span]:
    """Return the positions of a call's rows and columns that are the text's own."""
    start, length = batched.starts[call.text], batched.lengths[call.text]
    source = (start, start + length)
    if kind is not Kind.ENCODER_DECODER:
        own = (start, _OPEN) if open_end else source
        return own, own
    part = part_of(call)
    if part == "encoder":
        return source, source
    target = (0, _OPEN if open_end else batched.target_lengths[call.text])
    return target, source if part == "cross" else target


def _axes(
    loaded: LoadedModel, batched: Batch, text: int, written: tuple[int, ...]
) -> tuple[TextAxes, list[str]]:
    own = (batched.targets or batched.texts)[text]
    notes = []
    if written:
        whole = continued(loaded, own, written)
        said = whole.text[len(own.text) :] if whole.text.startswith(own.text) else whole.text
        notes = [
            f"the model wrote {len(written)} token{'s' if len(written) > 1 else ''}: "
            f'"{said}"; the last has no row of its own, since it was not read again'
        ]
        own = continued(loaded, own, written[:-1]) if len(written) > 1 else own
    source = axis_of_tokens(batched.texts[text]) if batched.targets else None
    return TextAxes(axis_of_tokens(own), source), notes


def _ended(records: Sequence[Proven], axes: TextAxes) -> list[Proven]:
    """Leave out the rows after a text's end, which its neighbours in the batch still wrote."""
    assert axes.queries is not None
    rows = (0, len(axes.queries))
    ended = []
    for record in records:
        captured = record.captured
        if captured.call.queries <= rows[1] or part_of(captured) == "encoder":
            ended.append(record)
            continue
        columns = (0, captured.call.keys) if captured.kind == "cross" else rows
        narrow = narrowed(captured, rows, columns)
        ended += [] if narrow is None else [Proven(narrow, record.error)]
    return ended
