"""Exact weights of any rows and keys of a call of any length, and of any pairs of them."""

import torch
from torch import Tensor

from attnscope.attention import engine
from attnscope.attention.call import AttentionCall
from attnscope.attention.call_stripe import CallStripe
from attnscope.attention.head_group import HeadGroup, head_groups, wide_dtype
from attnscope.attention.observed_stripe import observed_rows
from attnscope.attention.stripe import Rows, Scratch
from attnscope.attention.verify import ObservedCall
from attnscope.errors import ShapeError

# Numbers in one gathered block of queries, keys or weights: 16 MB in float32.
_BLOCK = 1 << 22


@torch.no_grad()
def window_weights(
    call: AttentionCall | ObservedCall, rows: slice, keys: slice, *, plain: bool | None = None
) -> tuple[Tensor, Rows]:
    """Return the weights of some rows and keys, 0 where hidden, and what is known of these rows.

    Whole rows are computed, some at a time: so weights are those of the whole row, and those of
    all keys add to 1 however large the logits are. `plain`: False for logits by the equation, step
    by step, as the dense engine has them; else they are those that `measure` has.
    Shapes: weights (heads, rows, keys); logsumexp and blind (heads, rows), context (heads, rows,
    d_value). Memory: three times the weights, and some whole rows.
    """
    rows, keys = (
        slice(*part.indices(count)[:2]) for part, count in ((rows, call.queries), (keys, call.keys))
    )
    if isinstance(call, ObservedCall):
        weights = call.weights[:, rows, keys].to(wide_dtype(call.weights.dtype))
        heads = range(call.heads)
        return weights, _joined(
            [observed_rows(call, head, rows, keep_context=True) for head in heads], dim=0
        )
    step = max(1, _BLOCK // (call.keys * (call.heads // call.key_heads)))
    scratch = Scratch(wide_dtype(call.query.dtype), call.query.device)
    starts = range(rows.start, rows.stop, step)
    blocks = [slice(start, min(start + step, rows.stop)) for start in starts]
    weights_by_group, found = [], []
    for group in head_groups(call, plain=plain):
        parts = [_rows_of(group, some, keys, scratch) for some in blocks]
        weights_by_group.append(torch.cat([part for part, _ in parts], dim=1))
        found.append(_joined([known for _, known in parts], dim=1))
    return torch.cat(weights_by_group), _joined(found, dim=0)


def _rows_of(group: HeadGroup, rows: slice, keys: slice, scratch: Scratch) -> tuple[Tensor, Rows]:
    """Return the weights of some keys in some rows of a group, and what is known of the rows."""
    stripe = CallStripe(group, rows, scratch, keep_context=True)
    first, end = group.span(rows)
    shape = group.size, rows.stop - rows.start
    whole = torch.empty(
        shape[0] * shape[1], end - first, dtype=scratch.dtype, device=scratch.device
    )
    stripe.fill(slice(first, end), whole)
    weights = whole.new_zeros(*shape, max(0, keys.stop - keys.start))
    low, high = max(first, keys.start), min(end, keys.stop)
    if low < high:
        here = slice(low - keys.start, high - keys.start)
        weights[..., here] = whole.view(*shape, -1)[..., low - first : high - first]
    return weights, stripe.known()


def _joined(parts: list[Rows], dim: int) -> Rows:
    contexts = [known.context for known in parts if known.context is not None]
    return Rows(
        torch.cat([known.logsumexp for known in parts], dim),
        torch.cat(contexts, dim) if contexts else None,
        torch.cat([known.blind for known in parts], dim),
    )


@torch.no_grad()
def weights_at(
    call: AttentionCall | ObservedCall, logsumexp: Tensor, queries: Tensor, keys: Tensor
) -> Tensor:
    """Return the weight that each of some queries gives to the key beside it, 0 where hidden.

    Shapes: logsumexp (heads, all queries); queries, keys (pairs,) -> (heads, pairs).
    Raises: ShapeError if there are not as many queries as keys.
    """
    if queries.shape != keys.shape or queries.dim() != 1:
        raise ShapeError(
            f"queries have shape {tuple(queries.shape)} and keys {tuple(keys.shape)}",
            "Give one list of each, equally long",
        )
    if isinstance(call, ObservedCall):
        return call.weights[:, queries, keys].to(wide_dtype(call.weights.dtype))
    step = max(1, _BLOCK // (call.heads * call.query.shape[2]))
    parts = [
        _pairs(call, logsumexp, queries[start : start + step], keys[start : start + step])
        for start in range(0, len(queries), step)
    ]
    return torch.cat(parts, dim=1) if parts else logsumexp[:, :0]


def _pairs(call: AttentionCall, logsumexp: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
    wide = wide_dtype(call.query.dtype)
    query, key = call.query[:, queries].to(wide), call.key[:, keys].to(wide)
    shared = query.view(call.key_heads, -1, *query.shape[1:]) * key[:, None]
    omegas = shared.sum(dim=-1).flatten(0, 1)
    # the engine takes lists of places wherever it takes slices: a list of each makes pairs
    scaled = engine.scale_scores(call, omegas, queries, keys)  # type: ignore[arg-type]
    # a rule on columns of positions gives one column
    seen = call.mask.rule((queries + call.query_offset)[:, None], keys[:, None])[..., 0]
    weights = (engine.hide(scaled, seen) - logsumexp[:, queries]).exp()
    return weights.masked_fill(~seen, 0.0)
