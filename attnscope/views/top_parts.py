"""A TokenSurvey as parts, and as CSV: the strongest links of a token, and the mean of all heads."""

from collections.abc import Iterator, Sequence

from attnscope.survey.tokens import Direction, Focus, TokenSurvey
from attnscope.text.display import visible
from attnscope.views.look import Look
from attnscope.views.parts import Line, Listing, Part, Tone
from attnscope.views.style import number
from attnscope.views.survey_parts import counted, csv_of, exact, proof_of_sites, shown

_NAMED_MEANS = 5
_NOTHING = {
    Direction.TOP: "no head lets it give anything to the tokens that are left",
    Direction.WHO: "no head gives it anything",
}


def parts_of_tokens_survey(survey: TokenSurvey, look: Look) -> Iterator[Part]:
    """Return a survey in reading order: for each place, the mean of all heads, and the links."""
    options = survey.options
    sink = " · without the first token" if options.no_sink else ""
    title = f"{survey.model} · {counted(len({s.name for s in survey.sites}), 'layer')}{sink}"
    yield Line(title, Tone.HEADING)
    for focus in survey.focuses:
        yield _listing(focus, options.direction, look)
        yield Line(_mean(focus, options.direction, look.precision))
    yield proof_of_sites(survey.sites)
    if _first_leads(survey):
        yield Line("--no-sink leaves the first token out", Tone.HINT)


def csv_of_tokens_surveys(surveys: Sequence[TokenSurvey]) -> str:
    """Return a row per link: the place asked about, the head, the other place, the weight."""
    header = (
        "text", "part", "token", "token_label", "rank", "layer", "module", "head", "key_head",
        "other", "other_label", "weight", "first_token",
    )  # fmt: skip
    rows: list[tuple[object, ...]] = []
    for text, survey in enumerate(surveys):
        for focus in survey.focuses:
            for rank, link in enumerate(focus.links):
                rows.append(
                    (
                        text, focus.part, _where(focus.place.positions), focus.place.label, rank,
                        link.site.name, visible(link.site.module_name), link.head, link.key_head,
                        _where(link.place.positions), link.place.label, exact(link.weight),
                        exact(link.first),
                    )
                )  # fmt: skip
    return csv_of(header, rows)


def _where(positions: tuple[int, ...]) -> str:
    return " ".join(str(position) for position in positions)


def _listing(focus: Focus, direction: Direction, look: Look) -> Listing:
    grouped = any(link.head != link.key_head for link in focus.links)
    part = f"{focus.part} · " if focus.part else ""
    if direction is Direction.TOP:
        title, other = f"{part}what {focus.place.name} attends to", "attends to"
    else:
        title, other = f"{part}who attends to {focus.place.name}", "token"
    columns = ("head", *(["key head"] if grouped else []), other, "weight", "first token")
    rows = tuple(
        (
            f"{link.site.name}.{link.head}",
            *([str(link.key_head)] if grouped else []),
            link.place.name,
            number(link.weight, look.precision),
            shown(link.first, look.precision),
        )
        for link in focus.links
    )
    numeric = (False, *([True] if grouped else []), False, True, True)
    return Listing(title, columns, rows, numeric)


def _mean(focus: Focus, direction: Direction, precision: int) -> str:
    """Return the mean over all heads in a line."""
    means = [
        f"{place.name} {number(weight, precision)}" for place, weight in focus.means[:_NAMED_MEANS]
    ]
    if not means:
        return _NOTHING[direction]
    heads = counted(focus.heads, "head")
    if direction is Direction.WHO:
        return f"mean over {heads}: {', '.join(means)}"
    first = "" if focus.first is None else f"; first token {number(focus.first, precision)}"
    return f"mean over {heads}: {', '.join(means)}{first}"


def _first_leads(survey: TokenSurvey) -> bool:
    """Return whether most of what is shown is the first token."""
    if survey.options.no_sink or survey.options.direction is Direction.WHO:
        return False
    links = [link for focus in survey.focuses for link in focus.links]
    return 2 * sum(link.place.positions[0] == 0 for link in links) > len(links)
