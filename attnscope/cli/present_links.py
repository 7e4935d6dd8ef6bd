"""Make and show what `top` and `who` ask: the same question from both ends."""

from typing import TYPE_CHECKING

from attnscope.cli.model_source import ModelAsked, progress_bar
from attnscope.cli.options import Format
from attnscope.cli.output import Target, say
from attnscope.cli.present_survey import check_sites, cut_all
from attnscope.survey.tokens import LinkOptions
from attnscope.views.look import Look

if TYPE_CHECKING:
    from attnscope.survey.tokens import TokenSurvey
    from attnscope.views.parts import Part


def show_links(
    given: ModelAsked, options: LinkOptions, target: Target, look: Look, *, strict: bool
) -> None:
    """Run the texts, write what was asked, and check the proofs if `strict`.

    Raises: CheckFailed after all is written, if a call is not proven.
    """
    loaded, tokens, targets = cut_all(given)
    from attnscope.sources.model.links import survey_tokens

    with progress_bar() as report:
        surveys = survey_tokens(loaded, tokens, targets, options, report)
    for survey in surveys:
        say("note", survey.notes)
        say("warning", survey.warnings)
        say("warning", (f"not recorded: {line}" for line in survey.skipped))
    _write(surveys, target, look)
    if strict:
        check_sites([site for survey in surveys for site in survey.sites])


def _write(surveys: "list[TokenSurvey]", target: Target, look: Look) -> None:
    if target.format is Format.JSON:
        from attnscope.views.top_json import render_tokens_survey

        target.write_all([render_tokens_survey(survey) for survey in surveys])
        return
    from attnscope.views.parts import Line, Tone
    from attnscope.views.top_parts import csv_of_tokens_surveys, parts_of_tokens_survey

    if target.format is Format.CSV:
        target.write(csv_of_tokens_surveys(surveys))
        return
    parts: list[Part] = []
    for number, survey in enumerate(surveys):
        if len(surveys) > 1:
            parts.append(Line(f"text {number + 1} of {len(surveys)}", Tone.HEADING))
        parts += parts_of_tokens_survey(survey, look)
    target.write_parts(parts, look)
