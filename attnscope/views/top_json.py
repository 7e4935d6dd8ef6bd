"""A TokenSurvey as strict JSON."""

import dataclasses
from typing import Any

from attnscope.survey.tokens import Focus, Link, Place, TokenSurvey
from attnscope.views.json_text import VERSION, dump, site_document
from attnscope.views.survey_parts import finite


def render_tokens_survey(survey: TokenSurvey) -> str:
    """Return a survey as one JSON document and a newline."""
    return dump(
        {
            "schema": "attnscope.links",
            "version": VERSION,
            "model": survey.model,
            "text": survey.text,
            "source_text": survey.source,
            "settings": dataclasses.asdict(survey.options),
            "tokens": [_focus(focus) for focus in survey.focuses],
            "layers": [site_document(site) for site in survey.sites],
            "skipped": list(survey.skipped),
            "warnings": list(survey.warnings),
            "notes": list(survey.notes),
            "provenance": survey.provenance,
        }
    )


def _focus(focus: Focus) -> dict[str, Any]:
    return {
        "part": focus.part or None,
        **_place(focus.place),
        "heads": focus.heads,
        "links": [_link(link) for link in focus.links],
        "means": [{**_place(place), "weight": finite(weight)} for place, weight in focus.means],
        "mean_first_token": finite(focus.first),
    }


def _link(link: Link) -> dict[str, Any]:
    return {
        "layer": link.site.name,
        "head": link.head,
        "key_head": link.key_head,
        **_place(link.place),
        "weight": finite(link.weight),
        "first_token": finite(link.first),
    }


def _place(place: Place) -> dict[str, Any]:
    return {"positions": list(place.positions), "label": place.label}
