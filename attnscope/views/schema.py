"""The JSON Schema of every JSON document that attnscope writes."""

from typing import Any

from attnscope.views.json_text import VERSION
from attnscope.views.measured_schema import MEASURED_ROW, MEASURED_ROWS, MEASURES
from attnscope.views.model_schema import LAYER, MODEL_RUN
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
from attnscope.views.survey_schema import HEADS, LAYERS, LINKS, SCORE

_TOKEN = fields(
    {
        "position": COUNT,
        "label": {**STRING, "description": "safe to print"},
        "piece": {**STRING, "description": "as the tokenizer names it"},
        "id": COUNT,
        "span": {
            **list_of(COUNT),
            "minItems": 2,
            "maxItems": 2,
            "description": "characters of the text, half-open",
        },
        "source": {**STRING, "description": "those characters"},
        "mark": {"enum": ["special", "unknown", None]},
    },
    optional=("piece", "id", "span", "source", "mark"),
    about="a token; position and label alone for a vector that came without words",
)
_VOCABULARY = fields(
    {
        "source": {"enum": ["text", "corpus", "file"]},
        "name": OPTIONAL_STRING,
        "size": COUNT,
        "complete": {"type": "boolean", "description": "whether entries holds every piece"},
        "entries": {"type": "object", "additionalProperties": COUNT},
    }
)
_SETTINGS = fields(
    {
        "source": {"enum": ["sentence", "tensors", "model"]},
        "variant": STRING,
        "heads": COUNT,
        "key_heads": COUNT,
        "d_key": COUNT,
        "d_value": COUNT,
        "causal": {"type": "boolean"},
        "align": {"enum": ["top-left", "bottom-right", None]},
        "mask_method": {"enum": ["neg-inf", "renormalize"]},
        "scale": {"type": "number"},
        "dtype": STRING,
        "device": STRING,
        "d_model": {"type": ["integer", "null"]},
        "vocabulary_size": {"type": ["integer", "null"]},
        "seed": {"type": ["integer", "null"]},
        "softcap": {"type": ["number", "null"]},
        "file": OPTIONAL_STRING,
        "model": OPTIONAL_STRING,
    }
)
_ARRAYS = {
    "w_query": (MATRIX, "d_model × d_key"),
    "w_key": (MATRIX, "d_model × d_key"),
    "w_value": (MATRIX, "d_model × d_value"),
    "query": (MATRIX, "selected queries × d_key"),
    "key": (MATRIX, "keys × d_key"),
    "value": (MATRIX, "keys × d_value"),
    "omegas": (MATRIX, "q·k before scale and mask: selected queries × keys"),
    "bias": (MATRIX, "what is added to the scaled omegas"),
    "scaled_scores": (MATRIX, "null where the mask hides before the softmax"),
    "mask": (list_of(list_of({"type": "boolean"})), "true: the query may see the key"),
    "unmasked_weights": (MATRIX, "renormalize: softmax over all keys"),
    "masked_weights": (MATRIX, "renormalize: times the mask"),
    "row_sums": (VECTOR, "renormalize: sums of the masked weights"),
    "weights": (MATRIX, "0 where the mask hides"),
    "sink_weights": (VECTOR, "what each row gives to the head's sink: the weights add to the rest"),
    "norms": (MATRIX, "‖α·v‖ of each key, with --norms"),
    "output_norms": (MATRIX, "‖α·v·W_O‖ of each key, with --norms, where W_O was found"),
    "context": (MATRIX, "selected queries × d_value"),
    "entropy": (VECTOR, "of each row's weights, in nats"),
    "logsumexp": (VECTOR, "of each row's scaled scores; null for a row that sees no key"),
}
_HEAD = fields(
    {
        "layer": COUNT,
        "head": COUNT,
        "key_head": COUNT,
        "sink": {"type": ["number", "null"], "description": "one more logit, without a value"},
        **{name: {**schema, "description": about} for name, (schema, about) in _ARRAYS.items()},
        "nonfinite": {**COUNT, "description": "numbers that are NaN or infinite, not by the mask"},
    },
    optional=tuple(_ARRAYS),
)
_COMMON = {
    "version": {"const": VERSION},
    "text": OPTIONAL_STRING,
    "key_text": OPTIONAL_STRING,
    "tokens": list_of({"$ref": "#/$defs/token"}),
    "key_tokens": optional(list_of({"$ref": "#/$defs/token"})),
    "vocabulary": optional({"$ref": "#/$defs/vocabulary"}),
    "settings": {"$ref": "#/$defs/settings"},
    "shapes": {"type": "object", "additionalProperties": list_of(COUNT)},
    "selection": fields({"queries": list_of(COUNT), "heads": list_of(COUNT)}),
    "warnings": STRINGS,
    "notes": STRINGS,
    "provenance": {"type": "object", "additionalProperties": STRING},
}
_RUN = fields(
    {
        "schema": {"const": "attnscope.run"},
        **_COMMON,
        "embeddings": MATRIX,
        "key_embeddings": optional(MATRIX),
        "heads": list_of({"$ref": "#/$defs/head"}),
        "layers": {
            **list_of({"$ref": "#/$defs/layer"}),
            "description": "of a model: where each call was made, and its proof",
        },
        "concatenated_context": optional(MATRIX),
        "agreement": fields(
            {
                "reference": OPTIONAL_STRING,
                "max_abs_difference": {"type": ["number", "null"]},
                "agrees": {"type": ["boolean", "null"]},
            }
        ),
    },
    optional=("embeddings", "key_embeddings", "concatenated_context"),
    about="attnscope run",
)
_COMPARISON = fields(
    {
        "schema": {"const": "attnscope.comparison"},
        **_COMMON,
        "methods": list_of(
            fields(
                {
                    "method": {"enum": ["neg-inf", "renormalize"]},
                    "operations": COUNT,
                    "matrices": COUNT,
                    "memory_bytes": COUNT,
                    "heads": list_of({"$ref": "#/$defs/head"}),
                }
            )
        ),
        "max_abs_difference": fields(
            {
                "between": {"enum": ["methods", "method and torch"]},
                "weights": {"type": ["number", "null"]},
                "context": {"type": ["number", "null"]},
            }
        ),
        "underflow": fields(
            {
                "largest_gap": {"type": ["number", "null"]},
                "limit": {"type": "number"},
                "head": COUNT,
                "query": COUNT,
            }
        ),
    },
    about="attnscope compare",
)
_TOKENS = fields(
    {
        "schema": {"const": "attnscope.tokens"},
        "version": {"const": VERSION},
        "text": STRING,
        "tokens": list_of({"$ref": "#/$defs/token"}),
        "vocabulary": {"$ref": "#/$defs/vocabulary"},
        "notes": STRINGS,
    },
    about="attnscope tokenize",
)

