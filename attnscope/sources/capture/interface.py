"""What transformers hands to an attention implementation, as a call."""

import inspect
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from attnscope.errors import ShapeError
from attnscope.sources.capture.sdpa import dense_mask
from attnscope.sources.capture.seen import Seen
from attnscope.sources.capture.shared import Given

_FIRST = ("query", "key", "value", "attention_mask")
# Keywords that are in the record, and those that say nothing about this call's numbers.
_KNOWN = {
    *_FIRST,
    "scaling",
    "dropout",
    "is_causal",
    "sliding_window",  # in the mask, but for flash attention
    "softcap",
    "position_bias",
    "s_aux",
    "sinks",
    "position_ids",
    "cache_position",
    "use_cache",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "return_dict",
    "deterministic",
}
# Which keys an index chose; under these implementations the mask holds the choice.
_CHOSEN = {"indices", "block_indices"}
_MASKED = ("eager", "sdpa")


def seen_by_interface(
    name: str, function: Any, module: torch.nn.Module, given: Given, returned: Any
) -> Seen:
    """Return the call that `function`, known to transformers as `name`, was made for."""
    a = _named(function, *given)
    query, key, bias = a["query"], a["key"], a.get("position_bias")
    mask = _mask(name, function, module, a)
    return Seen(
        route="interface",
        query=query,
        key=key,
        value=a["value"],
        output=returned[0].transpose(1, 2),
        mask=mask,
        bias=bias,
        causal=name != "eager" and mask is None and _causal(a, module) and query.shape[2] > 1,
        scale=a.get("scaling"),
        softcap=a.get("softcap"),
        sinks=_sinks(a, module),
        dropout=float(a.get("dropout") or 0.0),
        unknown=_unknown(name, a),
    )


def _unknown(name: str, a: dict[str, Any]) -> tuple[str, ...]:
    known = _KNOWN | _CHOSEN if name in _MASKED else _KNOWN
    return tuple(sorted(k for k, v in a.items() if k not in known and v is not None))


def _mask(name: str, function: Any, module: torch.nn.Module, a: dict[str, Any]) -> Tensor | None:
    """Return the mask as a tensor of four axes, or None."""
    if "flash" in name or "flash" in getattr(function, "__name__", ""):
        return _flash_mask(a, module)
    mask = dense_mask(a.get("attention_mask"), a["query"], a["key"])
    if mask is None:
        return None
    if mask.dim() != 4:
        raise ShapeError(f"{name} was given a mask of {mask.dim()} axes", "4 are known")
    return mask[..., : a["key"].shape[2]]  # a static cache has room that the mask already covers


def _flash_mask(a: dict[str, Any], module: torch.nn.Module) -> Tensor | None:
    """Return what flash attention sees: it is told causal, a window and padding, by no mask.

    Its last query is at the last key that is not room of a static cache. Padding has two axes,
    and hides queries too: those of padded tokens are left out.
    """
    query: Tensor = a["query"]
    padding: Tensor | None = a.get("attention_mask")
    queries, keys = query.shape[2], a["key"].shape[2]
    window: int | None = a.get("sliding_window")
    if padding is None and window is None and queries in (1, keys):
        return None  # the record's own causal rule is the same
    if padding is not None and padding.dim() != 2:
        raise ShapeError(f"flash attention was given a mask of {padding.dim()} axes", "2 are known")
    given = keys if padding is None else padding.shape[-1]
    columns = torch.arange(keys, device=query.device)
    rows = torch.arange(given - queries, given, device=query.device)[:, None]
    visible = columns < given
    if _causal(a, module):
        visible = visible & (columns <= rows)
    if window is not None:
        visible = visible & ((rows - columns).abs() < window)
    visible = visible.expand(queries, keys)[None, None]
    if padding is not None:
        seen = padding.bool()
        visible = visible & torch.nn.functional.pad(seen, (0, keys - given))[:, None, None]
        if queries > 1:
            visible = visible & seen[:, -queries:][:, None, :, None]
    return visible


@lru_cache(maxsize=256)
def _parameters(function: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)[1:]


def _named(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return every argument by its name; the first four by one name in all implementations."""
    names = _parameters(function)
    canonical = dict(zip(names[:4], _FIRST, strict=False))
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    return {canonical.get(key, key): value for key, value in given.items()}


def _causal(a: dict[str, Any], module: torch.nn.Module) -> bool:
    given = a.get("is_causal")
    return bool(getattr(module, "is_causal", True) if given is None else given)


def _sinks(a: dict[str, Any], module: torch.nn.Module) -> Tensor | None:
    # some implementations take them as an argument, some ask the module
    for sinks in (a.get("s_aux"), a.get("sinks"), getattr(module, "sinks", None)):
        if isinstance(sinks, Tensor):
            return sinks
    return None
