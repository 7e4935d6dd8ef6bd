"""A record file may be forged: its headers, and every tensor checked before it becomes a call."""

import dataclasses
import re
from collections.abc import Sequence
from typing import cast, get_args

import torch
from torch import Tensor

from attnscope.attention.call import AttentionCall
from attnscope.attention.mask_kinds import band, chunks, window
from attnscope.attention.masks import CAUSAL, EVERYTHING, Mask, from_tensor
from attnscope.attention.verify import TOLERANCES, CapturedCall, Kind, ObservedCall, Route
from attnscope.model_run import ModelCall, ModelRun
from attnscope.run import Axis, Site
from attnscope.text.display import visible
from attnscope.text.tokens import Tokens

_PARTS = ("", "encoder", "decoder", "cross")
_SIZED = {"window": window, "window ±": band, "causal chunks": chunks}


def rule_called(name: str) -> Mask | None:
    """Return the mask that a name says all about: "causal", "window 4096", …; else None."""
    for rule in (EVERYTHING, CAUSAL):
        if name == rule.name:
            return rule
    found = re.fullmatch(r"(window ±|window|causal chunks) ?([0-9]{1,9})", name)
    if found is None:
        return None
    size = int(found[2])
    # a window of 0 keys hides everything, and no chunk is 0 keys long
    sized = _SIZED[found[1]](size) if size else None
    return sized if sized is not None and sized.name == name else None


@dataclasses.dataclass(frozen=True, slots=True)
class AxisHeader:
    """An axis in the file."""

    labels: tuple[str, ...]
    tokens: Tokens | None
    first: int

    def axis(self) -> Axis:
        """Return the axis, every label safe to print. Raises: ValueError."""
        labels = tuple(visible(label) for label in self.labels)
        if self.first < 0:
            raise ValueError(f"an axis begins at {self.first}")
        if self.tokens is None:
            return Axis(labels, None, self.first)
        tokens = dataclasses.replace(self.tokens, labels=labels)
        names = ("pieces", "labels", "ids", "spans", "special", "unknown")
        lengths = {len(getattr(tokens, name)) for name in names}
        if len(lengths) != 1:
            raise ValueError(f"tokens of {sorted(lengths)} lengths")
        if any(not 0 <= start <= end <= len(tokens.text) for start, end in tokens.spans):
            raise ValueError("a span lies outside the text")
        vocabulary = dataclasses.replace(tokens.vocabulary, name=visible(tokens.vocabulary.name))
        return Axis(labels, dataclasses.replace(tokens, vocabulary=vocabulary), self.first)


