"""What the rows and columns of a call are: tokens of the one text or the other; its outline."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attnscope.attention.call import AttentionCall
from attnscope.attention.head_scores import TokenFacts
from attnscope.attention.masks import EVERYTHING, Mask, Reach
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


def outline(captured: CapturedCall, count: int | None = None) -> CapturedCall:
    """Return a captured call that still tells what it is, and holds no vectors.

    `count`: as it would be of so many queries and keys.
    """
    zero = torch.zeros((), dtype=captured.output.dtype, device=captured.output.device)

    def blank(*shape: int) -> Tensor:
        return zero.expand(*shape)

    call = captured.call
    shape: AttentionCall | ObservedCall
    if isinstance(call, ObservedCall):
        shape = ObservedCall(blank(call.heads, call.queries, call.keys), blank(*call.value.shape))
    else:
        mask = call.mask
        if mask.reach == Reach():  # it may hold a matrix of cells
            mask = Mask(mask.name, EVERYTHING.rule)
        (heads, rows, width), (shared, columns, wide) = call.query.shape, call.value.shape
        rows, columns = (rows, columns) if count is None else (count, count)
        shape = replace(
            call,
            query=blank(heads, rows, width),
            key=blank(shared, columns, width),
            value=blank(shared, columns, wide),
            mask=mask,
            bias=None if call.bias is None else blank(1, 1, 1),
        )
    return replace(captured, call=shape, output=blank(*captured.output.shape))


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
