"""A LayerSurvey as strict JSON."""

from typing import Any

from attnscope.survey.layers import LayerFacts, LayerSurvey, Without
from attnscope.views.json_text import VERSION, dump, site_document
from attnscope.views.survey_parts import finite


def render_layers(survey: LayerSurvey) -> str:
    """Return a survey as one JSON document and a newline."""
    return dump(
        {
            "schema": "attnscope.layers",
            "version": VERSION,
            "model": survey.model,
            "architecture": survey.architecture,
            "tokens": survey.tokens,
            "source_tokens": survey.source_tokens,
            "layers": [_facts(facts) for facts in survey.layers],
            "without": [_without(block) for block in survey.without],
            "skipped": list(survey.skipped),
            "warnings": list(survey.warnings),
            "notes": list(survey.notes),
            "provenance": survey.provenance,
        }
    )


def _facts(facts: LayerFacts) -> dict[str, Any]:
    document = site_document(facts.site)
    proof = document.pop("proof")
    return document | {
        "class": facts.module_class,
        "heads": facts.heads,
        "key_heads": facts.key_heads,
        "queries": facts.queries,
        "keys": facts.keys,
        "d_key": facts.d_key,
        "d_value": facts.d_value,
        "sees": facts.sees,
        "configured": facts.limit,
        "scale": finite(facts.scale),
        "softcap": finite(facts.softcap),
        "sinks": facts.sinks,
        "bias": facts.bias,
        "positions": facts.positions,
        "visible_share": finite(facts.share),
        "proof": proof,
    }


def _without(block: Without) -> dict[str, Any]:
    return {"name": block.name, "layer": block.layer, "class": block.mixer, "kind": block.kind}
