"""A run file may be forged: every field and every tensor is checked before anything reads it."""

import dataclasses
import math
import types
import typing
from typing import Any, TypeVar

import torch
from torch import Tensor

from attnscope.attention.device import DTYPES
from attnscope.attention.engine import MaskMethod
from attnscope.attention.result import AttentionResult
from attnscope.run import Axis, Inputs, Settings
from attnscope.text.display import visible

T = TypeVar("T")

_MOST_DIGITS = 2**63  # what 64 bits hold


def read(kind: type[T], data: object, name: str) -> T:
    """Make a dataclass of a JSON object whose fields have exactly its names and types.

    Raises: ValueError naming the field.
    """
    fields = typing.get_type_hints(kind)
    if not isinstance(data, dict) or data.keys() != fields.keys():
        raise ValueError(f"{name} does not have the fields of {kind.__name__}")
    return kind(**{key: checked(hint, data[key], f"{name}.{key}") for key, hint in fields.items()})


def checked(hint: Any, value: object, name: str) -> Any:
    """Return a JSON value as the type that a hint names. Raises: ValueError naming the field."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if value is None:
            return None
        return checked(next(one for one in inner if one is not type(None)), value, name)
    if origin is tuple and isinstance(value, list):
        if inner[1:] == (...,):
            return tuple(checked(inner[0], one, name) for one in value)
        if len(value) == len(inner):
            return tuple(checked(one, part, name) for one, part in zip(inner, value, strict=True))
    elif origin is dict and isinstance(value, dict):
        return {checked(str, k, name): checked(inner[1], v, name) for k, v in value.items()}
    elif dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return read(hint, value, name)
    elif _is_plain(hint, value):
        return float(value) if hint is float else value  # type: ignore[arg-type]
    raise ValueError(f"{name} is {str(value)[:40]!r}")


def _is_plain(hint: Any, value: object) -> bool:
    if hint is bool:
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if hint is int:
        return isinstance(value, int) and abs(value) < _MOST_DIGITS
    if hint is float:
        return isinstance(value, int | float) and math.isfinite(value)
    return hint is str and isinstance(value, str) and _encodable(value)


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_settings(data: object) -> Settings:
    """Return the settings, every text in them safe to print."""
    settings = read(Settings, data, "settings")
    if settings.mask_method not in list(MaskMethod) or settings.dtype not in DTYPES:
        raise ValueError(f"settings name {settings.mask_method!r} and {settings.dtype!r}")
    texts: dict[str, Any] = {
        field.name: visible(value)
        for field in dataclasses.fields(settings)
        if isinstance(value := getattr(settings, field.name), str)
    }
    return dataclasses.replace(settings, **texts)


def check_result(result: AttentionResult, settings: Settings, queries: int, keys: int) -> None:
    """Raise ValueError if a tensor, or a setting, does not belong to the call it stands with."""
    call, steps, masked = result.call, result.steps, result.mask_steps
    if (call.queries, call.keys) != (queries, keys):
        raise ValueError(f"{call.queries} × {call.keys} vectors for {queries} × {keys} labels")
    asked = (settings.heads, settings.key_heads, settings.scale, settings.softcap)
    if asked != (call.heads, call.key_heads, call.scale, call.softcap):
        raise ValueError("settings and layer differ in heads, scale or softcap")
    if call.softcap is not None and call.softcap <= 0:
        raise ValueError(f"softcap is {call.softcap}")
    if (str(result.method) == "renormalize") != (masked is not None):
        raise ValueError(f"method {result.method} and its steps differ")
    dtype = DTYPES[settings.dtype]
    rows = (call.heads, call.queries)
    cells = (*rows, call.keys)
    for name in ("scores", "scaled", "weights"):
        _check(name, getattr(steps, name), cells, dtype)
    _check("query", call.query, tuple(call.query.shape), dtype)
    _check("context", steps.context, (*rows, call.value.shape[2]), dtype)
    _check("logsumexp", steps.logsumexp, rows, dtype)
    if masked is not None:
        _check("unmasked", masked.unmasked, cells, dtype)
        _check("masked", masked.masked, cells, dtype)
        _check("row_sums", masked.row_sums, rows, dtype)
    for name, extra in (("bias", call.bias), ("sinks", call.sinks)):
        if extra is not None:
            _check(name, extra, tuple(extra.shape), dtype)
    _check_measures(result, rows)


def _check_measures(result: AttentionResult, rows: tuple[int, int]) -> None:
    keys, weights = result.strongest_keys, result.strongest_weights
    if not result.entropy.is_floating_point():
        raise ValueError(f"entropy holds {result.entropy.dtype}")
    _check("entropy", result.entropy, rows, result.entropy.dtype)
    shape = (*rows, keys.shape[-1])
    _check("strongest_keys", keys, shape, torch.int64)
    _check("strongest_weights", weights, shape, result.weights.dtype)
    if bool(((keys < -1) | (keys >= result.call.keys)).any()):
        raise ValueError("strongest_keys name keys that are not there")


def check_visible(seen: Tensor, shape: tuple[int, int, int]) -> None:
    """Raise ValueError unless `seen` is bool of (heads or 1, queries, keys)."""
    if seen.dtype != torch.bool or tuple(seen.shape) not in (shape, (1, *shape[1:])):
        raise ValueError(f"visible has shape {tuple(seen.shape)}, not {shape}")


def check_inputs(inputs: Inputs, settings: Settings, queries: Axis, keys: Axis) -> None:
    """Raise ValueError if the embeddings or the projections have other shapes than settings say."""
    dtype, d_model = DTYPES[settings.dtype], settings.d_model or 0
    weights = inputs.projections
    _check("query_inputs", inputs.query_inputs, (len(queries), d_model), dtype)
    _check("key_inputs", inputs.key_inputs, (len(keys), d_model), dtype)
    for name, width in (
        ("w_query", settings.d_key),
        ("w_key", settings.d_key),
        ("w_value", settings.d_value),
    ):
        _check(name, getattr(weights, name), (settings.heads, d_model, width), dtype)


def _check(name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    if tuple(tensor.shape) != shape or tensor.dtype != dtype:
        raise ValueError(
            f"{name} is {tensor.dtype} of {tuple(tensor.shape)}, not {dtype} of {shape}"
        )