@dataclasses.dataclass(frozen=True, slots=True)
class CallHeader:
    """A call in the file: numbers and names; `queries` and `keys` are places in the axes.

    `visible`, `bias` and `sinks` name tensors, or are None where the call has none. `visible` is
    None too if the name of the mask says what is seen.
    """

    name: str
    layer: int
    part: str
    module_name: str
    nth: int
    route: str
    error: str
    tolerance: float
    queries: int
    keys: int
    kind: str
    step: int
    text: int
    query_offset: int
    key_offset: int
    dropout: float
    unknown: tuple[str, ...]
    observed: bool
    scale: float | None
    softcap: float | None
    first_position: int  # of the record's own first row, which its mask counts from
    mask: str
    visible: str | None
    bias: str | None
    sinks: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class RunHeader:
    """A run in the file."""

    model: str
    queries: int
    source: int | None
    calls: tuple[CallHeader, ...]
    without: tuple[str, ...]
    skipped: tuple[str, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    provenance: dict[str, str]


def read_run(
    number: int, header: RunHeader, axes: Sequence[Axis], tensors: dict[str, Tensor]
) -> ModelRun:
    """Return a run of the file, every text in it safe to print. Raises: ValueError, KeyError."""
    if not header.calls:
        raise ValueError(f"run {number} holds no calls")
    calls = tuple(
        _call(f"run.{number}.call.{i}", call, axes, tensors) for i, call in enumerate(header.calls)
    )
    return ModelRun(
        visible(header.model),
        _at(axes, header.queries),
        calls,
        None if header.source is None else _at(axes, header.source),
        _safe(header.without),
        _safe(header.skipped),
        _safe(header.notes),
        _safe(header.warnings),
        {visible(key): visible(value) for key, value in header.provenance.items()},
    )


def _safe(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(visible(text) for text in texts)


def _at(axes: Sequence[Axis], number: int) -> Axis:
    if not 0 <= number < len(axes):
        raise ValueError(f"there is no axis {number}")
    return axes[number]


def _call(
    prefix: str, header: CallHeader, axes: Sequence[Axis], tensors: dict[str, Tensor]
) -> ModelCall:
    _check_numbers(prefix, header)
    record = _observed(prefix, tensors) if header.observed else _scored(prefix, header, tensors)
    output = tensors[f"{prefix}.output"]
    _check(f"{prefix}.output", output, (record.heads, record.queries, record.value.shape[2]))
    queries, keys = _at(axes, header.queries), _at(axes, header.keys)
    if (record.queries, record.keys) != (len(queries), len(keys)):
        raise ValueError(
            f"{prefix} has {record.queries} × {record.keys} vectors for "
            f"{len(queries)} × {len(keys)} labels"
        )
    if header.tolerance != TOLERANCES[output.dtype]:
        raise ValueError(f"{prefix}.tolerance is {header.tolerance} for {output.dtype}")
    captured = CapturedCall(
        record,
        output,
        visible(header.module_name),
        header.layer,
        header.nth,
        header.step,
        header.text,
        cast(Kind, _known("kind", header.kind, get_args(Kind))),
        cast(Route, _known("route", header.route, get_args(Route))),
        header.query_offset,
        header.key_offset,
        header.dropout,
        _safe(header.unknown),
    )
    lengths = tensors.get(f"{prefix}.projected_lengths")
    if lengths is not None:
        _check(f"{prefix}.projected_lengths", lengths, (record.heads, record.keys))
    return ModelCall(_site(header), captured, queries, keys, lengths)


def _site(header: CallHeader) -> Site:
    error = float(header.error)
    if error < 0:  # a NaN is no number, and says so when it is shown
        raise ValueError(f"{visible(header.name)} has the error {error}")
    return Site(
        visible(header.name),
        header.layer,
        header.part,
        visible(header.module_name),
        header.nth,
        header.route,
        error,
        header.tolerance,
    )


def _check_numbers(prefix: str, header: CallHeader) -> None:
    for name in ("layer", "nth", "step", "text", "query_offset", "key_offset", "first_position"):
        if getattr(header, name) < 0:
            raise ValueError(f"{prefix}.{name} is {getattr(header, name)}")
    if not 0.0 <= header.dropout <= 1.0:
        raise ValueError(f"{prefix}.dropout is {header.dropout}")
    _known(f"{prefix}.part", header.part, _PARTS)
    if header.softcap is not None and header.softcap <= 0:
        raise ValueError(f"{prefix}.softcap is {header.softcap}")
    if header.observed != (header.scale is None):
        raise ValueError(f"{prefix}.scale is {header.scale}")


def _scored(prefix: str, header: CallHeader, tensors: dict[str, Tensor]) -> AttentionCall:
    query, key, value = (tensors[f"{prefix}.{name}"] for name in ("query", "key", "value"))
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        _check(f"{prefix}.{name}", tensor, tuple(tensor.shape))
    bias, sinks = (None if x is None else tensors[x] for x in (header.bias, header.sinks))
    for extra in (bias, sinks):
        if extra is not None:
            _check(f"{prefix}.bias or .sinks", extra, tuple(extra.shape))
    assert header.scale is not None  # checked with the other numbers
    call = AttentionCall(
        query,
        key,
        value,
        scale=header.scale,
        bias=bias,
        softcap=header.softcap,
        sinks=sinks,
        query_offset=header.first_position,
    )
    return dataclasses.replace(call, mask=_mask(prefix, header, call, tensors))


def _mask(prefix: str, header: CallHeader, call: AttentionCall, tensors: dict[str, Tensor]) -> Mask:
    rule = rule_called(header.mask)
    if (rule is None) != (header.visible is not None):
        raise ValueError(f"{prefix} has the mask {header.mask[:40]!r}, whose cells are not its own")
    if rule is not None:
        return rule
    seen = tensors[cast(str, header.visible)]
    cells = (call.heads, call.queries, call.keys)
    if seen.dtype != torch.bool or tuple(seen.shape) not in (cells, (1, *cells[1:])):
        raise ValueError(f"{header.visible} is {seen.dtype} of {tuple(seen.shape)}, not {cells}")
    return from_tensor(seen, query_offset=header.first_position, name=visible(header.mask))


def _observed(prefix: str, tensors: dict[str, Tensor]) -> ObservedCall:
    weights, value = tensors[f"{prefix}.weights"], tensors[f"{prefix}.value"]
    scores = tensors.get(f"{prefix}.scores")
    if weights.dim() != 3 or value.dim() != 3 or 0 in (*weights.shape, *value.shape):
        raise ValueError(f"{prefix} has shapes {tuple(weights.shape)} and {tuple(value.shape)}")
    _check(f"{prefix}.weights", weights, tuple(weights.shape))
    _check(f"{prefix}.value", value, (weights.shape[0], weights.shape[2], value.shape[2]))
    if scores is not None:
        _check(f"{prefix}.scores", scores, tuple(weights.shape))
    return ObservedCall(weights, value, scores)


def _check(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape or tensor.dtype not in TOLERANCES:
        raise ValueError(f"{name} is {tensor.dtype} of {tuple(tensor.shape)}, not {shape}")


def _known(name: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise ValueError(f"{name} is {value[:40]!r}")
    return value
