"""Documents as strict JSON: no NaN, no Infinity; `null` beside a mask and a count.

float32 numbers are written with the fewest digits that give the same float32 back.
"""

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import orjson

from attnscope.run import Axis, Run, Site
from attnscope.text.display import json_escaped
from attnscope.text.tokens import Tokens
from attnscope.views.look import Look
from attnscope.views.shapes import shape_rows
from attnscope.views.tokens_parts import mark

if TYPE_CHECKING:
    from torch import Tensor

    from attnscope.attention.result import AttentionResult
    from attnscope.compare import Comparison

VERSION = 1
# What each step of --show is called in the JSON of a head.
_HEAD_STEPS = {
    "w_query": "projections",
    "w_key": "projections",
    "w_value": "projections",
    "query": "queries",
    "key": "keys",
    "value": "values",
    "omegas": "omegas",
    "bias": "scaled",
    "scaled_scores": "scaled",
    "mask": "mask",
    "unmasked_weights": "unmasked",
    "masked_weights": "masked",
    "row_sums": "row-sums",
    "weights": "weights",
    "sink_weights": "weights",
    "norms": "norms",
    "output_norms": "output-norms",
    "context": "context",
    "entropy": "summary",
    "logsumexp": "summary",
}


def render_run(run: Run, look: Look) -> str:
    """Return a run as one JSON document and a newline."""
    return dump(run_document(run, look))


def render_tokens(tokens: Tokens) -> str:
    """Return a tokenized text as one JSON document and a newline."""
    return dump(
        {
            "schema": "attnscope.tokens",
            "version": VERSION,
            "text": tokens.text,
            "tokens": _tokens(tokens),
            "vocabulary": _vocabulary(tokens),
            "notes": list(tokens.vocabulary.notes),
        }
    )


def render_comparison(comparison: "Comparison", look: Look) -> str:
    """Return a comparison as one JSON document and a newline."""
    run, underflow = comparison.run, comparison.underflow
    document = _head_of_document(run, look, "attnscope.comparison")
    document["methods"] = [
        {
            "method": str(cost.method),
            "operations": cost.operations,
            "matrices": cost.matrices,
            "memory_bytes": cost.memory_bytes,
            "heads": [_head(run, result, 0, h, look) for h in look.heads(result.call.heads)],
        }
        for result, cost in zip(comparison.results, comparison.costs, strict=True)
    ]
    document["max_abs_difference"] = {
        "between": "methods" if len(comparison.results) == 2 else "method and torch",
        "weights": _finite(comparison.weights_gap),
        "context": _finite(comparison.context_gap),
    }
    document["underflow"] = {
        "largest_gap": _finite(underflow.gap),
        "limit": underflow.limit,
        "head": underflow.head,
        "query": underflow.query,
    }
    document["warnings"] = list(comparison.warnings)
    return dump({**document, "notes": list(run.notes), "provenance": run.provenance})


def run_document(run: Run, look: Look) -> dict[str, Any]:
    """Return a run as a JSON-ready dict; arrays are numpy's."""
    document = _head_of_document(run, look, "attnscope.run")
    if run.inputs is not None and look.shows("embeddings", default=True):
        rows = list(look.rows(len(run.queries)))
        document["embeddings"] = _array(run.inputs.query_inputs[rows])
        document["key_embeddings"] = _array(run.inputs.key_inputs) if run.crossed else None
    document["heads"] = [
        _head(run, result, layer, head, look)
        for layer, result in enumerate(run.layers)
        for head in look.heads(result.call.heads)
    ]
    document["layers"] = [
        site_document(site, result) for site, result in zip(run.sites, run.layers, strict=False)
    ]
    if look.shows("concatenation", default=True):
        document["concatenated_context"] = _concatenation(run, look)
    document["agreement"] = _agreement(run.layers[0])
    document["warnings"] = list(run.warnings)
    return {**document, "notes": list(run.notes), "provenance": run.provenance}


def dump(document: dict[str, Any]) -> str:
    """Write a document: strict JSON, control characters escaped, one newline at the end."""
    data = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    return json_escaped(data.decode()) + "\n"


def _head_of_document(run: Run, look: Look, schema: str) -> dict[str, Any]:
    return {
        "schema": schema,
        "version": VERSION,
        "text": text_of(run.queries),
        "key_text": text_of(run.keys) if run.crossed else None,
        "tokens": axis_document(run.queries),
        "key_tokens": axis_document(run.keys) if run.crossed else None,
        "vocabulary": None if run.queries.tokens is None else _vocabulary(run.queries.tokens),
        "settings": dataclasses.asdict(run.settings),
        "shapes": {name: list(shape) for name, shape, _ in shape_rows(run)},
        "selection": {
            "queries": [run.queries.first + row for row in look.rows(len(run.queries))],
            "heads": list(look.heads(run.settings.heads)),
        },
    }


def text_of(axis: Axis) -> str | None:
    """Return the text that an axis stands for, if there is one."""
    return None if axis.tokens is None else axis.tokens.text


