"""The JSON Schema of surveys: heads, links of a token, layers."""

from typing import Any

from attnscope.survey.heads import MEASURES, Kind
from attnscope.views.heads_parts import NAMES
from attnscope.views.json_text import VERSION
from attnscope.views.model_schema import PROOF
from attnscope.views.schema_parts import (
    COUNT,
    NUMBER,
    OPTIONAL_STRING,
    STRING,
    STRINGS,
    fields,
    list_of,
    optional,
)

_FINITE = {"type": ["number", "null"], "description": "null: not finite, or does not apply"}
_SITE = {
    "name": {**STRING, "description": "what --layer takes"},
    "layer": COUNT,
    "part": {"enum": ["encoder", "decoder", "cross", None]},
    "module": STRING,
    "turn": {**COUNT, "description": "which call of the module in one forward"},
    "route": {**STRING, "description": "how the call was seen"},
}
_SITES = list_of(fields({**_SITE, "proof": PROOF}))
_END = {
    "skipped": {**STRINGS, "description": "calls that fit into no record, and why"},
    "warnings": STRINGS,
    "notes": STRINGS,
    "provenance": {"type": "object", "additionalProperties": STRING},
}
SCORE = fields(
    {
        "value": {**_FINITE, "description": "mean over the rows it applies to"},
        "control": {**_FINITE, "description": "the same places with random tokens in them"},
        "uniform": {**_FINITE, "description": "rows that spread evenly over what they may see"},
        "rows": COUNT,
    },
    about="a mean, and what chance gives; null where nothing was to be measured",
)
_SCORE = {"$ref": "#/$defs/score"}
_NAME = fields(
    {
        "kind": {"enum": list(NAMES.values())},
        "measure": {"enum": [str(kind) for kind in Kind]},
        "value": {"type": "number"},
        "probe": {"type": "boolean", "description": "whether the probe showed it"},
    }
)
_HEAD = fields(
    {
        "layer": STRING,
        "head": COUNT,
        "key_head": COUNT,
        "name": OPTIONAL_STRING,
        "names": list_of(_NAME),
        **{name: {**_SCORE, "description": about} for name, about in MEASURES.items()},
        "most": {**_SCORE, "description": "the largest weight of all rows"},
        "effective_keys": {**_FINITE, "description": "exp of the mean entropy"},
        "probe": optional(fields({"previous": _SCORE, "induction": _SCORE})),
        "nonfinite": {**COUNT, "description": "numbers that are NaN or infinite"},
    }
)
HEADS = fields(
    {
        "schema": {"const": "attnscope.heads"},
        "version": {"const": VERSION},
        "model": STRING,
        "texts": list_of(
            fields(
                {
                    "text": STRING,
                    "tokens": COUNT,
                    "source": OPTIONAL_STRING,
                    "source_tokens": optional(COUNT),
                }
            )
        ),
        "settings": fields(
            {
                "layer": OPTIONAL_STRING,
                "window": {**COUNT, "description": "local: less than this apart"},
                "no_sink": {"type": "boolean"},
                "probe": {"type": "boolean"},
                "seed": {"type": "integer"},
            }
        ),
        "measures": {"type": "object", "additionalProperties": STRING},
        "heads": list_of(_HEAD),
        "layers": _SITES,
        "without": {**STRINGS, "description": "blocks of the model that have no attention"},
        **_END,
    },
    about="attnscope heads",
)
_PLACE: dict[str, Any] = {
    "positions": {**list_of(COUNT), "description": "one, or those of the pieces of a word"},
    "label": {**STRING, "description": "safe to print"},
}
LINKS = fields(
    {
        "schema": {"const": "attnscope.links"},
        "version": {"const": VERSION},
        "model": STRING,
        "text": STRING,
        "source_text": OPTIONAL_STRING,
        "settings": fields(
            {
                "direction": {"enum": ["top", "who"]},
                "token": STRING,
                "layer": OPTIONAL_STRING,
                "head": optional(COUNT),
                "words": {"type": "boolean"},
                "no_sink": {"type": "boolean"},
                "limit": COUNT,
            }
        ),
        "tokens": list_of(
            fields(
                {
                    "part": {"enum": ["encoder", "decoder", "cross", None]},
                    **_PLACE,
                    "heads": COUNT,
                    "links": list_of(
                        fields(
                            {
                                "layer": STRING,
                                "head": COUNT,
                                "key_head": COUNT,
                                **_PLACE,
                                "weight": NUMBER,
                                "first_token": {
                                    **NUMBER,
                                    "description": "what the same row gives to the first token",
                                },
                            }
                        )
                    ),
                    "means": list_of(fields({**_PLACE, "weight": NUMBER})),
                    "mean_first_token": NUMBER,
                }
            )
        ),
        "layers": _SITES,
        **_END,
    },
    about="attnscope top and attnscope who",
)
_LAYER = fields(
    {
        **_SITE,
        "class": {**STRING, "description": "of the module that made the call"},
        "heads": COUNT,
        "key_heads": COUNT,
        "queries": COUNT,
        "keys": COUNT,
        "d_key": optional(COUNT),
        "d_value": COUNT,
        "sees": {**STRING, "description": "full, causal, window 4096, cross, …, as measured"},
        "configured": {**OPTIONAL_STRING, "description": "a window too long for this text"},
        "scale": _FINITE,
        "softcap": _FINITE,
        "sinks": {"type": "boolean"},
        "bias": {"type": "boolean"},
        "positions": {**STRING, "description": "rope θ 10000, learned, bias, …, or unknown"},
        "visible_share": {**_FINITE, "description": "of all query × key cells; null: not known"},
        "proof": PROOF,
    }
)
LAYERS = fields(
    {
        "schema": {"const": "attnscope.layers"},
        "version": {"const": VERSION},
        "model": STRING,
        "architecture": STRING,
        "tokens": COUNT,
        "source_tokens": optional(COUNT),
        "layers": list_of(_LAYER),
        "without": list_of(
            fields(
                {
                    "name": STRING,
                    "layer": optional(COUNT),
                    "class": STRING,
                    "kind": {"enum": ["linear", "none"]},
                }
            )
        ),
        **_END,
    },
    about="attnscope layers",
)
