"""The equation, for any rows by any keys of an AttentionCall.

scores = q·kᵀ (the omegas); scaled = softcap(scale · scores) + bias; logits = scaled, −inf where
hidden; weights = softmax(logits); context = weights · v.
Source: Vaswani et al. 2017, "Attention Is All You Need", equation 1.

Everything is computed in the dtype of the call. All functions are differentiable.
"""

from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from attnscope.attention.call import AttentionCall
from attnscope.errors import OptionError

ALL = slice(None)


class MaskMethod(StrEnum):
    """How hidden keys get no weight."""

    NEG_INF = "neg-inf"  # −∞ before the softmax
    RENORMALIZE = "renormalize"  # softmax over all keys, times the mask, divided by the row sums


@dataclass(frozen=True, slots=True, eq=False)
class MaskSteps:
    """The steps between scaled scores and weights when masking by renormalising.

    Shapes: unmasked, masked (heads, queries, keys); row_sums (heads, queries).
    """

    unmasked: Tensor
    masked: Tensor
    row_sums: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Every matrix between a call and its context.

    Shapes: visible (heads or 1, queries, keys) bool; scores, scaled, logits, weights (heads,
    queries, keys); context (heads, queries, d_value); logsumexp (heads, queries).
    """

    visible: Tensor
    scores: Tensor
    scaled: Tensor
    logits: Tensor
    weights: Tensor
    context: Tensor
    logsumexp: Tensor
    mask_steps: MaskSteps | None


def find_method(name: str) -> MaskMethod:
    """Return the mask method called `name`. Raises: OptionError."""
    if name not in list(MaskMethod):
        raise OptionError(f"unknown mask method {name!r}", f"Give one of {', '.join(MaskMethod)}")
    return MaskMethod(name)


def compute(call: AttentionCall, method: MaskMethod = MaskMethod.NEG_INF) -> Steps:
    """Compute every step of a call.

    Memory: five matrices of heads × queries × keys.
    Raises: OptionError if the call has sinks and the method renormalises them away.
    """
    method = find_method(method)
    if method is MaskMethod.RENORMALIZE and call.sinks is not None:
        raise OptionError(
            "the renormalize method divides attention sinks away",
            "Use --mask-method neg-inf for a call with sinks",
        )
    seen = visible(call)
    omegas = scores(call)
    scaled = scale_scores(call, omegas)
    logits = hide(scaled, seen)
    mask_steps = None
    if method is MaskMethod.RENORMALIZE:
        weights, mask_steps = renormalized(scaled, seen)
    else:
        weights = softmax(logits, seen, call.sinks)
    # a weight of 0 times a value that is not finite is NaN, but a blind row read no value at all
    blind = ~seen.any(dim=-1, keepdim=True)
    return Steps(
        seen,
        omegas,
        scaled,
        logits,
        weights,
        context(call, weights).masked_fill(blind, 0.0),
        row_logsumexp(logits, call.sinks),
        mask_steps,
    )


def attention_context(call: AttentionCall) -> Tensor:
    """Return only the context of a call: (heads, queries, d_value)."""
    return compute(call).context


def visible(call: AttentionCall, rows: slice = ALL, keys: slice = ALL) -> Tensor:
    """Return which keys each query may see: (heads or 1, rows, keys) bool."""
    device = call.query.device
    query_positions = torch.arange(call.queries, device=device)[rows] + call.query_offset
    key_positions = torch.arange(call.keys, device=device)[keys]
    seen = call.mask.visible(query_positions, key_positions)
    return seen if seen.dim() == 3 else seen[None]


def scores(call: AttentionCall, rows: slice = ALL, keys: slice = ALL) -> Tensor:
    """Return the omegas q·kᵀ, before scale and mask: (heads, rows, keys)."""
    query = call.query[:, rows]
    key = call.key[:, keys]
    # heads that share a key head are stacked as rows of one product, so keys are read once
    stacked = query.reshape(call.key_heads, -1, query.shape[2])
    return (stacked @ key.transpose(1, 2)).reshape(call.heads, query.shape[1], key.shape[1])


def scale_scores(
    call: AttentionCall, omegas: Tensor, rows: slice = ALL, keys: slice = ALL
) -> Tensor:
    """Return softcap(scale · omegas) + bias: (heads, rows, keys)."""
    scaled = omegas * call.scale
    if call.softcap is not None:
        scaled = call.softcap * torch.tanh(scaled / call.softcap)
    if call.bias is not None:
        whole = call.bias.expand(call.heads, call.queries, call.keys)
        scaled = scaled + whole[:, rows, keys].to(scaled.dtype)
    return scaled


def hide(scaled: Tensor, seen: Tensor) -> Tensor:
    """Return the logits: −inf where a query may not see a key."""
    return scaled.masked_fill(~seen, -torch.inf)


def softmax(logits: Tensor, seen: Tensor, sinks: Tensor | None = None) -> Tensor:
    """Return the weights of each row: they add to 1, less what the sink takes, or 0 if unseen.

    A row that may see no key is found by asking the mask, so that a NaN which came in stays.
    """
    blind = ~seen.any(dim=-1, keepdim=True)
    safe = logits.masked_fill(blind, 0.0)  # softmax of nothing but −inf is NaN, and so its gradient
    if sinks is None:
        weights = torch.softmax(safe, dim=-1)
    else:
        column = sinks.to(safe.dtype)[:, None, None].expand(*safe.shape[:-1], 1)
        weights = torch.softmax(torch.cat([safe, column], dim=-1), dim=-1)[..., :-1]
    return weights.masked_fill(blind, 0.0)


def renormalized(scaled: Tensor, seen: Tensor) -> tuple[Tensor, MaskSteps]:
    """Return the weights by softmax over all keys, times the mask, divided by the row sums.

    Where the row sum of a row with visible keys underflows to 0, 0/0 is NaN and stays so.
    """
    blind = ~seen.any(dim=-1, keepdim=True)
    unmasked = torch.softmax(scaled, dim=-1)
    masked = unmasked * seen
    row_sums = masked.sum(dim=-1, keepdim=True)
    weights = (masked / row_sums.masked_fill(blind, 1.0)).masked_fill(blind, 0.0)
    return weights, MaskSteps(unmasked, masked, row_sums[..., 0])


def context(call: AttentionCall, weights: Tensor, keys: slice = ALL) -> Tensor:
    """Return weights · values: (heads, rows, d_value)."""
    rows = weights.shape[1]
    value = call.value[:, keys]
    stacked = weights.reshape(call.key_heads, -1, weights.shape[2])
    return (stacked @ value).reshape(call.heads, rows, value.shape[2])


def row_logsumexp(logits: Tensor, sinks: Tensor | None = None) -> Tensor:
    """Return log Σ exp(logit) of each row, the sink included; −inf for a row that sees nothing."""
    total = torch.logsumexp(logits, dim=-1)
    if sinks is None:
        return total
    return torch.logaddexp(total, sinks.to(total.dtype)[:, None])
