"""A HeadSurvey as parts, and as CSV."""

from collections.abc import Iterator

from attnscope.survey.heads import MEASURES, Head, HeadSurvey, Kind, Name, Score, counts_of
from attnscope.views.look import Look
from attnscope.views.parts import Line, Listing, Part, Tone
from attnscope.views.style import number
from attnscope.views.survey_parts import counted, csv_of, exact, proof_of_sites, shown

NAMES = {
    Kind.PREVIOUS: "previous-token",
    Kind.NEXT: "next-token",
    Kind.INDUCTION: "induction",
    Kind.SAME: "same token",
    Kind.FIRST: "first token",
    Kind.SPECIAL: "special",
    Kind.LOCAL: "local",
}
_WHERE = ("first", "special", "previous", "next", "same", "induction", "probe")
_HOW = ("local", "distance", "entropy", "keys", "largest", "most")
# From this width on, both halves are one table.
_WIDE = 116


def name_text(name: Name, precision: int = 2) -> str:
    """Return what a head is called: "previous-token 0.85", "induction 0.80 (probe)"."""
    more = " (sink)" if name.kind is Kind.FIRST else " (probe)" if name.probed else ""
    return f"{NAMES[name.kind]} {number(name.value, precision)}{more}"


def parts_of_heads(survey: HeadSurvey, look: Look, limit: int | None = None) -> Iterator[Part]:
    """Return a survey in reading order, the first `limit` heads of it."""
    heads = survey.heads[:limit]
    yield Line(_title(survey), Tone.HEADING)
    if survey.heads:
        yield Line(_summary(survey))
        there = _measured(survey)
        halves = [tuple(n for n in half if n in there) for half in (_WHERE, _HOW)]
        grouped = any(head.key_head != head.head for head in survey.heads)
        if look.width >= _WIDE:
            yield _listing("heads", heads, halves[0] + halves[1], look, grouped=grouped)
        else:
            yield _listing("where heads look", heads, halves[0], look, grouped=grouped)
            yield _listing("how they spread", heads, halves[1], look, grouped=False)
    else:
        yield Line("no head is what was asked for", Tone.WARNING)
    yield proof_of_sites(survey.sites)
    for hint in _hints(survey, len(heads)):
        yield Line(hint, Tone.HINT)


def csv_of_heads(survey: HeadSurvey) -> str:
    """Return a row per head: each measure, its control and what even weights give."""
    names = [*MEASURES, "most"]
    header = ["layer", "module", "head", "key_head", "name", "rows", "effective_keys"]
    header += [column for name in names for column in (name, f"{name}_control", f"{name}_uniform")]
    header += ["probe_previous", "probe_induction"]
    rows = []
    for head in survey.heads:
        scores = [*(head.scores[name] for name in MEASURES), head.most]
        row: list[object] = [head.site.name, head.site.module_name, head.head, head.key_head]
        row += [head.names[0].kind if head.names else "", head.scores["largest"].rows]
        row.append(exact(head.effective_keys))
        row += [exact(n) for score in scores for n in (score.value, score.control, score.uniform)]
        row += [exact(head.probe.get(n, Score()).value) for n in ("previous", "induction")]
        rows.append(row)
    return csv_of(header, rows)


def _title(survey: HeadSurvey) -> str:
    texts = survey.texts
    tokens = sum(text.tokens + (text.source_tokens or 0) for text in texts)
    about = f"{counted(len(texts), 'text')} of {counted(tokens, 'token')}"
    sink = " · without the first token" if survey.options.no_sink else ""
    layers = len({(site.part, site.layer) for site in survey.sites})
    which = counted(layers, "layer")
    if survey.without and survey.options.layer is None:
        which = f"{layers} of {layers + len(survey.without)} layers have attention"
    return f"{survey.model} · {which} · {about}{sink}"


def _summary(survey: HeadSurvey) -> str:
    counts = counts_of(survey.heads)
    unnamed = counts.pop("none", 0)
    found = [f"{count} {NAMES[Kind(kind)]}" for kind, count in counts.items()]
    found += [f"{unnamed} without a name"] if unnamed else []
    return f"{counted(len(survey.heads), 'head')}: {', '.join(found)}"


def _measured(survey: HeadSurvey) -> set[str]:
    """Return the columns that any head has a number in."""
    names = (*_WHERE, *_HOW)
    return {n for n in names if any(_cells(head, n)[0] is not None for head in survey.heads)}


def _cells(head: Head, column: str) -> tuple[float | None, float | None]:
    """Return a number of a head and its control."""
    if column == "keys":
        return head.effective_keys, None
    if column == "probe":
        score = head.probe.get("induction", Score())
        return score.value, None
    score = head.most if column == "most" else head.scores[column]
    return score.value, score.control


def _listing(
    title: str, heads: tuple[Head, ...], columns: tuple[str, ...], look: Look, *, grouped: bool
) -> Listing:
    """Return two lines per head: its numbers, and those of random tokens at the same places."""
    lead = ("head", "key head", "name") if grouped else ("head", "name")
    rows = []
    for head in heads:
        place = (f"{head.site.name}.{head.head}", *([str(head.key_head)] if grouped else []))
        cells = [_cells(head, column) for column in columns]
        name = name_text(head.names[0]) if head.names else "none"
        rows.append((*place, name, *(shown(value, look.precision) for value, _ in cells)))
        if any(control is not None for _, control in cells):
            controls = (
                "" if value is None or control is None else shown(control, look.precision)
                for value, control in cells
            )
            rows.append((*place, "random tokens", *controls))
    numeric = (False, True, False) if grouped else (False, False)
    return Listing(title, (*lead, *columns), tuple(rows), numeric + (True,) * len(columns))


def _hints(survey: HeadSurvey, listed: int) -> list[str]:
    hints = []
    if listed < len(survey.heads):
        hints.append(f"{listed} of {len(survey.heads)} heads: --limit N shows more")
    if survey.heads:
        hints.append(
            "random tokens: the same places, with other tokens in them · local: less than "
            f"{survey.options.window} tokens apart · keys: exp(entropy) · most: the largest of all"
        )
    if any(head.probe for head in survey.heads):
        hints.append("probe: induction on random tokens that are repeated once")
    return hints
