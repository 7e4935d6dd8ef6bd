"""A HeadSurvey as strict JSON."""

import dataclasses
from typing import Any

from attnscope.survey.heads import MEASURES, Head, HeadSurvey, Score, nonfinite
from attnscope.views.heads_parts import NAMES, name_text
from attnscope.views.json_text import VERSION, dump, site_document
from attnscope.views.survey_parts import finite


def render_heads(survey: HeadSurvey) -> str:
    """Return a survey as one JSON document and a newline."""
    return dump(
        {
            "schema": "attnscope.heads",
            "version": VERSION,
            "model": survey.model,
            "texts": [dataclasses.asdict(text) for text in survey.texts],
            "settings": dataclasses.asdict(survey.options),
            "measures": MEASURES,
            "heads": [_head(head) for head in survey.heads],
            "layers": [site_document(site) for site in survey.sites],
            "without": list(survey.without),
            "skipped": list(survey.skipped),
            "warnings": list(survey.warnings),
            "notes": list(survey.notes),
            "provenance": survey.provenance,
        }
    )


def _head(head: Head) -> dict[str, Any]:
    return {
        "layer": head.site.name,
        "head": head.head,
        "key_head": head.key_head,
        "name": name_text(head.names[0]) if head.names else None,
        "names": [
            {
                "kind": NAMES[name.kind],
                "measure": str(name.kind),
                "value": name.value,
                "probe": name.probed,
            }
            for name in head.names
        ],
        **{name: _score(score) for name, score in head.scores.items()},
        "most": _score(head.most),
        "effective_keys": finite(head.effective_keys),
        "probe": {name: _score(score) for name, score in head.probe.items()} or None,
        "nonfinite": nonfinite(head),
    }


def _score(score: Score) -> dict[str, Any]:
    return {
        "value": finite(score.value),
        "control": finite(score.control),
        "uniform": finite(score.uniform),
        "rows": score.rows,
    }
