"""What each layer of a model is, seen on one text."""

import math
from dataclasses import dataclass, field, replace

import torch

from attnscope.attention import engine
from attnscope.attention.call import AttentionCall
from attnscope.attention.gathered import Call, with_rule
from attnscope.attention.mask_kinds import recognised
from attnscope.attention.masks import HIDDEN_AT_MOST
from attnscope.attention.verify import CapturedCall, verify
from attnscope.run import Site
from attnscope.sources.capture import capture
from attnscope.sources.capture.assemble import Proven
from attnscope.sources.capture.document import model_run
from attnscope.sources.model.architecture import Kind
from attnscope.sources.model.batch import batch, forward
from attnscope.sources.model.loaded import LoadedModel
from attnscope.sources.model.positions import mixer_of, module_class, positions_of, window_of
from attnscope.sources.model.sides import Progress, outline, sides_of
from attnscope.survey.layers import LayerFacts, LayerSurvey, Without
from attnscope.text.display import visible
from attnscope.text.tokens import Tokens

_ROWS = 256
# What a mask's name says to a reader of layers.
_SEES = {"none": "full", "given": "a mask of its own"}
_NOWHERE = Site("", 0, "", "", 0, "", 0.0, 0.0)


@dataclass(slots=True, eq=False)
class _Listener:
    loaded: LoadedModel
    report: Progress
    proven: list[Proven] = field(default_factory=list)
    facts: list[LayerFacts] = field(default_factory=list)

    def take(self, captured: CapturedCall) -> None:
        self.report(f"layer {captured.layer}", None)
        captured = replace(captured, call=with_rule(captured.call))
        self.proven.append(Proven(outline(captured), verify(captured)))
        self.facts.append(_facts(self.loaded.model, captured))


def survey_layers(
    loaded: LoadedModel,
    text: Tokens,
    target: Tokens | None = None,
    progress: Progress | None = None,
) -> LayerSurvey:
    """Return what each layer of a model is, by what its attention does on a text.

    Memory: the model, and the record of one call.
    Raises: CaptureError if the model has no attention; OptionError, TextError as `batch`.
    """
    batched = batch(loaded, [text], None if target is None else [target])
    sides = sides_of(batched)
    listener = _Listener(loaded, progress or (lambda *_: None))
    with capture(loaded.model, on_call=listener.take) as cap:
        forward(loaded, batched)
    cap.require()
    document = model_run(
        loaded.name,
        listener.proven,
        sides.axes(),
        without=cap.without,
        skipped=cap.skipped,
        notes=loaded.notes,
    )
    return LayerSurvey(
        loaded.name,
        type(loaded.model).__name__,
        len(sides.own),
        None if sides.source is None else len(sides.source),
        tuple(
            replace(facts, site=call.site)
            for facts, call in zip(listener.facts, document.calls, strict=True)
        ),
        tuple(Without(name, *mixer_of(loaded.model, name)) for name in document.without),
        document.skipped,
        document.notes,
        document.warnings,
        document.provenance,
    )


def reads_targets(loaded: LoadedModel) -> bool:
    """Return whether the model has a decoder beside its encoder."""
    return loaded.kind is Kind.ENCODER_DECODER


def _facts(model: object, captured: CapturedCall) -> LayerFacts:
    call = captured.call
    plain = call if isinstance(call, AttentionCall) else None
    bias = plain is not None and plain.bias is not None
    limit = window_of(model, captured)
    sees = _sees(call, captured)
    return LayerFacts(
        _NOWHERE,
        visible(module_class(model, captured)),
        sees,
        limit if limit is not None and not sees.startswith(("window", "causal chunks")) else None,
        call.heads,
        call.heads if plain is None else plain.key_heads,
        call.queries,
        call.keys,
        None if plain is None else plain.query.shape[2],
        call.value.shape[2],
        None if plain is None or math.isnan(plain.scale) else plain.scale,
        None if plain is None else plain.softcap,
        plain is not None and plain.sinks is not None,
        bias,
        positions_of(model, captured, bias=bias),
        visible_share(call),
    )


def _sees(call: Call, captured: CapturedCall) -> str:
    """Return what a query may see, in a word or two."""
    if captured.kind == "cross":
        return "cross"
    if call.queries == 1 and call.keys == 1:
        return "unknown: one token"
    if isinstance(call, AttentionCall):
        return _SEES.get(call.mask.name, call.mask.name)
    if call.scores is None:
        return "unknown: observed"
    name = recognised(~(call.scores <= HIDDEN_AT_MOST)).name
    return _SEES.get(name, name)


def visible_share(call: Call) -> float:
    """Return how many of all query × key cells may be seen, from 0 to 1.

    Where the scores of an observed call are not known, NaN.
    Memory: 256 rows of truth values.
    """
    if isinstance(call, AttentionCall):
        seen = 0.0
        heads = 1
        for start in range(0, call.queries, _ROWS):
            part = engine.visible(call, slice(start, start + _ROWS))
            heads = part.shape[0]
            seen += float(part.expand(heads, -1, call.keys).sum())
        return seen / (heads * call.queries * call.keys)
    if call.scores is None:
        return math.nan
    return float((~(call.scores <= HIDDEN_AT_MOST)).to(torch.float64).mean())
