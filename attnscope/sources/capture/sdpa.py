"""Torch's own attention functions, as a call: scaled_dot_product_attention, flex_attention."""

from typing import Any

import torch
from torch import Tensor

from attnscope.errors import ShapeError
from attnscope.sources.capture.seen import Seen, fold

_ARGUMENTS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


def dense_mask(mask: Any, query: Tensor, key: Tensor) -> Tensor | None:
    """Return a mask as a tensor: one made of a rule is written out.

    A CausalBias is a tensor whose numbers mean nothing; a BlockMask knows blocks only, so its
    rule is asked for every pair.
    """
    if mask is None:
        return None
    if hasattr(mask, "mask_mod"):
        from torch.nn.attention.flex_attention import create_mask

        return create_mask(
            mask.mask_mod,
            mask.shape[0] or 1,
            mask.shape[1] or 1,
            query.shape[-2],
            key.shape[-2],
            device=str(query.device),
        )
    if hasattr(mask, "_materialize"):
        written: Tensor = mask._materialize(query.device)
        return written
    if not isinstance(mask, Tensor):
        raise ShapeError(f"the mask is a {type(mask).__name__}", "A tensor is known")
    return mask


def seen_by_sdpa(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    output: Tensor,
    module: torch.nn.Module,
    batch: int | None,
) -> Seen:
    """Return the call of scaled_dot_product_attention(*args, **kwargs), which gave `output`."""
    a = {**dict(zip(_ARGUMENTS, args, strict=False)), **kwargs}
    query, key, value = a["query"], a["key"], a["value"]
    if query.is_nested:
        raise ShapeError("a nested tensor holds texts of several lengths", "Pad them")
    mask = dense_mask(a.get("attn_mask"), query, key)
    lead = output.shape[:-2]
    if mask is not None and mask.dim() > 2 and len(lead) != 2:
        mask = mask.expand(*lead, mask.shape[-2], mask.shape[-1])
    to = _batch_and_heads(lead, module, batch)
    return Seen(
        route="sdpa",
        query=_four_axes(query, lead, to),
        key=_four_axes(key, lead, to),
        value=_four_axes(value, lead, to),
        output=_four_axes(output, lead, to),
        mask=mask if mask is None or mask.dim() == 2 else _four_axes(mask, lead, to),
        causal=bool(a.get("is_causal")),
        scale=a.get("scale"),
        dropout=float(a.get("dropout_p") or 0.0),
    )


def _batch_and_heads(
    lead: torch.Size, module: torch.nn.Module, batch: int | None
) -> tuple[int, int]:
    if len(lead) == 0:
        return 1, 1
    if len(lead) == 1:
        return fold(lead[0], module, batch)
    return lead[:-1].numel(), lead[-1]


def _four_axes(tensor: Tensor, lead: torch.Size, to: tuple[int, int]) -> Tensor:
    """Return (batch, heads, rows, columns); fewer heads, of keys, stay fewer."""
    rows, columns = tensor.shape[-2:]
    if len(lead) == 2 and tensor.dim() == 4:
        return tensor
    if len(lead) < 2:
        return tensor.expand(*lead, rows, columns).reshape(*to, rows, columns)
    heads = tensor.shape[-3]
    return tensor.expand(*lead[:-1], heads, rows, columns).reshape(to[0], heads, rows, columns)


def seen_by_flex(args: tuple[Any, ...], output: Any) -> Seen:
    """Return the call of the flex_attention operator.

    Its score_mod is any function of a score and its place, so what it changed is kept as a bias.
    """
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    query, key, value, score_mod, block_mask, scale = args[:6]
    batch, heads, queries, _ = query.shape
    groups = heads // key.shape[1]
    scores = query.float() @ key.float().repeat_interleave(groups, 1).transpose(-1, -2) * scale
    sizes = (batch, heads, queries, key.shape[2])
    places = torch.meshgrid(*(torch.arange(n, device=query.device) for n in sizes), indexing="ij")
    flat = [place.reshape(-1) for place in places]
    # a rule may look up its own tensors at a place, which needs this mode under vmap
    with torch._C._EnableTorchFunction(), TransformGetItemToIndex():
        changed = torch.vmap(score_mod)(scores.reshape(-1), *flat).reshape(sizes)
        visible = torch.vmap(block_mask[-1])(*flat).reshape(sizes)
    return Seen(
        route="flex",
        query=query,
        key=key,
        value=value,
        output=output[0] if isinstance(output, tuple) else output,
        mask=visible,
        bias=changed - scores,
        scale=scale,
    )
