"""Captured calls, and the proof of each: its context again, against what the model computed."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from attnscope.attention import engine
from attnscope.attention.call import AttentionCall
from attnscope.attention.masks import HIDDEN_AT_MOST
from attnscope.attention.reference import TOLERANCES as TOLERANCES

Kind = Literal["self", "cross"]
Route = Literal["interface", "sdpa", "multi_head_attention", "flex", "softmax"]

# Numbers in one matrix while a call is computed again: 64 MB in float32.
BLOCK = 1 << 24


@dataclass(frozen=True, slots=True, eq=False)
class ObservedCall:
    """Attention written by hand: the weights that were multiplied with the values.

    Shapes: weights (heads, queries, keys); value (heads, keys, d_value); scores, what the softmax
    received, as weights, or None where they cannot be told from the weights' own shape.
    """

    weights: Tensor
    value: Tensor
    scores: Tensor | None = None

    @property
    def heads(self) -> int:
        """The number of heads."""
        return self.weights.shape[0]

    @property
    def queries(self) -> int:
        """The number of queries."""
        return self.weights.shape[1]

    @property
    def keys(self) -> int:
        """The number of keys."""
        return self.weights.shape[2]


@dataclass(frozen=True, slots=True, eq=False)
class CapturedCall:
    """One attention call of one text, as a model made it, and where it was made.

    Shapes: output (heads, queries, d_value), the implementation's own context. Row i of the
    record is the query at position query_offset + i of the text, column j the key at position
    key_offset + j: a cache keeps earlier keys, a sliding one forgets them. (The record itself
    counts from 0, as its mask does.)
    """

    call: AttentionCall | ObservedCall
    output: Tensor
    module_name: str
    layer: int  # the number in the module's name, else the order of the modules
    nth: int  # which call of that module in this step
    step: int  # which forward of the model: `generate` makes one per token
    text: int  # which text of the batch
    kind: Kind
    route: Route
    query_offset: int = 0
    key_offset: int = 0
    dropout: float = 0.0  # what the record leaves out: with dropout the proof cannot hold
    unknown: tuple[str, ...] = ()  # keywords of the implementation that the record does not hold


def widened(call: AttentionCall) -> AttentionCall:
    """Return the same call in float32, if it is stored in a half type."""
    if call.query.dtype not in (torch.float16, torch.bfloat16):
        return call
    return replace(
        call,
        query=call.query.float(),
        key=call.key.float(),
        value=call.value.float(),
        bias=None if call.bias is None else call.bias.float(),
        sinks=None if call.sinks is None else call.sinks.float(),
    )


@torch.no_grad()
def verify(captured: CapturedCall) -> float:
    """Return max |context − output| / max |output|, over the rows that may see a key.

    A row that may see nothing has no attention: implementations return 0, NaN or a mean there.
    The context is computed in float32 from half types. For an observed call this says only that
    weights and values belong together. NaN: one of the two is not a number.
    """
    call = captured.call
    step = max(1, BLOCK // (call.heads * call.keys))
    gap = torch.zeros((), device=captured.output.device)
    size = torch.zeros_like(gap)
    wide = widened(call) if isinstance(call, AttentionCall) else call
    for start in range(0, call.queries, step):
        rows = slice(start, start + step)
        context, blind = _context_of(wide, rows)
        output = captured.output[:, rows].to(context.dtype)
        gap = _largest(gap, (context - output).abs().masked_fill(blind, 0.0))
        size = _largest(size, output.abs().masked_fill(blind, 0.0))
    return float(gap) if float(size) == 0.0 else float(gap / size)


def output_error(context: Tensor, output: Tensor, seen: Tensor) -> float:
    """Return max |context − output| / max |output|, over the rows that may see a key.

    Shapes: context, output (heads, rows, d_value); seen (heads or 1, rows, keys or 1) bool.
    """
    blind = ~seen.any(dim=-1, keepdim=True).expand(len(context), -1, -1)
    gap = torch.zeros((), dtype=context.dtype, device=context.device)
    size = torch.zeros_like(gap)
    # a head at a time: what stays in the cache takes a fifth of the time
    for mine, theirs, hidden in zip(context, output, blind, strict=True):
        theirs = theirs.to(context.dtype)
        gap = _largest(gap, (mine - theirs).abs_().masked_fill_(hidden, 0.0))
        size = _largest(size, theirs.abs().masked_fill_(hidden, 0.0))
    return float(gap) if float(size) == 0.0 else float(gap / size)


def _largest(so_far: Tensor, numbers: Tensor) -> Tensor:
    # torch.maximum, as max(), hands a NaN on
    return torch.maximum(so_far.to(numbers.dtype), numbers.max())


def _context_of(call: AttentionCall | ObservedCall, rows: slice) -> tuple[Tensor, Tensor]:
    """Return the context of some rows, and which of them see nothing: (heads or 1, rows, 1)."""
    if isinstance(call, ObservedCall):
        return _observed_context(call, rows)
    seen = engine.visible(call, rows)
    logits = engine.hide(engine.scale_scores(call, engine.scores(call, rows), rows), seen)
    weights = engine.softmax(logits, seen, call.sinks)
    return engine.context(call, weights), ~seen.any(dim=-1, keepdim=True)


def _observed_context(call: ObservedCall, rows: slice) -> tuple[Tensor, Tensor]:
    weights = call.weights[:, rows]
    wide = torch.promote_types(weights.dtype, torch.float32)
    if call.scores is None:
        blind = torch.zeros_like(weights[..., :1], dtype=torch.bool)
    else:
        blind = (call.scores[:, rows] <= HIDDEN_AT_MOST).all(dim=-1, keepdim=True)
    return weights.to(wide) @ call.value.to(wide), blind
