"""Save a Run and load it back: safetensors with a JSON header, described in docs/runfile.md.

Every number that was shown is in the file, so that showing it again gives the same bytes on any
machine. Nothing in it is executed.
"""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from attnscope.attention.call import AttentionCall
from attnscope.attention.engine import MaskSteps, Steps, find_method, hide
from attnscope.attention.masks import CAUSAL, EVERYTHING, Mask, from_tensor
from attnscope.attention.projections import Projections
from attnscope.attention.result import AttentionResult
from attnscope.errors import AttnscopeError, RunFileError
from attnscope.run import Axis, Inputs, Run, Settings
from attnscope.text.display import visible
from attnscope.text.tokens import Tokens, Vocabulary

VERSION = 1
_KEY = "attnscope"  # of the one entry in the safetensors metadata
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
        "format": VERSION,
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
    return safetensors.torch.save(tensors, {_KEY: text})


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
    name = visible(str(path))
    header, tensors = _read(path, name)
    try:
        return _run(header, tensors)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, AttnscopeError) as error:
        reason = visible(" ".join(str(error).split()))
        raise RunFileError(
            f"run file {name} is damaged: {type(error).__name__} {reason}", "Save the run again"
        ) from None


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
    return {"labels": axis.labels, "tokens": tokens}


def _read(path: Path, name: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if _KEY not in metadata:
                raise RunFileError(
                    f"{name} is a safetensors file, but no run that attnscope saved",
                    "To run its tensors, give it to attnscope run --qkv",
                )
            header = _header(metadata[_KEY], name)
            return header, {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise RunFileError(f"there is no run file {name}", "Check the path") from None
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        reason = visible(" ".join(str(error).split()))
        raise RunFileError(
            f"{name} is not a readable run file: {reason}", "Save the run again with --save"
        ) from None


def _header(text: str, name: str) -> dict[str, Any]:
    try:
        header = json.loads(text)
        version = header["format"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RunFileError(f"run file {name} has a damaged header", "Save the run again") from None
    if not isinstance(version, int) or version > VERSION:
        raise RunFileError(
            f"run file {name} has format {visible(str(version))}; this attnscope reads up to "
            f"{VERSION}",
            "Install a newer attnscope",
        )
    return dict(header)


def _run(header: dict[str, Any], tensors: dict[str, Tensor]) -> Run:
    queries = _axis(header["queries"])
    keys = queries if header["keys"] is None else _axis(header["keys"])
    layers = tuple(_layer(f"layer.{i}", layer, tensors) for i, layer in enumerate(header["layers"]))
    for result in layers:
        _check(result, len(queries), len(keys))
    inputs = None
    if header["has_inputs"]:
        names = ("w_query", "w_key", "w_value")
        inputs = Inputs(
            tensors["inputs.query_inputs"],
            tensors["inputs.key_inputs"],
            Projections(*(tensors[f"inputs.{name}"] for name in names)),
        )
    return Run(
        Settings(**header["settings"]),
        queries,
        keys,
        layers,
        inputs,
        tuple(header["warnings"]),
        tuple(header["notes"]),
        dict(header["provenance"]),
    )


def _layer(prefix: str, header: dict[str, Any], tensors: dict[str, Tensor]) -> AttentionResult:
    def get(name: str) -> Tensor:
        return tensors[f"{prefix}.{name}"]

    seen = get("visible")
    offset = int(header["query_offset"])
    call = AttentionCall(
        get("query"),
        get("key"),
        get("value"),
        scale=float(header["scale"]),
        mask=_mask(header["mask"], seen, offset),
        bias=tensors.get(f"{prefix}.bias"),
        softcap=header["softcap"],
        sinks=tensors.get(f"{prefix}.sinks"),
        query_offset=offset,
    )
    method = find_method(header["method"])
    masked = f"{prefix}.{_MASK_STEPS[0]}" in tensors
    steps = Steps(
        visible=seen,
        logits=hide(get("scaled"), seen),
        mask_steps=MaskSteps(*(get(name) for name in _MASK_STEPS)) if masked else None,
        **{name: get(name) for name in _STEPS},
    )
    gap = header["reference_gap"]
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
    return from_tensor(seen, query_offset=offset, name=name)


def _axis(header: dict[str, Any]) -> Axis:
    tokens = header["tokens"]
    labels = tuple(visible(str(label)) for label in header["labels"])  # a file may be forged
    if tokens is None:
        return Axis(labels)
    vocabulary = dict(tokens["vocabulary"])
    vocabulary["notes"] = tuple(vocabulary["notes"])
    read = Tokens(
        text=tokens["text"],
        pieces=tuple(tokens["pieces"]),
        labels=labels,
        ids=tuple(tokens["ids"]),
        spans=tuple((start, end) for start, end in tokens["spans"]),
        special=tuple(tokens["special"]),
        unknown=tuple(tokens["unknown"]),
        vocabulary=Vocabulary(**vocabulary),
    )
    lengths = {len(getattr(read, name)) for name in ("pieces", "labels", "ids", "spans")}
    if len(lengths) != 1:
        raise ValueError(f"tokens of {sorted(lengths)} lengths")
    return Axis(labels, read)


def _check(result: AttentionResult, queries: int, keys: int) -> None:
    """Raise ValueError if a tensor has another shape than the call it belongs to."""
    call, steps = result.call, result.steps
    rows, cells = (call.heads, call.queries), (call.heads, call.queries, call.keys)
    if (call.queries, call.keys) != (queries, keys):
        raise ValueError(f"{call.queries} × {call.keys} vectors for {queries} × {keys} labels")
    expected: dict[str, tuple[int, ...]] = dict.fromkeys(("scores", "scaled", "weights"), cells)
    expected |= {"context": (*rows, call.value.shape[2]), "logsumexp": rows}
    for name, shape in expected.items():
        found = tuple(getattr(steps, name).shape)
        if found != shape:
            raise ValueError(f"{name} has shape {found}, not {shape}")
    if steps.visible.dtype != torch.bool or steps.visible.shape[1:] != cells[1:]:
        raise ValueError(f"visible has shape {tuple(steps.visible.shape)}")
    if tuple(result.entropy.shape) != rows:
        raise ValueError(f"entropy has shape {tuple(result.entropy.shape)}, not {rows}")
    if not math.isfinite(call.scale):
        raise ValueError(f"scale is {call.scale}")
