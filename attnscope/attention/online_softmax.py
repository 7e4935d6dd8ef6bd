"""One row's softmax and context, in one pass over blocks of keys, as FlashAttention does it.

Sources: Milakov and Gimelshein 2018, "Online normalizer calculation for softmax", algorithms 2
(the softmax with its maximum subtracted) and 3 (the same in one pass); Dao et al. 2022,
"FlashAttention", algorithm 1, which carries the context along.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class SafeSoftmax:
    """A softmax with its row maximum subtracted, step by step.

    Shapes: maximum, total and sink_exponential () (the last None without a sink); shifted and
    exponentials (keys,), of which hidden keys have −inf and 0.
    """

    maximum: Tensor
    shifted: Tensor
    exponentials: Tensor
    sink_exponential: Tensor | None
    total: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """What is known after one block of keys, the half-open range `start` to `end`.

    Shapes: logits, exponentials (keys of the block,); block_maximum, maximum, rescaling, total ();
    context (d_value,), not yet divided by the total. `maximum`, `total` and `context` are running;
    `rescaling` is what the total and context of the blocks before were multiplied by.
    """

    start: int
    end: int
    logits: Tensor
    exponentials: Tensor
    block_maximum: Tensor
    maximum: Tensor
    rescaling: Tensor
    total: Tensor
    context: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class OnlineRow:
    """One row after its last block. Shapes: weights (keys,), context (d_value,), logsumexp ()."""

    blocks: tuple[Block, ...]
    weights: Tensor
    context: Tensor
    logsumexp: Tensor


def safe_softmax(logits: Tensor, sink: Tensor | None = None) -> SafeSoftmax:
    """Return the steps of the softmax of one row, in float64.

    Shapes: logits (keys,), −inf where hidden; sink (): one more logit. A row of nothing but −inf
    has the maximum −inf and the total 0; a NaN stays one.
    """
    logits = logits.double()
    most = logits.max() if sink is None else torch.maximum(logits.max(), sink.double())
    base = _base(most)
    exponentials = (logits - base).exp()
    of_sink = None if sink is None else (sink.double() - base).exp()
    total = exponentials.sum()
    return SafeSoftmax(
        most, logits - base, exponentials, of_sink, total if of_sink is None else total + of_sink
    )


def online_row(
    logits: Tensor, seen: Tensor, values: Tensor, block: int, sink: Tensor | None = None
) -> OnlineRow:
    """Compute the context of one row block by block, without ever holding all its weights.

    Shapes: logits, seen (bool) (keys,); values (keys, d_value); sink () or None. `block` keys are
    read at a time, at least 1. Half types are widened to float32, as FlashAttention's sums are.
    The weights are computed afterwards, for the reader: the algorithm itself has no use for them.
    """
    dtype = torch.promote_types(logits.dtype, torch.float32)
    logits, values = logits.to(dtype).masked_fill(~seen, -torch.inf), values.to(dtype)
    maximum = logits.new_tensor(-torch.inf)
    total = logits.new_zeros(())
    context = values.new_zeros(values.shape[1])
    if sink is not None:  # a logit without a value: read before the first key
        maximum = sink.to(dtype)
        total = (maximum - _base(maximum)).exp()
    blocks = []
    for start in range(0, len(logits), block):
        part = logits[start : start + block]
        most = torch.maximum(maximum, part.max())
        base = _base(most)
        rescaling = (maximum - base).exp()
        exponentials = (part - base).exp()
        total = rescaling * total + exponentials.sum()
        context = rescaling * context + exponentials @ values[start : start + block]
        maximum = most
        end = start + len(part)
        blocks.append(
            Block(start, end, part, exponentials, part.max(), maximum, rescaling, total, context)
        )
    if not bool(seen.any()):  # asked of the mask: a NaN in the values was never read
        return OnlineRow(
            tuple(blocks), torch.zeros_like(logits), torch.zeros_like(context), _lse(maximum, total)
        )
    weights = (logits - _base(maximum)).exp() / total
    return OnlineRow(tuple(blocks), weights, context / total, _lse(maximum, total))


def _base(maximum: Tensor) -> Tensor:
    # While no key has been seen, −inf − (−inf) would be NaN; exp(−inf − 0) is the 0 that is meant.
    return maximum.masked_fill(maximum == -torch.inf, 0.0)


def _lse(maximum: Tensor, total: Tensor) -> Tensor:
    return _base(maximum) + total.log()
