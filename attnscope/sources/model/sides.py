"""What the rows and columns of a call are: tokens of the one text or the other."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attnscope.attention.head_scores import TokenFacts
from attnscope.attention.verify import CapturedCall, ObservedCall
from attnscope.run import axis_of_tokens
from attnscope.sources.capture.document import TextAxes, part_of
from attnscope.sources.model.batch import Batch
from attnscope.text.tokens import Tokens

Progress = Callable[[str, float | None], None]
CallKey = tuple[str, int, int, str]


@dataclass(frozen=True, slots=True)
class Sides:
    """The tokens of one text; `source`: those that the encoder of an encoder-decoder reads."""

    own: Tokens
    source: Tokens | None = None

    def rows(self, captured: CapturedCall) -> Tokens | None:
        """Return the tokens of the rows of a call; None if they are not the text's."""
        tokens = self.own
        if self.source is not None and part_of(captured) == "encoder":
            tokens = self.source
        fits = len(tokens) == captured.call.queries and captured.query_offset == 0
        return tokens if fits else None

    def columns(self, captured: CapturedCall) -> Tokens | None:
        """Return the tokens of the columns of a call; None if they are not the text's."""
        tokens = self.own
        if self.source is not None and part_of(captured) != "decoder":
            tokens = self.source
        fits = len(tokens) == captured.call.keys and captured.key_offset == 0
        return tokens if fits else None

    def facts(self, captured: CapturedCall) -> TokenFacts:
        """Return what is known about the keys of a call."""
        columns = self.columns(captured)
        if columns is None:
            return TokenFacts()
        device = captured.output.device
        special = torch.tensor(columns.special, device=device)
        ids: Tensor | None = None
        if captured.kind == "self" and self.rows(captured) is columns:
            ids = torch.tensor(columns.ids, device=device)
        return TokenFacts(special, ids)

    def axes(self) -> TextAxes:
        """Return both as axes of a document."""
        source = None if self.source is None else axis_of_tokens(self.source)
        return TextAxes(axis_of_tokens(self.own), source)


def sides_of(batched: Batch) -> Sides:
    """Return the tokens of a batch of one text."""
    if batched.targets:
        return Sides(batched.targets[0], batched.texts[0])
    return Sides(batched.texts[0])


def key_of(captured: CapturedCall) -> CallKey:
    """Return what names a call within one forward, whatever the text."""
    return captured.module_name, captured.nth, captured.layer, captured.kind


def hollow(captured: CapturedCall) -> CapturedCall:
    """Return a captured call that still tells its shape, and holds no memory."""
    call, like = captured.call, captured.output
    zero = torch.zeros((), dtype=like.dtype, device=like.device)
    shape = ObservedCall(
        zero.expand(call.heads, call.queries, call.keys),
        zero.expand(call.heads, call.keys, call.value.shape[2]),
    )
    return replace(captured, call=shape, output=zero.expand(like.shape))


def beginning(tokens: Tokens, count: int) -> Tokens:
    """Return the first tokens of a text."""
    return replace(
        tokens,
        pieces=tokens.pieces[:count],
        labels=tokens.labels[:count],
        ids=tokens.ids[:count],
        spans=tokens.spans[:count],
        special=tokens.special[:count],
        unknown=tokens.unknown[:count],
    )