_SUM = fields(
    {
        "name": STRING,
        "terms": list_of(
            fields(
                {
                    "place": STRING,
                    "left": NUMBER,
                    "right": {**NUMBER, "description": "null too where a term is one number"},
                    "product": NUMBER,
                }
            )
        ),
        "terms_left_out": COUNT,
        "left_out_sum": NUMBER,
        "result": NUMBER,
    },
    about="a number as a sum: the largest terms first if some are left out",
)
_TABLE = fields(
    {
        "row_kind": STRING,
        "rows": STRINGS,
        "positions": optional(list_of(COUNT)),
        "columns": STRINGS,
        "values": MATRIX,
        "hidden": optional(list_of(list_of({"type": "boolean"}))),
    }
)
_STEP = fields(
    {
        "number": {"type": "integer", "minimum": 1},
        "name": STRING,
        "head": optional(COUNT),
        "title": STRING,
        "shape": list_of(COUNT),
        "formula": STRING,
        "sentence": STRING,
        "words": {"type": "object", "additionalProperties": STRING},
        "facts": {"type": "object", "additionalProperties": NUMBER},
        "sums": list_of(_SUM),
        "tables": list_of(_TABLE),
        "left_out": list_of(
            fields({"what": STRING, "count": COUNT, "measure": STRING, "largest": NUMBER})
        ),
    }
)
_EXPLANATION = fields(
    {
        "schema": {"const": "attnscope.explanation"},
        **_COMMON,
        "queries": list_of(fields({"query": COUNT, "label": STRING, "steps": list_of(_STEP)})),
        "visible_prefixes": list_of(
            fields({"query": COUNT, "sees": list_of(COUNT), "words": STRING, "next": STRING}),
        ),
    },
    about="attnscope explain",
)

_DOCUMENTS = (
    "run", "model_run", "comparison", "explanation", "tokens", "heads", "links", "layers",
    "measures", "measured_rows", "measured_row",
)  # fmt: skip
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "What attnscope writes with --json",
    "oneOf": [{"$ref": f"#/$defs/{name}"} for name in _DOCUMENTS],
    "$defs": {
        "run": _RUN,
        "model_run": MODEL_RUN,
        "layer": LAYER,
        "comparison": _COMPARISON,
        "explanation": _EXPLANATION,
        "tokens": _TOKENS,
        "heads": HEADS,
        "links": LINKS,
        "layers": LAYERS,
        "score": SCORE,
        "measures": MEASURES,
        "measured_rows": MEASURED_ROWS,
        "measured_row": MEASURED_ROW,
        "token": _TOKEN,
        "vocabulary": _VOCABULARY,
        "settings": _SETTINGS,
        "head": _HEAD,
    },
}
