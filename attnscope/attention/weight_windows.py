"""Exact weights of any rows and keys of a call of any length, and of any pairs of them."""

import torch
from torch import Tensor

from attnscope.attention import engine, fused
from attnscope.attention.call import AttentionCall
from attnscope.attention.first_pass import Rows, first_pass
from attnscope.attention.head_group import HeadGroup, head_groups, wide_dtype
from attnscope.attention.tile_weights import observed_rows
from attnscope.attention.verify import ObservedCall
from attnscope.errors import ShapeError

# Numbers in one gathered block of queries or keys: 16 MB in float32.
_BLOCK = 1 << 22
# Rows and keys that the first pass computes at a time.
_TILE = (256, 1024)


@torch.no_grad()
def known_rows(
    call: AttentionCall | ObservedCall, rows: slice, *, keep_context: bool = True
) -> Rows:
    """Return log-sum-exp, context and blindness of some rows, of which only these are computed.

    Shapes: logsumexp and blind (heads, rows), context (heads, rows, d_value).
    """
    rows = slice(*rows.indices(call.queries)[:2])
    if isinstance(call, ObservedCall):
        found = [
            observed_rows(call, head, rows, keep_context=keep_context) for head in range(call.heads)
        ]
    else:
        found = [_first_pass(group, rows, keep_context) for group in head_groups(call)]
    contexts = [known.context for known in found if known.context is not None]
    return Rows(
        torch.cat([known.logsumexp for known in found]),
        torch.cat(contexts) if contexts else None,
        torch.cat([known.blind for known in found]),
    )


def _first_pass(group: HeadGroup, rows: slice, keep_context: bool) -> Rows:
    return first_pass(
        group,
        rows,
        _TILE,
        keep_context=keep_context,
        use_fused=fused.takes(group),
        step=lambda: None,
    )


@torch.no_grad()
def weights_of(
    call: AttentionCall | ObservedCall,
    rows: slice,
    keys: slice,
    logsumexp: Tensor | None = None,
) -> Tensor:
    """Return the weights of some rows and keys, 0 where hidden.

    Shapes: logsumexp (heads, rows), of these rows, which is computed if it is not given ->
    (heads, rows, keys). Memory: three times the result.
    """
    rows, keys = (
        slice(*part.indices(count)[:2]) for part, count in ((rows, call.queries), (keys, call.keys))
    )
    if isinstance(call, ObservedCall):
        return call.weights[:, rows, keys].to(wide_dtype(call.weights.dtype))
    if logsumexp is None:
        logsumexp = known_rows(call, rows, keep_context=False).logsumexp
    elif tuple(logsumexp.shape) != (call.heads, rows.stop - rows.start):
        raise ShapeError(
            f"logsumexp has shape {tuple(logsumexp.shape)} for {call.heads} heads and "
            f"{rows.stop - rows.start} rows",
            "Give those of these rows",
        )
    parts = []
    for group in head_groups(call):
        logits, seen = group.logits(rows, keys)
        weights = (logits - logsumexp[group.heads, :, None]).exp()
        parts.append(weights if seen is None else weights.masked_fill(~seen, 0.0))
    return torch.cat(parts)


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
