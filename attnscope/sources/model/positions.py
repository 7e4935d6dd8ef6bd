"""What a model's modules and configuration say of a layer: rotary angles, positions, windows.

Only what can be known is said: "unknown" where nothing in the model tells.
"""

import re
from collections.abc import Mapping
from typing import Any

from torch import nn

from attnscope.attention.verify import CapturedCall

_ROTARY = re.compile("rotary|rope", re.IGNORECASE)
_LEARNED = re.compile(
    r"(^|\.)(position_embeddings?|embed_positions|wpe|pos_embed|pos_embeddings?)$"
)
_RELATIVE = re.compile(r"(^|\.)(rel_embeddings|relative_attention_bias|r_r_bias|pos_bias_u)$")
_OTHER_PARTS = re.compile("norm|mlp|feed|ffn|moe|expert|dropout|act|gate|router", re.IGNORECASE)
_LINEAR = re.compile("linear.*att|deltanet|retention|lightning|gla", re.IGNORECASE)


def positions_of(model: Any, captured: CapturedCall, *, bias: bool) -> str:
    """Return how a call knows where tokens stand: "rope θ 100000", "learned", "bias", …"""
    module = _module(model, captured)
    if module is not None and not getattr(module, "use_rope", True):
        return "none"
    rotary = captured.kind == "self" and _has(model, module, _ROTARY)
    if rotary:
        return _rope(model, captured)
    if bias:
        return "alibi bias" if _alibi(model) else "bias"
    if module is not None and any(_RELATIVE.search(name) for name, _ in model.named_modules()):
        # between two texts there is no distance, and such models have no other positions
        return "relative" if captured.kind == "self" else "none"
    for name, one in model.named_modules():
        if _LEARNED.search(name):
            return "sinusoidal" if "inusoid" in type(one).__name__ else "learned"
    return "unknown"


def window_of(model: Any, captured: CapturedCall) -> str | None:
    """Return the window or chunk that a layer is configured to have: "window 4096"."""
    if captured.kind == "cross":
        return None
    module, config = _module(model, captured), _config(model)
    kind = _layer_type(config, captured.layer)
    if kind == "chunked_attention":
        size = getattr(config, "attention_chunk_size", None)
        return f"chunks {size}" if isinstance(size, int) else None
    if module is not None and hasattr(module, "sliding_window"):
        size = module.sliding_window
    elif kind in (None, "sliding_attention"):
        used = getattr(config, "use_sliding_window", True)
        size = getattr(config, "sliding_window", None) if used is not False else None
    else:
        size = None
    return f"window {size}" if isinstance(size, int) and size > 0 else None


def mixer_of(model: Any, block: str) -> tuple[str, str]:
    """Return the class that stands in a block where others have attention, and its kind."""
    module = model.get_submodule(block)
    mixers = [
        type(child).__name__
        for name, child in module.named_children()
        if not _OTHER_PARTS.search(name) and not isinstance(child, nn.Linear | nn.Dropout)
    ]
    name = mixers[0] if mixers else type(module).__name__
    return name, "linear" if _LINEAR.search(name) else "none"


def _module(model: Any, captured: CapturedCall) -> nn.Module | None:
    try:
        found: nn.Module = model.get_submodule(captured.module_name)
    except AttributeError:
        return None
    return found


def module_class(model: Any, captured: CapturedCall) -> str:
    """Return the class of the module that made a call."""
    module = _module(model, captured)
    return "" if module is None else type(module).__name__


def _config(model: Any) -> Any:
    return model.config.get_text_config(decoder=True)


def _layer_type(config: Any, layer: int) -> str | None:
    types = getattr(config, "layer_types", None)
    return types[layer] if isinstance(types, list | tuple) and layer < len(types) else None


def _has(model: Any, module: nn.Module | None, wanted: re.Pattern[str]) -> bool:
    """Return whether the attention has such a part, or the model one for all."""
    inside = [] if module is None else [(n, m) for n, m in module.named_modules() if n]
    shared = [(n, m) for n, m in model.named_modules() if n and not _inside_a_list(n)]
    return any(wanted.search(f"{n} {type(m).__name__}") for n, m in (*inside, *shared))


def _inside_a_list(name: str) -> bool:
    return any(piece.isdecimal() for piece in name.split("."))


def _rope(model: Any, captured: CapturedCall) -> str:
    config = _config(model)
    given = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)
    kind = _layer_type(config, captured.layer)
    if isinstance(given, Mapping) and kind is not None and isinstance(given.get(kind), Mapping):
        given = given[kind]
    given = given if isinstance(given, Mapping) else {}
    theta = given.get("rope_theta", getattr(config, "rope_theta", None))
    said = "rope" if not isinstance(theta, int | float) else f"rope θ {theta:.10g}"
    how = given.get("rope_type", "default")
    part = given.get("partial_rotary_factor", getattr(config, "partial_rotary_factor", None))
    said += "" if how in (None, "default") else f", {how}"
    if isinstance(part, int | float) and part != 1:
        said += f", {100 * part:.4g} % of the width"
    return said


def _alibi(model: Any) -> bool:
    config = _config(model)
    attention = getattr(config, "attn_config", None)
    return bool(
        getattr(config, "alibi", False)
        or getattr(attention, "alibi", False)
        or config.model_type == "bloom"
    )
