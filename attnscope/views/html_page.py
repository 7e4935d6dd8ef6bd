"""A Run as one HTML page that needs nothing else: no network, no second file."""

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Callable, Iterator
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np

from attnscope.errors import SizeError
from attnscope.run import Axis, Run
from attnscope.text.display import json_escaped, visible
from attnscope.views.html_data import (
    Array,
    Plan,
    Stored,
    array,
    bias_block,
    head_bias,
    key_block,
    make_plan,
    mask_block,
    rule,
)
from attnscope.views.look import Look
from attnscope.views.proof_parts import proof_line
from attnscope.views.run_parts import headline
from attnscope.views.style import tint

if TYPE_CHECKING:
    from attnscope.attention.result import AttentionResult

BUDGET_BYTES = 100_000_000
VERSION = 1
LONGEST_TITLE = 80
_TITLE_END = " – attnscope"
_STYLE = "page.css"
# In this order they are one script: the worker's code first, since the page hands it on.
_SCRIPTS = (
    "worker.js",
    "base.js",
    "labels.js",
    "map.js",
    "panel.js",
    "page.js",
    "input.js",
    "begin.js",
)
_SETTINGS = (
    ("source", "source"),
    ("variant", "variant"),
    ("d_model", "width of the embeddings"),
    ("d_key", "width of a key"),
    ("d_value", "width of a value"),
    ("scale", "scale"),
    ("softcap", "softcap"),
    ("mask_method", "mask method"),
    ("align", "alignment"),
    ("dtype", "dtype"),
    ("device", "device"),
    ("seed", "seed"),
    ("vocabulary_size", "vocabulary size"),
    ("file", "file"),
    ("model", "model"),
)


def render_html(run: Run, look: Look = Look(), *, budget_bytes: int = BUDGET_BYTES) -> str:  # noqa: B008
    """Return a run as one HTML page: the same run, the same bytes.

    `look.head` keeps one head, `look.queries` says which query is selected first, and
    `look.precision` how many decimals are shown. Every number stays in the page.
    Raises: SizeError if the page would be larger than `budget_bytes`; nothing is built then.
    """
    plan = make_plan(run, look)
    document = _json(_document(run, look, plan))
    script, style = _script(), _asset(_STYLE)
    size = plan.size + sum(len(part.encode()) for part in (document, script, style))
    if size > budget_bytes:
        raise SizeError(
            f"the HTML page would be {_megabytes(size)}, above the budget of "
            f"{_megabytes(budget_bytes)}",
            "Choose one with --head, draw blocks with --downsample 1024, or raise --budget",
        )
    fields = {
        "policy": _policy(script, style),
        "title": html.escape(_title(run)),
        "style": style,
        "script": script,
    }
    # Fields are put where the template's own marks are, so no text of a run is ever read as one.
    pieces = re.split(r"\{\{(\w+)\}\}", _asset("page.html"))
    parts: list[str] = []
    for i, piece in enumerate(pieces):
        if i % 2 == 0:
            parts.append(piece)
        elif piece == "data":
            parts.append(_data("run", document))
            parts.extend(_data(name, text) for name, text in _blocks(run, plan))
        else:
            parts.append(fields[piece])
    return "".join(parts)


def _data(name: str, text: str) -> str:
    return f'<script type="application/json" id="{name}">{text}</script>\n'


def _asset(name: str) -> str:
    return (resources.files("attnscope.views") / "html" / name).read_text(encoding="utf-8")


def _script() -> str:
    code = "".join(_asset(name) for name in _SCRIPTS)
    return f'(() => {{\n"use strict";\n{code}}})();\n'


def _policy(script: str, style: str) -> str:
    """Return a policy under which only this script and this style act, and nothing is fetched.

    The worker is made of a part of the script, from a blob.
    """
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "worker-src blob:; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def _title(run: Run) -> str:
    if run.queries.tokens is None:
        return f"Attention weights{_TITLE_END}"
    text = visible(" ".join(run.queries.tokens.text[: 4 * LONGEST_TITLE].split()))
    return f"{text if len(text) <= LONGEST_TITLE else text[:LONGEST_TITLE] + '…'}{_TITLE_END}"


def _document(run: Run, look: Look, plan: Plan) -> dict[str, Any]:
    """Return everything but the numbers of the heads."""
    return {
        "version": VERSION,
        "title": _title(run).removesuffix(_TITLE_END),
        "headline": visible(headline(run)),
        "queries": _labels(run.queries),
        "keys": _labels(run.keys) if run.crossed else None,
        "layers": [_layer(run, layer, plan) for layer in range(len(run.layers))],
        "selected": look.queries[0] if look.queries else None,
        "precision": look.precision,
        "palette": _palette(),
        "warnings": [visible(line) for line in run.warnings],
        "notes": [visible(line) for line in run.notes],
        "settings": [
            [name, visible(str(value))]
            for field, name in _SETTINGS
            if (value := getattr(run.settings, field)) is not None
        ],
        "provenance": [[visible(name), visible(value)] for name, value in run.provenance.items()],
    }


