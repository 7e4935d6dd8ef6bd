"""A LayerSurvey as parts, and as CSV."""

import math
from collections.abc import Iterator

from attnscope.survey.layers import LayerFacts, LayerSurvey, Without
from attnscope.text.display import visible
from attnscope.views.look import Look
from attnscope.views.parts import Line, Listing, Part, Tone
from attnscope.views.style import gap, number
from attnscope.views.survey_parts import NOTHING, csv_of, exact, proof_of_sites

# From this width on, everything is one table.
_WIDE = 130
_WHAT = ("sees", "positions", "heads", "width", "scale", "extras", "visible")
_WHERE = ("module", "class", "seen by", "relative error")
_NUMERIC = ("visible", "relative error", "scale")


def parts_of_layers(survey: LayerSurvey, look: Look) -> Iterator[Part]:
    """Return a survey in reading order."""
    yield Line(f"{survey.model} · {survey.architecture} · {_count(survey)}", Tone.HEADING)
    if look.width >= _WIDE:
        yield _listing("layers", survey, (*_WHAT, *_WHERE), look)
    else:
        yield _listing("layers", survey, _WHAT, look)
        yield _listing("where they are", survey, _WHERE, look)
    yield proof_of_sites([facts.site for facts in survey.layers])
    yield Line(
        f"visible: the share of query × key cells that may be seen, on {_text(survey)}", Tone.HINT
    )


def csv_of_layers(survey: LayerSurvey) -> str:
    """Return a row per layer, those without attention too."""
    header = (
        "layer", "part", "module", "class", "sees", "configured", "heads", "key_heads",
        "d_key", "d_value", "scale", "softcap", "sinks", "bias", "positions", "visible_share",
        "route", "relative_error", "proven",
    )  # fmt: skip
    rows: list[tuple[object, ...]] = []
    for row in survey.in_order():
        if isinstance(row, Without):
            layer = "" if row.layer is None else row.layer
            rows.append((layer, "", visible(row.name), visible(row.mixer), row.kind, *[""] * 14))
            continue
        site = row.site
        rows.append(
            (
                site.name, site.part, visible(site.module_name), row.module_class, row.sees,
                row.limit or "", row.heads, row.key_heads, "" if row.d_key is None else row.d_key,
                row.d_value, exact(row.scale), exact(row.softcap), row.sinks, row.bias,
                row.positions, exact(row.share), site.route, exact(site.error), site.proven,
            )
        )  # fmt: skip
    return csv_of(header, rows)


def _count(survey: LayerSurvey) -> str:
    """Return how many layers have attention: "2 of 4 layers have attention"."""
    layers = len({(facts.site.part, facts.site.layer) for facts in survey.layers})
    if survey.without:
        return f"{layers} of {layers + len(survey.without)} layers have attention"
    return f"{layers} attention layer{'s' if layers != 1 else ''}"


def _text(survey: LayerSurvey) -> str:
    tokens = f"{survey.tokens} token{'s' if survey.tokens != 1 else ''}"
    if survey.source_tokens is None:
        return f"a text of {tokens}"
    return f"a source of {survey.source_tokens} tokens and a target of {tokens}"


def _listing(title: str, survey: LayerSurvey, columns: tuple[str, ...], look: Look) -> Listing:
    cells = [_cells(row, look) for row in survey.in_order()]
    kept = ("layer", *(name for name in columns if any(one.get(name) for one in cells)))
    rows = tuple(tuple(one.get(name, "") for name in kept) for one in cells)
    return Listing(title, kept, rows, tuple(name in _NUMERIC for name in kept))


def _cells(row: LayerFacts | Without, look: Look) -> dict[str, str]:
    """Return the cells of a layer by their column."""
    if isinstance(row, Without):
        return {
            "layer": NOTHING if row.layer is None else str(row.layer),
            "sees": "no softmax attention" if row.kind == "none" else "linear attention",
            "module": visible(row.name),
            "class": visible(row.mixer),
        }
    site, width = row.site, str(row.d_value)
    if row.d_key is not None and row.d_key != row.d_value:
        width = f"{row.d_key}, values {row.d_value}"
    return {
        "layer": site.name,
        "sees": row.sees if row.limit is None else f"{row.sees}; {row.limit} (config)",
        "positions": row.positions,
        "heads": str(row.heads) if row.heads == row.key_heads else f"{row.heads} : {row.key_heads}",
        "width": width,
        "scale": NOTHING if row.scale is None else number(row.scale, look.precision),
        "extras": ", ".join(_extras(row)),
        "visible": "unknown" if math.isnan(row.share) else number(row.share, look.precision),
        "module": visible(site.module_name),
        "class": row.module_class,
        "seen by": site.route.replace("_", " "),
        "relative error": gap(site.error) + ("" if site.proven else " !"),
    }


def _extras(row: LayerFacts) -> Iterator[str]:
    if row.softcap is not None:
        yield f"softcap {row.softcap:g}"
    if row.sinks:
        yield "sinks"
    if row.bias:
        yield "bias"
