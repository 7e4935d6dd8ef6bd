"""What a token attends to, or who attends to it: some rows or columns of every head's weights.

As each call is made, its row sums are computed, the rows or columns are read off, the strongest
are kept, and its queries, keys and values are let go.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from attnscope.attention.call import AttentionCall
from attnscope.attention.gathered import with_rule, without_first
from attnscope.attention.head_scores import prove
from attnscope.attention.measured import MeasureOptions, Measures
from attnscope.attention.stripes import measure
from attnscope.attention.strips import merged, row_means, strip
from attnscope.attention.verify import CapturedCall
from attnscope.errors import OptionError
from attnscope.model_run import ModelCall
from attnscope.sources.capture import capture
from attnscope.sources.capture.assemble import Proven
from attnscope.sources.capture.document import model_run, part_of
from attnscope.sources.model.batch import Batch, batch, forward
from attnscope.sources.model.focuses import Strip, Strongest, focuses_of
from attnscope.sources.model.head_entries import site_of
from attnscope.sources.model.loaded import LoadedModel
from attnscope.sources.model.sides import CallKey, Progress, Sides, key_of, outline, sides_of
from attnscope.sources.model.survey import sketch_of
from attnscope.survey.tokens import (
    Direction,
    LinkOptions,
    Place,
    TokenSurvey,
    find_places,
    not_found,
    nothing_left,
    places_of,
)
from attnscope.text.display import visible
from attnscope.text.tokens import Tokens


@dataclass(slots=True, eq=False)
class _Listener:
    options: LinkOptions
    sides: Sides
    names: dict[CallKey, str] | None  # of the calls that were asked for
    report: Progress
    proven: list[Proven] = field(default_factory=list)
    strips: list[Strip] = field(default_factory=list)

    def take(self, captured: CapturedCall) -> None:
        if self.names is not None and key_of(captured) not in self.names:
            return
        self.report(f"layer {captured.layer}", None)
        captured = replace(captured, call=with_rule(captured.call))
        found = measure(captured.call, MeasureOptions(top=0, grid=None, keep_context=True))
        self.proven.append(Proven(outline(captured), prove(captured, found)))
        found_strip = self._strip(captured, found)
        if found_strip is not None:
            self.strips.append(found_strip)

    def _strip(self, captured: CapturedCall, found: Measures) -> Strip | None:
        top = self.options.direction is Direction.TOP
        queries, keys, focuses = self._places(captured)
        if not focuses:
            return None
        chosen = tuple((queries if top else keys)[i] for i in focuses)
        call, logsumexp, lost = captured.call, found.logsumexp, 0
        if self.options.no_sink:
            rest = without_first(call)
            if rest is None:
                return None
            call, lost = rest, 1
            logsumexp = measure(rest, MeasureOptions(top=0, grid=None)).logsumexp
        rows = merged(tuple(place.positions for place in (chosen if top else queries)))
        columns = merged(tuple(place.positions for place in (keys if top else chosen)), lost=lost)
        weights, seen = strip(call, logsumexp, rows, columns)
        first = row_means(found.first, rows)
        if not top:
            weights, seen = weights.transpose(1, 2), seen.transpose(1, 2)
        return self._kept(captured, chosen, keys if top else queries, weights, seen, first)

    def _places(
        self, captured: CapturedCall
    ) -> tuple[tuple[Place, ...], tuple[Place, ...], tuple[int, ...]]:
        """Return the places of rows and of columns, and which of them are asked about."""
        words, call = self.options.words, captured.call
        rows, columns = self.sides.rows(captured), self.sides.columns(captured)
        queries = places_of(rows, _labels("q", rows, call.queries), words=words)
        keys = places_of(columns, _labels("k", columns, call.keys), words=words)
        if self.options.direction is Direction.TOP:
            asked, places = rows, queries
        else:
            asked, places = columns, keys
        found = () if asked is None else find_places(asked, places, self.options.token)
        return queries, keys, tuple(i for i in found if not _left_out(self.options, places[i]))

    def _kept(
        self,
        captured: CapturedCall,
        focuses: tuple[Place, ...],
        others: tuple[Place, ...],
        weights: Tensor,
        seen: Tensor,
        first: Tensor,
    ) -> Strip:
        """Keep of (heads, focuses, others) what is shown."""
        head, top = self.options.head, self.options.direction is Direction.TOP
        heads = range(weights.shape[0])
        heads = heads if head is None else heads[head : head + 1]
        weights, seen, first = (x.cpu()[list(heads)] for x in (weights, seen, first))
        strongest = []
        for number in range(len(focuses)):
            cells = weights[:, number].masked_fill(~seen[:, number], -1.0).flatten()
            best, places = torch.topk(cells, min(self.options.limit, len(cells)))
            links: Strongest = []
            for weight, place in zip(best.tolist(), places.tolist(), strict=True):
                row, other = divmod(place, len(others))
                if weight >= 0.0 or math.isnan(weight):
                    rest = float(first[row, number if top else other])
                    links.append((weight, heads[row], other, rest))
            strongest.append(links)
        call = captured.call
        key_heads = call.key_heads if isinstance(call, AttentionCall) else call.heads
        return Strip(
            len(self.proven) - 1,
            call.heads // key_heads,
            part_of(captured) if self.sides.source is not None else "",
            len(heads),
            focuses,
            others,
            strongest,
            weights.double().sum(dim=0),
            first.double().sum(dim=0) if top else None,
        )


def survey_tokens(
    loaded: LoadedModel,
    texts: Sequence[Tokens],
    targets: Sequence[Tokens] | None,
    options: LinkOptions,
    progress: Progress | None = None,
) -> list[TokenSurvey]:
    """Return, for each text, what its token attends to or who attends to it.

    Memory: the model, the record of one call, and a number per focus and token.
    Raises: OptionError for a token, a layer or a head that is not there, before the model runs
    over the text; CaptureError if it has no attention.
    """
    batches = [
        batch(loaded, [text], None if targets is None else [targets[i]])
        for i, text in enumerate(texts)
    ]
    for batched in batches:
        _check_token(sides_of(batched), options)
    names = None
    if options.layer is not None or options.head is not None:
        sketch = sketch_of(loaded, texts[0])
        calls = sketch.calls if options.layer is None else sketch.find(options.layer)
        _check_head(options.head, calls)
        names = {key_of(call.captured): call.site.name for call in calls}
    report = progress or (lambda *_: None)
    return [_survey_of(loaded, batched, options, names, report) for batched in batches]


def _survey_of(
    loaded: LoadedModel,
    batched: Batch,
    options: LinkOptions,
    names: dict[CallKey, str] | None,
    report: Progress,
) -> TokenSurvey:
    sides = sides_of(batched)
    listener = _Listener(options, sides, names, report)
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
    if not listener.strips:
        raise _no_strip(options, sides)
    focuses = focuses_of(listener.strips, document, names or {}, options)
    if options.no_sink and not any(focus.links for focus in focuses):
        raise OptionError(
            f'--token "{visible(options.token)}" sees nothing but the first token, which --no-sink '
            "leaves out",
            "Leave out --no-sink, or ask about a later token",
        )
    sites = [site_of(call.site, key_of(call.captured), names or {}) for call in document.calls]
    return TokenSurvey(
        loaded.name,
        sides.own.text,
        None if sides.source is None else sides.source.text,
        options,
        tuple(focuses),
        tuple(sites),
        document.skipped,
        document.notes,
        document.warnings,
        document.provenance,
    )


def _check_token(sides: Sides, options: LinkOptions) -> None:
    """Raise OptionError if the token is in none of the texts, or is what --no-sink leaves out."""
    texts = [one for one in (sides.own, sides.source) if one is not None]
    there = False
    for tokens in texts:
        places = places_of(tokens, tokens.labels, words=options.words)
        found = [places[i] for i in find_places(tokens, places, options.token)]
        if any(not _left_out(options, place) for place in found):
            return
        there = there or bool(found)
    if there:
        raise OptionError(
            f'--no-sink leaves the first token out, and --token "{visible(options.token)}" is it',
            "Leave one out",
        )
    raise not_found(options.token, texts)


def _left_out(options: LinkOptions, place: Place) -> bool:
    """Return whether a place is asked about as a key, and --no-sink hides it."""
    return options.no_sink and options.direction is Direction.WHO and place.positions == (0,)


def _no_strip(options: LinkOptions, sides: Sides) -> OptionError:
    """Return the error for a token about which no call says anything."""
    if options.no_sink and len(sides.own) == 1:
        return nothing_left(1)
    return OptionError(
        f'--token "{visible(options.token)}" stands in no text that these layers read',
        "Choose other layers, or leave --layer out",
    )


def _check_head(head: int | None, calls: Sequence[ModelCall]) -> None:
    most = max(call.captured.call.heads for call in calls)
    if head is not None and head >= most:
        raise OptionError(
            f"--head {head} is out of range: there {'is' if most == 1 else 'are'} {most}",
            f"Heads count from 0: give 0 to {most - 1}" if most > 1 else "Give 0",
        )


def _labels(prefix: str, tokens: Tokens | None, count: int) -> tuple[str, ...]:
    return tokens.labels if tokens is not None else tuple(f"{prefix}{i}" for i in range(count))
