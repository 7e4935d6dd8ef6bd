"""Save the measures of a text of any length and load them back: see docs/measuredfile.md.

A file of measures holds the numbers of rows, keys and heads, and the map, as they were computed.
Query, key and value of each call are kept if that is asked for. Nothing in the file is executed.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from attnscope.attention.call import AttentionCall
from attnscope.attention.engine import visible as engine_visible
from attnscope.attention.measured import Measures
from attnscope.attention.verify import ObservedCall
from attnscope.document_file import FileKind, damaged, holds, read_document
from attnscope.errors import RunFileError
from attnscope.measured_run import MeasuredLayer, MeasuredRun
from attnscope.measuredfile_checks import (
    Asked,
    CallHeader,
    LayerHeader,
    SiteHeader,
    read_axis,
    read_layer,
    says_all,
)
from attnscope.recordfile_checks import AxisHeader, rule_called
from attnscope.run import Axis
from attnscope.runfile_checks import checked, read_settings
from attnscope.text.display import visible

KIND = FileKind(
    "attnscope-measures",
    1,
    "file of measures",
    "Save the run again",
    "is a safetensors file, and holds no measures",
    "To run its tensors, give it to attnscope run --qkv",
)
# A reader of safetensors takes no header above 100 MB.
_MOST_HEADER = 90_000_000


def dump_measured(run: MeasuredRun, *, keep_qkv: bool = False) -> bytes:
    """Return a measured run as the bytes of a file. Equal runs give equal bytes.

    `keep_qkv`: with query, key and value of each call that still has them, from which any row can
    be computed again.
    Memory: a second copy of every tensor.
    Raises: RunFileError if there are more words than a file can hold.
    """
    tensors: dict[str, Tensor] = {}
    layers = [
        _layer(f"layer.{i}", layer, tensors, keep_qkv=keep_qkv)
        for i, layer in enumerate(run.layers)
    ]
    header = {
        "format": KIND.version,
        "settings": dataclasses.asdict(run.settings),
        "queries": _axis(run.queries),
        "keys": _axis(run.keys) if run.crossed else None,
        "top": run.top,
        "window": run.window,
        "grid": run.grid,
        "layers": [dataclasses.asdict(layer) for layer in layers],
        "warnings": run.warnings,
        "notes": run.notes,
        "provenance": run.provenance,
    }
    text = json.dumps(header, ensure_ascii=False, allow_nan=False)
    if len(text.encode()) > _MOST_HEADER:
        raise RunFileError(
            f"{len(run.queries):,} queries and {len(run.keys):,} keys have more words than a file "
            "can hold",
            "Write JSON with --output, or a part of the text",
        )
    return safetensors.torch.save(tensors, {KIND.key: text})


def is_measured(path: str | Path) -> bool:
    """Return whether a file says that it holds measures, whatever else may be wrong with it."""
    return holds(path, KIND)


def load_measured(path: str | Path) -> MeasuredRun:
    """Load a file of measures.

    Raises: RunFileError naming the file, if it is damaged, foreign or from a newer version.
    """
    path = Path(path)
    header, tensors = read_document(path, KIND)
    with damaged(path, KIND):
        return _run(header, tensors)


def _axis(axis: Axis) -> dict[str, Any]:
    return dataclasses.asdict(AxisHeader(axis.labels, axis.tokens, axis.first))


def _layer(
    prefix: str, layer: MeasuredLayer, tensors: dict[str, Tensor], *, keep_qkv: bool
) -> LayerHeader:
    measures, site = layer.measures, layer.site
    for field in dataclasses.fields(Measures):
        value = getattr(measures, field.name)
        if isinstance(value, Tensor):
            tensors[f"{prefix}.{field.name}"] = _own(value)
    kept = None
    if keep_qkv and layer.call is not None:
        kept = _call(f"{prefix}.call", layer.call, tensors)
    placed = None
    if site is not None:
        told = {field.name: getattr(site, field.name) for field in dataclasses.fields(SiteHeader)}
        placed = SiteHeader(**{**told, "error": repr(site.error)})
    return LayerHeader(
        layer.numbers, layer.key_heads, measures.nearest, measures.map_cell, placed, kept
    )


def _call(
    prefix: str, call: AttentionCall | ObservedCall, tensors: dict[str, Tensor]
) -> CallHeader:
    observed = isinstance(call, ObservedCall)
    names = (
        ("weights", "value", "scores") if observed else ("query", "key", "value", "bias", "sinks")
    )
    for name in names:
        tensor = getattr(call, name)
        if tensor is not None:
            tensors[f"{prefix}.{name}"] = _own(tensor)
    if isinstance(call, ObservedCall):
        return CallHeader(True, None, None, 0, "none", False)
    name, seen = call.mask.name, None
    if not says_all(call):
        seen = tensors[f"{prefix}.visible"] = _own(engine_visible(call))
        name = "given" if rule_called(name) is not None else name
    return CallHeader(False, call.scale, call.softcap, call.query_offset, name, seen is not None)


def _own(tensor: Tensor) -> Tensor:
    # a copy of its own for each: safetensors refuses tensors that share memory
    return tensor.detach().cpu().contiguous().clone()


def _run(header: dict[str, Any], tensors: dict[str, Tensor]) -> MeasuredRun:
    settings = read_settings(header["settings"])
    queries = read_axis(checked(AxisHeader, header["queries"], "queries"))
    other = checked(AxisHeader | None, header["keys"], "keys")
    keys = queries if other is None else read_axis(other)
    top, window = (checked(int, header[name], name) for name in ("top", "window"))
    grid = checked(int | None, header["grid"], "grid")
    asked = Asked(settings, len(queries), len(keys), top, window, grid)
    asked.check()
    headers = checked(tuple[LayerHeader, ...], header["layers"], "layers")
    if not headers:
        raise ValueError("it holds no layers")
    layers = tuple(read_layer(f"layer.{i}", one, asked, tensors) for i, one in enumerate(headers))
    warnings, notes = (
        tuple(visible(line) for line in checked(tuple[str, ...], header[name], name))
        for name in ("warnings", "notes")
    )
    said = checked(dict[str, str], header["provenance"], "provenance")
    provenance = {visible(key): visible(value) for key, value in said.items()}
    return MeasuredRun(
        settings, queries, keys, layers, top, window, grid, warnings, notes, provenance
    )
