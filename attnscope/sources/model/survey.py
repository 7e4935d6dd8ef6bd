"""What the heads of a model do on some texts, measured while it runs.

Each call is measured as it is made, and its queries, keys and values are let go: memory grows with
the length of a text, and not with the layers. Texts run one by one, so that none is padded.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from attnscope.attention.call import AttentionCall
from attnscope.attention.gathered import Call, uniform_like, with_rule
from attnscope.attention.head_scores import HeadScores, score_and_prove, score_heads
from attnscope.attention.verify import CapturedCall, verify
from attnscope.model_run import ModelRun
from attnscope.sources.capture import capture
from attnscope.sources.capture.assemble import Proven
from attnscope.sources.capture.document import model_run
from attnscope.sources.model.architecture import Kind
from attnscope.sources.model.batch import batch, forward
from attnscope.sources.model.control import Draws
from attnscope.sources.model.head_entries import CallScores, heads_of, site_of
from attnscope.sources.model.loaded import LoadedModel
from attnscope.sources.model.sides import (
    CallKey,
    Progress,
    Sides,
    beginning,
    key_of,
    outline,
    sides_of,
)
from attnscope.sources.model.watch import run_texts
from attnscope.survey.heads import HeadOptions, HeadSurvey, SurveyText
from attnscope.survey.tokens import nothing_left
from attnscope.text.tokens import Tokens

_SKETCH = 8  # tokens that are enough to see which layers there are


@dataclass(slots=True, eq=False)
class _Survey:
    """Listens to forwards and measures each call."""

    loaded: LoadedModel
    options: HeadOptions
    wanted: Collection[CallKey] | None
    report: Progress
    found: dict[CallKey, CallScores] = field(default_factory=dict)
    uniforms: dict[tuple[object, ...], HeadScores | None] = field(default_factory=dict)

    def text(self, captured: CapturedCall, sides: Sides) -> None:
        """Measure a call of a text, and prove it."""
        window, no_first = self.options.window, self.options.no_sink
        facts = sides.facts(captured)
        if no_first:
            error = verify(captured)
            scores = score_heads(captured.call, facts, window=window, no_first=True)
        else:
            scores, error = score_and_prove(captured, facts, window=window)
        key, call = key_of(captured), captured.call
        key_heads = call.key_heads if isinstance(call, AttentionCall) else call.heads
        here = self.found.setdefault(key, CallScores(outline(captured), key_heads))
        here.prove(error)
        here.add("scores", scores)
        here.add("uniform", self._uniform(captured, sides))

    def control(self, captured: CapturedCall, sides: Sides) -> None:
        """Measure a call over random tokens, at the places of the text's own tokens."""
        scores = self._scores(captured.call, captured, sides)
        if key_of(captured) in self.found:
            self.found[key_of(captured)].add("control", scores)

    def probe(self, captured: CapturedCall, sides: Sides) -> None:
        """Measure a call over a sequence that repeats itself."""
        if key_of(captured) in self.found:
            here = self.found[key_of(captured)]
            here.add("probe", self._scores(captured.call, captured, sides))
            here.add("probe_uniform", self._uniform(captured, sides))

    def _scores(self, call: Call, captured: CapturedCall, sides: Sides) -> HeadScores | None:
        return score_heads(
            call,
            sides.facts(captured),
            window=self.options.window,
            no_first=self.options.no_sink,
        )

    def _uniform(self, captured: CapturedCall, sides: Sides) -> HeadScores | None:
        call = captured.call
        rule = isinstance(call, AttentionCall) and call.mask.reach.filled
        if not rule:
            return self._scores(uniform_like(call), captured, sides)
        assert isinstance(call, AttentionCall)
        # layers with the same rule over the same tokens see the same keys
        place: tuple[object, ...] = (
            call.mask.name, call.query_offset, call.queries, call.keys, captured.kind,
            id(sides.rows(captured)), id(sides.columns(captured)),
        )  # fmt: skip
        if place not in self.uniforms:
            self.uniforms[place] = self._scores(uniform_like(call), captured, sides)
        return self.uniforms[place]

    def run(
        self,
        what: str,
        take: Callable[[CapturedCall, Sides], None],
        texts: tuple[Tokens, Tokens | None],
        named: Sides | None = None,
    ) -> tuple[Sides, tuple[str, ...], tuple[str, ...]]:
        """Run the model over a text and its target; `named`: tokens to measure by, if others.

        Returns the tokens, and what the capture says is without attention, and skipped.
        """
        source, target = texts
        batched = batch(self.loaded, [source], None if target is None else [target])
        sides = named or sides_of(batched)

        def on_call(captured: CapturedCall) -> None:
            if self.wanted is None or key_of(captured) in self.wanted:
                self.report(f"{what}, layer {captured.layer}", None)
                take(replace(captured, call=with_rule(captured.call)), sides)

        with capture(self.loaded.model, on_call=on_call) as cap:
            forward(self.loaded, batched)
        cap.require()
        self.uniforms.clear()  # kept by the identity of tokens that may go
        return sides, tuple(cap.without), tuple(cap.skipped)


