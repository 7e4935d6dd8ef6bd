"""Save a Run and load it back: safetensors with a JSON header, described in docs/runfile.md.

Every number that was shown is in the file, so that showing it again gives the same bytes on any
machine. Nothing in it is executed.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from attnscope.attention.call import AttentionCall
from attnscope.attention.engine import MaskSteps, Steps, find_method, hide
from attnscope.attention.engine import visible as engine_visible
from attnscope.attention.masks import CAUSAL, EVERYTHING, Mask, from_tensor
from attnscope.attention.projections import Projections
from attnscope.attention.result import AttentionResult
from attnscope.document_file import FileKind, damaged, read_document
from attnscope.errors import RunFileError
from attnscope.run import Axis, Inputs, Run
from attnscope.runfile_checks import (
    check_inputs,
    check_result,
    check_visible,
    checked,
    read,
    read_settings,
)
from attnscope.text.display import visible
from attnscope.text.tokens import Tokens

KIND = FileKind(
    "attnscope",
    1,
    "run file",
    "Save the run again",
    "is a safetensors file, but no run that attnscope saved",
    "To run its tensors, give it to attnscope run --qkv",
)
_STEPS = ("scores", "scaled", "weights", "context", "logsumexp")
_MASK_STEPS = ("unmasked", "masked", "row_sums")
_MEASURES = ("entropy", "strongest_weights", "strongest_keys")


def dump_run(run: Run) -> bytes:
    """Return a run as the bytes of a run file. Equal runs give equal bytes."""
    tensors: dict[str, Tensor] = {}
    if run.inputs is not None:
        tensors |= _named("inputs", run.inputs, ("query_inputs", "key_inputs"))
        names = ("w_query", "w_key", "w_value")
        tensors |= _named("inputs", run.inputs.projections, names)
    for i, result in enumerate(run.layers):
        tensors |= _layer_tensors(f"layer.{i}", result)
    header = {
        "format": KIND.version,
        "settings": dataclasses.asdict(run.settings),
        "queries": _axis_header(run.queries),
        "keys": _axis_header(run.keys) if run.crossed else None,
        "layers": [_layer_header(result) for result in run.layers],
        "has_inputs": run.inputs is not None,
        "warnings": run.warnings,
        "notes": run.notes,
        "provenance": run.provenance,
    }
    text = json.dumps(header, ensure_ascii=False, allow_nan=False)
    return safetensors.torch.save(tensors, {KIND.key: text})


def save_run(run: Run, path: str | Path) -> None:
    """Write a run to a new file. Raises: RunFileError if the file exists or cannot be written."""
    path = Path(path)
    try:
        with path.open("xb") as file:
            file.write(dump_run(run))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RunFileError(f"{visible(str(path))} cannot be written: {reason}") from None


def load_run(path: str | Path) -> Run:
    """Load a run file.

    Raises: RunFileError naming the file, if it is damaged, foreign or from a newer version.
    """
    path = Path(path)
    header, tensors = read_document(path, KIND)
    with damaged(path, KIND):
        return _run(header, tensors)


def _named(prefix: str, owner: object, names: tuple[str, ...]) -> dict[str, Tensor]:
    # a copy of its own for each: safetensors refuses tensors that share memory
    return {
        f"{prefix}.{name}": getattr(owner, name).detach().cpu().contiguous().clone()
        for name in names
    }


def _layer_tensors(prefix: str, result: AttentionResult) -> dict[str, Tensor]:
    call, steps = result.call, result.steps
    tensors = _named(prefix, call, ("query", "key", "value"))
    tensors |= _named(prefix, steps, ("visible", *_STEPS))
    tensors |= _named(prefix, result, _MEASURES)
    optional = tuple(name for name in ("bias", "sinks") if getattr(call, name) is not None)
    tensors |= _named(prefix, call, optional)
    if steps.mask_steps is not None:
        tensors |= _named(prefix, steps.mask_steps, _MASK_STEPS)
    return tensors


def _layer_header(result: AttentionResult) -> dict[str, Any]:
    call = result.call
    return {
        "mask": call.mask.name,
        "method": str(result.method),
        "query_offset": call.query_offset,
        "scale": call.scale,
        "softcap": call.softcap,
        # JSON has no NaN: the text of any float
        "reference_gap": None if result.reference_gap is None else repr(result.reference_gap),
    }


def _axis_header(axis: Axis) -> dict[str, Any]:
    tokens = None if axis.tokens is None else dataclasses.asdict(axis.tokens)
    return {"labels": axis.labels, "tokens": tokens, "first": axis.first}


def _run(header: dict[str, Any], tensors: dict[str, Tensor]) -> Run:
    settings = read_settings(header["settings"])
    queries = _axis(header["queries"])
    keys = queries if header["keys"] is None else _axis(header["keys"])
    entries = header["layers"]
    if not isinstance(entries, list) or not entries:
        raise ValueError("it holds no layers")
    layers = tuple(_layer(f"layer.{i}", entry, tensors) for i, entry in enumerate(entries))
    for result in layers:
        check_result(result, settings, len(queries), len(keys))
    inputs = None
    if checked(bool, header["has_inputs"], "has_inputs"):
        names = ("w_query", "w_key", "w_value")
        inputs = Inputs(
            tensors["inputs.query_inputs"],
            tensors["inputs.key_inputs"],
            Projections(*(tensors[f"inputs.{name}"] for name in names)),
        )
        check_inputs(inputs, settings, queries, keys)
    texts = {name: checked(tuple[str, ...], header[name], name) for name in ("warnings", "notes")}
    provenance = checked(dict[str, str], header["provenance"], "provenance")
    return Run(settings, queries, keys, layers, inputs, provenance=provenance, **texts)


@dataclasses.dataclass(frozen=True, slots=True)
class _LayerHeader:
    mask: str
    method: str
    query_offset: int
    scale: float
    softcap: float | None
    reference_gap: str | None


def _layer(prefix: str, header: object, tensors: dict[str, Tensor]) -> AttentionResult:
    def get(name: str) -> Tensor:
        return tensors[f"{prefix}.{name}"]

    given = read(_LayerHeader, header, prefix)
    seen = get("visible")
    query, key = get("query"), get("key")
    check_visible(seen, (query.shape[0], query.shape[1], key.shape[1]))
    call = AttentionCall(
        query,
        key,
        get("value"),
        scale=given.scale,
        mask=_mask(given.mask, seen, given.query_offset),
        bias=tensors.get(f"{prefix}.bias"),
        softcap=given.softcap,
        sinks=tensors.get(f"{prefix}.sinks"),
        query_offset=given.query_offset,
    )
    if not torch.equal(engine_visible(call).expand(seen.shape), seen):
        raise ValueError(f"visible is not what the mask {visible(given.mask)} lets see")
    method = find_method(given.method)
    masked = f"{prefix}.{_MASK_STEPS[0]}" in tensors
    steps = Steps(
        visible=seen,
        logits=hide(get("scaled"), seen),
        mask_steps=MaskSteps(*(get(name) for name in _MASK_STEPS)) if masked else None,
        **{name: get(name) for name in _STEPS},
    )
    gap = given.reference_gap
    entropy, strongest_weights, strongest_keys = (get(name) for name in _MEASURES)
    return AttentionResult(
        call,
        method,
        steps,
        entropy,
        strongest_weights,
        strongest_keys,
        None if gap is None else float(gap),
    )


def _mask(name: str, seen: Tensor, offset: int) -> Mask:
    for rule in (EVERYTHING, CAUSAL):
        if name == rule.name:
            return rule
    return from_tensor(seen, query_offset=offset, name=visible(name))


def _axis(header: object) -> Axis:
    axis = read(_AxisHeader, header, "axis")
    labels = tuple(visible(label) for label in axis.labels)
    if axis.first < 0:
        raise ValueError(f"an axis begins at {axis.first}")
    if axis.tokens is None:
        return Axis(labels, None, axis.first)
    tokens = dataclasses.replace(axis.tokens, labels=labels)
    names = ("pieces", "labels", "ids", "spans", "special", "unknown")
    lengths = {len(getattr(tokens, name)) for name in names}
    if len(lengths) != 1:
        raise ValueError(f"tokens of {sorted(lengths)} lengths")
    if any(not 0 <= start <= end <= len(tokens.text) for start, end in tokens.spans):
        raise ValueError("a span lies outside the text")
    vocabulary = dataclasses.replace(tokens.vocabulary, name=visible(tokens.vocabulary.name))
    return Axis(labels, dataclasses.replace(tokens, vocabulary=vocabulary), axis.first)


@dataclasses.dataclass(frozen=True, slots=True)
class _AxisHeader:
    labels: tuple[str, ...]
    tokens: Tokens | None
    first: int