def _labels(axis: Axis) -> list[str]:
    return [visible(label) for label in axis.labels]


def _layer(run: Run, layer: int, plan: Plan) -> dict[str, Any]:
    result = run.layers[layer]
    call, line = result.call, proof_line(run, layer)
    agrees = run.sites[layer].proven if run.sites else result.agrees
    return {
        "name": run.layer_name(layer),
        "heads": [stored.head for stored in plan.heads if stored.layer == layer],
        "queries": call.queries,
        "keys": call.keys,
        "width": call.query.shape[2],
        "scale": _finite(call.scale),
        "softcap": _finite(call.softcap),
        "agreement": visible(line.text),
        "agrees": agrees,
    }


def _palette() -> str:
    """Return the house's colours of 0/255 to 255/255, six hexadecimal digits each."""
    tints = [tint(step / 255) for step in range(256)]
    return "".join("{:02x}{:02x}{:02x}".format(*colour[0]) for colour in tints if colour)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def _blocks(run: Run, plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield the name and the JSON of every block of numbers, each once."""
    written: set[str] = set()
    for stored in plan.heads:
        for name, document in _blocks_of(run.layers[stored.layer], stored):
            if name not in written:
                written.add(name)
                yield name, _json(document())


def _blocks_of(
    result: "AttentionResult", stored: Stored
) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Yield each block that a head needs with what writes it: shared ones are written once."""
    call, head, kind = result.call, stored.head, _kind(stored)
    yield mask_block(result, stored), lambda: _mask(result, head)
    if stored.form == "vectors":
        key = call.key[call.key_head(head)]
        yield key_block(result, stored), lambda: {"data": _encoded(array(key), kind)}
    bias = bias_block(result, stored)
    if bias is not None:
        yield bias, lambda: _bias(head_bias(result, head), kind)
    yield f"head-{stored.layer}-{head}", lambda: _head(result, stored)


def _kind(stored: Stored) -> str:
    return "<f8" if stored.double else "<f4"


def _mask(result: "AttentionResult", head: int) -> dict[str, Any]:
    bits = array(result.visible[head])
    return rule(result, head) or {"kind": "bits", "data": _bits(bits)}


def _bias(numbers: Array, kind: str) -> dict[str, Any]:
    rows, columns = numbers.shape
    return {"rows": rows, "columns": columns, "data": _encoded(numbers, kind)}


def _head(result: "AttentionResult", stored: Stored) -> dict[str, Any]:
    call, head, kind = result.call, stored.head, _kind(stored)
    document: dict[str, Any] = {
        "form": stored.form,
        "double": stored.double,
        "mask": mask_block(result, stored),
        "bias": bias_block(result, stored),
        "sink": None if call.sinks is None else _finite(float(call.sinks[head])),
    }
    if stored.form == "vectors":
        return document | {
            "key": key_block(result, stored),
            "query": _encoded(array(call.query[head]), kind),
            "logsumexp": _encoded(array(result.steps.logsumexp[head]), kind),
        }
    if stored.form == "cells":
        steps = {"omegas": result.scores, "scaled": result.steps.scaled, "weights": result.weights}
        return document | {name: _encoded(array(step[head]), kind) for name, step in steps.items()}
    return document | _bytes(array(result.weights[head]))


def _bytes(weights: Array) -> dict[str, Any]:
    bad = ~np.isfinite(weights)
    rounded = np.rint(255.0 * np.where(bad, 0.0, weights).clip(0.0, 1.0))
    document: dict[str, Any] = {"bytes": _encoded(rounded, "u1")}
    if bad.any():
        document["bad"] = _bits(bad)
    return document


def _bits(flags: Array) -> str:
    return base64.b64encode(np.packbits(flags.ravel(), bitorder="little").tobytes()).decode("ascii")


def _encoded(numbers: Array, kind: str) -> str:
    """Return numbers as base64 of numpy's `kind`, little-endian, row after row."""
    with np.errstate(all="ignore"):
        data = np.ascontiguousarray(numbers, dtype=kind)
    return base64.b64encode(data.tobytes()).decode("ascii")


def _finite(value: float | None) -> float | None:
    """Return a number that JSON has; None for NaN and ∞, which no head stored as vectors has."""
    return value if value is not None and math.isfinite(value) else None


def _json(document: dict[str, Any]) -> str:
    """Return JSON that can stand in a script element whatever the words in it are."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    # the base64 of a head is long and needs no escape: only text that is not ASCII can
    return text if text.isascii() and text.isprintable() else json_escaped(text)
