"""The JSON Schema of every JSON document that attnscope writes."""

from typing import Any

from attnscope.views.json_text import VERSION

_STRING = {"type": "string"}
_OPTIONAL_STRING = {"type": ["string", "null"]}
_COUNT = {"type": "integer", "minimum": 0}
_NUMBER = {"type": ["number", "null"], "description": "null: not finite, or hidden by the mask"}
_VECTOR = {"type": "array", "items": _NUMBER}
_MATRIX = {"type": "array", "items": _VECTOR}
_STRINGS = {"type": "array", "items": _STRING}


def _object(
    properties: dict[str, Any], optional: tuple[str, ...] = (), about: str = ""
) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }
    return {**schema, "description": about} if about else schema


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _optional(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


_TOKEN = _object(
    {
        "position": _COUNT,
        "label": {**_STRING, "description": "safe to print"},
        "piece": {**_STRING, "description": "as the tokenizer names it"},
        "id": _COUNT,
        "span": {
            **_list(_COUNT),
            "minItems": 2,
            "maxItems": 2,
            "description": "characters of the text, half-open",
        },
        "source": {**_STRING, "description": "those characters"},
        "mark": {"enum": ["special", "unknown", None]},
    },
    optional=("piece", "id", "span", "source", "mark"),
    about="a token; position and label alone for a vector that came without words",
)
_VOCABULARY = _object(
    {
        "source": {"enum": ["text", "corpus", "file"]},
        "name": _OPTIONAL_STRING,
        "size": _COUNT,
        "complete": {"type": "boolean", "description": "whether entries holds every piece"},
        "entries": {"type": "object", "additionalProperties": _COUNT},
    }
)
_SETTINGS = _object(
    {
        "source": {"enum": ["sentence", "tensors"]},
        "variant": _STRING,
        "heads": _COUNT,
        "key_heads": _COUNT,
        "d_key": _COUNT,
        "d_value": _COUNT,
        "causal": {"type": "boolean"},
        "align": {"enum": ["top-left", "bottom-right", None]},
        "mask_method": {"enum": ["neg-inf", "renormalize"]},
        "scale": {"type": "number"},
        "dtype": _STRING,
        "device": _STRING,
        "d_model": {"type": ["integer", "null"]},
        "vocabulary_size": {"type": ["integer", "null"]},
        "seed": {"type": ["integer", "null"]},
        "softcap": {"type": ["number", "null"]},
        "file": _OPTIONAL_STRING,
    }
)
_ARRAYS = {
    "w_query": (_MATRIX, "d_model × d_key"),
    "w_key": (_MATRIX, "d_model × d_key"),
    "w_value": (_MATRIX, "d_model × d_value"),
    "query": (_MATRIX, "selected queries × d_key"),
    "key": (_MATRIX, "keys × d_key"),
    "value": (_MATRIX, "keys × d_value"),
    "omegas": (_MATRIX, "q·k before scale and mask: selected queries × keys"),
    "bias": (_MATRIX, "what is added to the scaled omegas"),
    "scaled_scores": (_MATRIX, "null where the mask hides before the softmax"),
    "mask": (_list(_list({"type": "boolean"})), "true: the query may see the key"),
    "unmasked_weights": (_MATRIX, "renormalize: softmax over all keys"),
    "masked_weights": (_MATRIX, "renormalize: times the mask"),
    "row_sums": (_VECTOR, "renormalize: sums of the masked weights"),
    "weights": (_MATRIX, "0 where the mask hides"),
    "context": (_MATRIX, "selected queries × d_value"),
    "entropy": (_VECTOR, "of each row's weights, in nats"),
    "logsumexp": (_VECTOR, "of each row's scaled scores; null for a row that sees no key"),
}
_HEAD = _object(
    {
        "layer": _COUNT,
        "head": _COUNT,
        "key_head": _COUNT,
        "sink": {"type": ["number", "null"], "description": "one more logit, without a value"},
        **{name: {**schema, "description": about} for name, (schema, about) in _ARRAYS.items()},
        "nonfinite": {**_COUNT, "description": "numbers that are NaN or infinite, not by the mask"},
    },
    optional=tuple(_ARRAYS),
)
_COMMON = {
    "version": {"const": VERSION},
    "text": _OPTIONAL_STRING,
    "key_text": _OPTIONAL_STRING,
    "tokens": _list({"$ref": "#/$defs/token"}),
    "key_tokens": _optional(_list({"$ref": "#/$defs/token"})),
    "vocabulary": _optional({"$ref": "#/$defs/vocabulary"}),
    "settings": {"$ref": "#/$defs/settings"},
    "shapes": {"type": "object", "additionalProperties": _list(_COUNT)},
    "selection": _object({"queries": _list(_COUNT), "heads": _list(_COUNT)}),
    "warnings": _STRINGS,
    "notes": _STRINGS,
    "provenance": {"type": "object", "additionalProperties": _STRING},
}
_RUN = _object(
    {
        "schema": {"const": "attnscope.run"},
        **_COMMON,
        "embeddings": _MATRIX,
        "key_embeddings": _optional(_MATRIX),
        "heads": _list({"$ref": "#/$defs/head"}),
        "concatenated_context": _optional(_MATRIX),
        "agreement": _object(
            {
                "reference": _OPTIONAL_STRING,
                "max_abs_difference": {"type": ["number", "null"]},
                "agrees": {"type": ["boolean", "null"]},
            }
        ),
    },
    optional=("embeddings", "key_embeddings", "concatenated_context"),
    about="attnscope run",
)
_COMPARISON = _object(
    {
        "schema": {"const": "attnscope.comparison"},
        **_COMMON,
        "methods": _list(
            _object(
                {
                    "method": {"enum": ["neg-inf", "renormalize"]},
                    "operations": _COUNT,
                    "matrices": _COUNT,
                    "memory_bytes": _COUNT,
                    "heads": _list({"$ref": "#/$defs/head"}),
                }
            )
        ),
        "max_abs_difference": _object(
            {
                "between": {"enum": ["methods", "method and torch"]},
                "weights": {"type": ["number", "null"]},
                "context": {"type": ["number", "null"]},
            }
        ),
        "underflow": _object(
            {
                "largest_gap": {"type": ["number", "null"]},
                "limit": {"type": "number"},
                "head": _COUNT,
                "query": _COUNT,
            }
        ),
    },
    about="attnscope compare",
)
_TOKENS = _object(
    {
        "schema": {"const": "attnscope.tokens"},
        "version": {"const": VERSION},
        "text": _STRING,
        "tokens": _list({"$ref": "#/$defs/token"}),
        "vocabulary": {"$ref": "#/$defs/vocabulary"},
        "notes": _STRINGS,
    },
    about="attnscope tokenize",
)

_SUM = _object(
    {
        "name": _STRING,
        "terms": _list(
            _object(
                {
                    "place": _STRING,
                    "left": _NUMBER,
                    "right": {**_NUMBER, "description": "null too where a term is one number"},
                    "product": _NUMBER,
                }
            )
        ),
        "terms_left_out": _COUNT,
        "left_out_sum": _NUMBER,
        "result": _NUMBER,
    },
    about="a number as a sum: the largest terms first if some are left out",
)
_TABLE = _object(
    {
        "row_kind": _STRING,
        "rows": _STRINGS,
        "positions": _optional(_list(_COUNT)),
        "columns": _STRINGS,
        "values": _MATRIX,
        "hidden": _optional(_list(_list({"type": "boolean"}))),
    }
)
_STEP = _object(
    {
        "number": {"type": "integer", "minimum": 1},
        "name": _STRING,
        "head": _optional(_COUNT),
        "title": _STRING,
        "shape": _list(_COUNT),
        "formula": _STRING,
        "sentence": _STRING,
        "words": {"type": "object", "additionalProperties": _STRING},
        "facts": {"type": "object", "additionalProperties": _NUMBER},
        "sums": _list(_SUM),
        "tables": _list(_TABLE),
        "left_out": _list(
            _object({"what": _STRING, "count": _COUNT, "measure": _STRING, "largest": _NUMBER})
        ),
    }
)
_EXPLANATION = _object(
    {
        "schema": {"const": "attnscope.explanation"},
        **_COMMON,
        "queries": _list(_object({"query": _COUNT, "label": _STRING, "steps": _list(_STEP)})),
        "visible_prefixes": _list(
            _object({"query": _COUNT, "sees": _list(_COUNT), "words": _STRING, "next": _STRING}),
        ),
    },
    about="attnscope explain",
)

SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "What attnscope writes with --json",
    "oneOf": [
        {"$ref": f"#/$defs/{name}"} for name in ("run", "comparison", "explanation", "tokens")
    ],
    "$defs": {
        "run": _RUN,
        "comparison": _COMPARISON,
        "explanation": _EXPLANATION,
        "tokens": _TOKENS,
        "token": _TOKEN,
        "vocabulary": _VOCABULARY,
        "settings": _SETTINGS,
        "head": _HEAD,
    },
}