def survey_heads(
    loaded: LoadedModel,
    texts: Sequence[Tokens],
    targets: Sequence[Tokens] | None,
    options: HeadOptions,
    progress: Progress | None = None,
) -> HeadSurvey:
    """Measure what each head does on some texts, on random tokens, and on a probe if asked.

    Memory: the model, the record of one call, and some numbers per row and head.
    Raises: CaptureError if the model has no attention; OptionError, TextError as `batch`; an
    OptionError for a layer that is not there, before anything long is begun.
    """
    sketch = None if options.layer is None else sketch_of(loaded, texts[0])
    chosen = None if sketch is None else sketch.find(options.layer or "")
    wanted = None if chosen is None else {key_of(call.captured) for call in chosen}
    survey = _Survey(loaded, options, wanted, progress or (lambda *_: None))
    draws = Draws(loaded, options.seed)
    sides: list[Sides] = []
    for number, text in enumerate(texts):
        target = None if targets is None else targets[number]
        what = f"text {number + 1} of {len(texts)}"
        here, without, skipped = survey.run(what, survey.text, (text, target))
        sides.append(here)
        other = None if target is None else draws.control(target)
        random = (draws.control(text), other)
        survey.run(f"{what}, random tokens", survey.control, random, named=here)
    if options.probe:
        # its own draw, so that it is the same whatever the texts are
        tokens = Draws(loaded, options.seed).probe()
        target = tokens if loaded.kind is Kind.ENCODER_DECODER else None
        survey.run("probe", survey.probe, (tokens, target))
    if options.no_sink and all(one.scores is None for one in survey.found.values()):
        raise nothing_left(max(len(one.own) for one in sides))
    document = document_of(loaded, survey.found.values(), sides[0], without, skipped)
    names = {} if chosen is None else {key_of(call.captured): call.site.name for call in chosen}
    return HeadSurvey(
        loaded.name,
        tuple(_text_of(one) for one in sides),
        options,
        tuple(heads_of(survey.found, document, names)),
        tuple(site_of(call.site, key_of(call.captured), names) for call in document.calls),
        document.without,
        document.skipped,
        document.notes,
        document.warnings,
        document.provenance,
    )


def sketch_of(loaded: LoadedModel, text: Tokens) -> ModelRun:
    """Return the calls that a model makes, by running the first tokens of a text."""
    return run_texts(loaded, [beginning(text, _SKETCH)])[0]


def document_of(
    loaded: LoadedModel,
    found: Collection[CallScores],
    sides: Sides,
    without: Sequence[str],
    skipped: Sequence[str],
) -> ModelRun:
    """Return outlines of calls as a document: where each was made, and its proof."""
    records = [Proven(one.captured, one.error) for one in found]
    return model_run(
        loaded.name,
        records,
        sides.axes(),
        without=without,
        skipped=skipped,
        notes=loaded.notes,
    )


def _text_of(sides: Sides) -> SurveyText:
    source = sides.source
    if source is None:
        return SurveyText(sides.own.text, len(sides.own))
    return SurveyText(sides.own.text, len(sides.own), source.text, len(source))
