"""A ModelRun as strict JSON."""

import math
from typing import TYPE_CHECKING, Any

from attnscope.attention.verify import ObservedCall
from attnscope.model_run import ModelRun
from attnscope.views.json_text import VERSION, axis_document, dump, site_document, text_of

if TYPE_CHECKING:
    from attnscope.model_run import ModelCall


def render_model_run(run: ModelRun) -> str:
    """Return the overview of a model's run as one JSON document and a newline."""
    return dump(
        {
            "schema": "attnscope.model-run",
            "version": VERSION,
            "model": run.model,
            "text": text_of(run.queries),
            "source_text": None if run.source is None else text_of(run.source),
            "tokens": axis_document(run.queries),
            "source_tokens": None if run.source is None else axis_document(run.source),
            "layers": [call_document(call) for call in run.calls],
            "without": list(run.without),
            "skipped": list(run.skipped),
            "warnings": list(run.warnings),
            "notes": list(run.notes),
            "provenance": run.provenance,
        }
    )


def call_document(call: "ModelCall") -> dict[str, Any]:
    """Return what a call is, and its proof."""
    record = call.captured.call
    document = site_document(call.site)
    proof = document.pop("proof")
    observed = isinstance(record, ObservedCall)
    scale = getattr(record, "scale", math.nan)
    return document | {
        "heads": record.heads,
        "key_heads": getattr(record, "key_heads", record.heads),
        "queries": record.queries,
        "keys": record.keys,
        "d_key": None if isinstance(record, ObservedCall) else record.query.shape[2],
        "d_value": record.value.shape[2],
        "mask": call.mask_name,
        "scale": scale if math.isfinite(scale) else None,
        "softcap": getattr(record, "softcap", None),
        "sinks": not observed and getattr(record, "sinks", None) is not None,
        "bias": not observed and getattr(record, "bias", None) is not None,
        "proof": proof,
    }