def axis_document(axis: Axis) -> list[dict[str, Any]]:
    """Return the tokens of an axis, or its places."""
    if axis.tokens is not None:
        return _tokens(axis.tokens, axis.first)
    return [{"position": axis.first + i, "label": label} for i, label in enumerate(axis.labels)]


def _tokens(tokens: Tokens, first: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "position": first + i,
            "label": tokens.labels[i],
            "piece": tokens.pieces[i],
            "id": tokens.ids[i],
            "span": list(tokens.spans[i]),
            "source": tokens.source(i),
            "mark": mark(tokens, i) or None,
        }
        for i in range(len(tokens))
    ]


def _vocabulary(tokens: Tokens) -> dict[str, Any]:
    vocabulary = tokens.vocabulary
    return {
        "source": vocabulary.source,
        "name": vocabulary.name or None,
        "size": vocabulary.size,
        "complete": vocabulary.complete,
        "entries": vocabulary.entries,
    }


def _head(run: Run, result: "AttentionResult", layer: int, head: int, look: Look) -> dict[str, Any]:
    call, steps = result.call, result.steps
    rows = list(look.rows(call.queries))
    key_head = call.key_head(head)
    arrays: dict[str, Tensor] = {}
    if run.inputs is not None:
        weights = run.inputs.projections
        arrays["w_query"], arrays["w_key"] = weights.w_query[head], weights.w_key[head]
        arrays["w_value"] = weights.w_value[head]
    arrays["value"] = call.value[key_head]
    if not result.observed:
        arrays["query"], arrays["key"] = call.query[head][rows], call.key[key_head]
        arrays["omegas"] = steps.scores[head][rows]
    if call.bias is not None:
        arrays["bias"] = call.bias.expand(call.heads, call.queries, call.keys)[head][rows]
    if not result.observed:
        scaled = steps.logits if result.mask_steps is None else steps.scaled
        arrays["scaled_scores"] = scaled[head][rows]
    arrays["mask"] = result.visible[head][rows]
    if result.mask_steps is not None:
        arrays["unmasked_weights"] = result.mask_steps.unmasked[head][rows]
        arrays["masked_weights"] = result.mask_steps.masked[head][rows]
        arrays["row_sums"] = result.mask_steps.row_sums[head][rows]
    arrays["weights"] = steps.weights[head][rows]
    if result.sink_weights is not None:
        arrays["sink_weights"] = result.sink_weights[head][rows]
    if look.norms or "norms" in look.show:
        arrays["norms"] = result.norms[head][rows]
    output_norms = result.output_norms
    if output_norms is not None and (look.norms or "output-norms" in look.show):
        arrays["output_norms"] = output_norms[head][rows]
    arrays["context"] = steps.context[head][rows]
    arrays["entropy"] = result.entropy[head][rows]
    arrays["logsumexp"] = steps.logsumexp[head][rows]
    # −inf where the mask hides, and for a row that sees nothing, is no accident and not counted
    counted = [
        arrays[name] for name in arrays if name not in ("mask", "scaled_scores", "logsumexp")
    ]
    shown = {
        name: _array(array)
        for name, array in arrays.items()
        if look.shows(_HEAD_STEPS[name], default=True)
    }
    nonfinite = sum(int((~array.isfinite()).sum()) for array in counted)
    if not result.observed:
        nonfinite += int((~steps.scaled[head][rows].isfinite()).sum())
    sink = None if call.sinks is None else _finite(float(call.sinks[head]))
    return {
        "layer": run.layer_number(layer),
        "head": head,
        "key_head": key_head,
        "sink": sink,
        **shown,
        "nonfinite": nonfinite,
    }


def site_document(site: Site, result: "AttentionResult | None" = None) -> dict[str, Any]:
    """Return where a call was made, and its proof."""
    document: dict[str, Any] = {
        "name": site.name,
        "layer": site.layer,
        "part": site.part or None,
        "module": site.module_name,
        "turn": site.nth,
        "route": site.route,
    }
    if result is not None:
        document |= {"heads": result.call.heads, "key_heads": result.call.key_heads}
    return document | {
        "proof": {
            "relative_error": _finite(site.error),
            "tolerance": site.tolerance,
            "holds": site.proven,
        }
    }


def _concatenation(run: Run, look: Look) -> Any:
    context = run.layers[0].context
    if look.head is not None or context.shape[0] == 1:
        return None
    rows = list(look.rows(context.shape[1]))
    return _array(context[:, rows].transpose(0, 1).reshape(len(rows), -1))


def _agreement(result: "AttentionResult") -> dict[str, Any]:
    return {
        "reference": result.reference_name,
        "max_abs_difference": _finite(result.reference_gap),
        "agrees": result.agrees,
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _array(tensor: "Tensor") -> Any:
    """Return a tensor as numpy's array; orjson writes what is not finite as null."""
    if tensor.is_floating_point() and tensor.element_size() < 4:
        tensor = tensor.float()  # numpy has no bfloat16; every half number is a float32
    return tensor.detach().cpu().contiguous().numpy()
