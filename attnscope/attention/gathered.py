"""Parts of a call that are no slices: any rows by any keys, pairs, and all keys but the first."""

from dataclasses import replace

import torch
from torch import Tensor

from attnscope.attention import engine
from attnscope.attention.call import AttentionCall
from attnscope.attention.head_group import wide_dtype
from attnscope.attention.mask_kinds import recognised
from attnscope.attention.masks import EVERYTHING, HIDDEN_AT_MOST, Mask, from_tensor
from attnscope.attention.verify import ObservedCall

Call = AttentionCall | ObservedCall


def gathered(call: AttentionCall, rows: Tensor, keys: Tensor) -> AttentionCall:
    """Return some rows by some keys as a call of its own, in the dtype numbers are computed in.

    What a row sees, its bias and its head's sink stay as they are.
    Shapes: rows, keys: numbers of rows and columns, in any order.
    Memory: the queries, keys and values that were asked for, and rows × keys of bias.
    """
    dtype = wide_dtype(call.query.dtype)
    places = rows + call.query_offset
    bias = call.bias
    if bias is not None:
        whole = bias.expand(call.heads, call.queries, call.keys)
        bias = whole[:, rows[:, None], keys[None, :]].to(dtype)
    return AttentionCall(
        call.query[:, rows].to(dtype),
        call.key[:, keys].to(dtype),
        call.value[:, keys].to(dtype),
        call.scale,
        Mask(call.mask.name, lambda q, k: call.mask.rule(places[q], keys[k])),
        bias,
        call.softcap,
        None if call.sinks is None else call.sinks.to(dtype),
    )


def weights_between(
    call: Call, logsumexp: Tensor, rows: Tensor, keys: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the weights of some rows by some keys, and which of them may be seen.

    A hidden key has weight 0. `logsumexp` is that of all rows.
    Shapes: logsumexp (heads, queries); (heads, rows, keys), (heads or 1, rows, keys) bool.
    """
    if isinstance(call, ObservedCall):
        here = (slice(None), rows[:, None], keys[None, :])
        weights = call.weights[here].to(wide_dtype(call.weights.dtype))
        if call.scores is None:
            return weights, torch.ones_like(weights[:1], dtype=torch.bool)
        return weights, ~(call.scores[here] <= HIDDEN_AT_MOST)
    part = gathered(call, rows, keys)
    seen = engine.visible(part)
    logits = engine.scale_scores(part, engine.scores(part))
    weights = (logits - logsumexp[:, rows, None]).exp()
    return weights.masked_fill(~seen, 0.0), seen


def seen_pairs(call: Call, rows: Tensor, keys: Tensor) -> Tensor:
    """Return whether row rows[i] may see key keys[i]: (heads or 1, pairs) bool.

    Where the scores of an observed call are not known, all pairs count as seen.
    """
    if isinstance(call, ObservedCall):
        if call.scores is None:
            return torch.ones(1, len(rows), dtype=torch.bool, device=rows.device)
        return ~(call.scores[:, rows, keys] <= HIDDEN_AT_MOST)
    places = rows + call.query_offset
    seen = call.mask.rule(places[:, None], keys[:, None])[..., 0]
    return seen if seen.dim() == 2 else seen[None]


def without_first(call: Call) -> Call | None:
    """Return a call as it would be if its first key were hidden; None if it has no other.

    The rest of each row is divided anew, a learned sink's share included. A row that sees nothing
    but the first key is left blind. Column j is key j + 1 of the call. Nothing is taken from 1, so
    that what a strong first key leaves to the others is as exact as all else.
    """
    if call.keys == 1:
        return None
    if isinstance(call, ObservedCall):
        rest = call.weights[..., 1:].to(torch.promote_types(call.weights.dtype, torch.float32))
        total = rest.sum(dim=-1, keepdim=True)
        # a row of nothing is blind; a NaN is not 0 and stays
        rest = rest / total.masked_fill(total == 0.0, 1.0)
        scores = None if call.scores is None else call.scores[..., 1:]
        return ObservedCall(rest, call.value[:, 1:], scores)
    bias = call.bias
    if bias is not None and bias.shape[-1] > 1:
        bias = bias[..., 1:]
    rule = call.mask.rule
    return replace(
        call,
        key=call.key[:, 1:],
        value=call.value[:, 1:],
        mask=Mask(call.mask.name, lambda q, k: rule(q + 1, k + 1), call.mask.reach),
        bias=bias,
        query_offset=call.query_offset - 1,
    )


def uniform_like(call: Call) -> AttentionCall:
    """Return a call whose rows spread evenly over what those of `call` may see.

    It has one head, unless the heads of `call` see different keys.
    """
    mask, offset = _mask_of(call)
    device, dtype = call.value.device, wide_dtype(call.value.dtype)
    one = torch.zeros(1, dtype=torch.int64, device=device)
    by_head = mask.visible(one + offset, one)
    heads = by_head.shape[0] if by_head.dim() == 3 else 1
    zero = torch.zeros((), dtype=dtype, device=device)
    key = zero.expand(heads, call.keys, 1)
    return AttentionCall(
        zero.expand(heads, call.queries, 1), key, key, 1.0, mask, query_offset=offset
    )


def _mask_of(call: Call) -> tuple[Mask, int]:
    if isinstance(call, AttentionCall):
        return call.mask, call.query_offset
    if call.scores is None:
        return EVERYTHING, 0
    seen = ~(call.scores <= HIDDEN_AT_MOST)
    return (from_tensor(seen[:1]) if bool((seen == seen[:1]).all()) else from_tensor(seen)), 0


def with_rule(call: Call) -> Call:
    """Return the same call with its mask as a rule, if it came as a tensor that is one.

    A rule tells how far it reaches, so that most blocks need not be asked for.
    Memory: queries × keys truth values, where there is such a tensor already.
    """
    if isinstance(call, ObservedCall) or call.mask.reach.filled:
        return call
    return replace(call, mask=recognised(engine.visible(call), call.query_offset))
