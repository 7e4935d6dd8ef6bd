"""The JSON Schema of measures: the document, and the lines of the NDJSON stream."""

from typing import Any

from attnscope.views.json_text import VERSION
from attnscope.views.model_schema import PROOF
from attnscope.views.schema_parts import (
    COUNT,
    MATRIX,
    NUMBER,
    OPTIONAL_STRING,
    STRING,
    STRINGS,
    VECTOR,
    fields,
    list_of,
    optional,
)

_FINITE = {"type": ["number", "null"], "description": "null: not finite"}
_POSITION = {"type": ["integer", "null"], "minimum": 0, "description": "null: none"}
_POSITIONS = list_of(_POSITION)
_FLAGS = list_of({"type": "boolean"})
_PROVENANCE = {"type": "object", "additionalProperties": STRING}
_AXIS = fields(
    {
        "count": COUNT,
        "first": {**COUNT, "description": "the position of the first place"},
        "text": OPTIONAL_STRING,
        "tokens": optional(list_of({"$ref": "#/$defs/token"})),
    },
    about="what rows or columns stand for; tokens are null for vectors that came without words",
)
_SITE = fields(
    {
        "name": {**STRING, "description": "what --layer takes"},
        "layer": COUNT,
        "part": {"enum": ["encoder", "decoder", "cross", None]},
        "module": STRING,
        "turn": {**COUNT, "description": "which call of the module in one forward"},
        "route": {**STRING, "description": "how the call was seen"},
        "proof": PROOF,
    }
)
_ASKED = {
    "top": {**COUNT, "description": "how many of the strongest keys of a row are kept"},
    "window": {
        "type": "integer",
        "minimum": 1,
        "description": "keys less than this away are local",
    },
}
# What each row has: name -> meaning.
_BY_ROW = {
    "entropy": "−Σ α·ln α, in nats",
    "effective_keys": "exp(entropy)",
    "largest": "the largest weight",
    "first": "the weight of the first key",
    "special": "the weight of all special tokens; left out where none are known",
    "local": "the weight of keys less than `window` away",
    "distance": "mean distance from query to key, weighted by the weights",
    "row_sum": "the sum of the weights: 1, less what a sink takes",
}
_LOGSUMEXP = "of the logits, a sink included; null for a row that sees no key"
_LARGEST_KEY = "the position of the key with the largest weight; null: the row sees none"
_NONFINITE = {**COUNT, "description": "numbers that are null because they are NaN or infinite"}
_HEAD = fields(
    {
        "head": COUNT,
        "key_head": COUNT,
        **{name: {**VECTOR, "description": about} for name, about in _BY_ROW.items()},
        "logsumexp": {**VECTOR, "description": _LOGSUMEXP},
        "blind": {**_FLAGS, "description": "true: the row may see no key"},
        "largest_key": {**_POSITIONS, "description": _LARGEST_KEY},
        "strongest_keys": {
            **list_of(_POSITIONS),
            "description": "positions, the largest weight first; null where fewer have a weight",
        },
        "strongest_weights": MATRIX,
        "received": {**VECTOR, "description": "by key: the sum of its weights over all queries"},
        "received_max": {**VECTOR, "description": "by key: the largest of its weights"},
        "received_max_query": {**_POSITIONS, "description": "by key: the query that gives it"},
        "mean": fields(
            dict.fromkeys(_BY_ROW, _FINITE), ("special",), "over the rows that see a key"
        ),
        "quantiles": fields(
            {"at": list_of({"type": "number"}), **dict.fromkeys(_BY_ROW, list_of(_FINITE))},
            ("special",),
            "over the rows that see a key",
        ),
        "rows_that_see": COUNT,
        "histogram": fields(
            {"edges": list_of(COUNT), "weight": VECTOR},
            about="the weight at distances from each edge up to the next: 0, 1, 2–3, 4–7, …",
        ),
        "map": optional(
            fields(
                {
                    "cell": {
                        **list_of(COUNT),
                        "minItems": 2,
                        "maxItems": 2,
                        "description": "queries and keys of a cell; at the far edges fewer",
                    },
                    "mean": {**MATRIX, "description": "mean weight; a hidden key counts as 0"},
                    "max": {**MATRIX, "description": "largest weight"},
                }
            )
        ),
        "weights": {
            **VECTOR,
            "description": "of a single row, by key, 0 where hidden; only with its query and keys",
        },
        "nonfinite": _NONFINITE,
    },
    optional=("special", "weights"),
)
MEASURES: dict[str, Any] = fields(
    {
        "schema": {"const": "attnscope.measures"},
        "version": {"const": VERSION},
        "settings": {"$ref": "#/$defs/settings"},
        "measured": fields({**_ASKED, "grid": optional({"type": "integer", "minimum": 1})}),
        "queries": _AXIS,
        "keys": {**optional(_AXIS), "description": "null: the keys are the queries"},
        "rows": {**list_of(COUNT), "description": "positions of the rows in arrays by row"},
        "layers": list_of(
            fields({"name": STRING, "site": optional(_SITE), "heads": list_of(_HEAD)})
        ),
        "warnings": STRINGS,
        "notes": STRINGS,
        "provenance": _PROVENANCE,
    },
    about="attention of any length, measured without its matrices",
)
MEASURED_ROWS: dict[str, Any] = fields(
    {
        "schema": {"const": "attnscope.measured-rows"},
        "version": {"const": VERSION},
        "settings": {"$ref": "#/$defs/settings"},
        "measured": fields(_ASKED),
        "queries": _AXIS,
        "keys": {**optional(_AXIS), "description": "null: the keys are the queries"},
        "provenance": _PROVENANCE,
    },
    about="the first line of --format ndjson",
)
MEASURED_ROW: dict[str, Any] = fields(
    {
        "layer": STRING,
        "head": COUNT,
        "key_head": COUNT,
        "query": COUNT,
        "label": STRING,
        "logsumexp": {**NUMBER, "description": _LOGSUMEXP},
        **{name: {**_FINITE, "description": about} for name, about in _BY_ROW.items()},
        "largest_key": {**_POSITION, "description": _LARGEST_KEY},
        "blind": {"type": "boolean"},
        "strongest_keys": {**list_of(COUNT), "description": "positions, largest weight first"},
        "strongest_labels": STRINGS,
        "strongest_weights": VECTOR,
        "nonfinite": _NONFINITE,
    },
    optional=("special",),
    about="a line of --format ndjson: one query of one head",
)
