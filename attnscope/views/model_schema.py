"""The JSON Schema of the documents about models."""

from attnscope.views.json_text import VERSION
from attnscope.views.schema_parts import (
    COUNT,
    OPTIONAL_STRING,
    STRING,
    STRINGS,
    fields,
    list_of,
    optional,
)

PROOF = fields(
    {
        "relative_error": {
            "type": ["number", "null"],
            "description": "max |context − output| / max |output|; null: not a number",
        },
        "tolerance": {"type": "number"},
        "holds": {"type": "boolean"},
    },
    about="the context of the record against the model's own output",
)
LAYER = fields(
    {
        "name": {**STRING, "description": "what --layer takes"},
        "layer": COUNT,
        "part": {"enum": ["encoder", "decoder", "cross", None]},
        "module": STRING,
        "turn": {**COUNT, "description": "which call of the module in one forward"},
        "route": {**STRING, "description": "how the call was seen"},
        "heads": COUNT,
        "key_heads": COUNT,
        "queries": COUNT,
        "keys": COUNT,
        "d_key": optional(COUNT),
        "d_value": COUNT,
        "mask": {**STRING, "description": "none, causal, window 4096, …, given or observed"},
        "scale": {"type": ["number", "null"]},
        "softcap": {"type": ["number", "null"]},
        "sinks": {"type": "boolean"},
        "bias": {"type": "boolean"},
        "proof": PROOF,
    },
    optional=(
        "queries", "keys", "d_key", "d_value", "mask", "scale", "softcap", "sinks", "bias",
    ),
)  # fmt: skip
MODEL_RUN = fields(
    {
        "schema": {"const": "attnscope.model-run"},
        "version": {"const": VERSION},
        "model": STRING,
        "text": OPTIONAL_STRING,
        "source_text": OPTIONAL_STRING,
        "tokens": list_of({"$ref": "#/$defs/token"}),
        "source_tokens": optional(list_of({"$ref": "#/$defs/token"})),
        "layers": list_of({"$ref": "#/$defs/layer"}),
        "without": {**STRINGS, "description": "blocks of the model that have no attention"},
        "skipped": {**STRINGS, "description": "calls that fit into no record, and why"},
        "warnings": STRINGS,
        "notes": STRINGS,
        "provenance": {"type": "object", "additionalProperties": STRING},
    },
    about="attnscope run --model, without --layer",
)
