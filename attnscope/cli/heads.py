"""`attnscope heads`: what each head of a model does."""

from typing import TYPE_CHECKING

from attnscope.cli import model_options as m
from attnscope.cli import options as o
from attnscope.cli import survey_options as s
from attnscope.cli.model_source import ModelAsked, progress_bar
from attnscope.cli.output import Target, prepare, say
from attnscope.cli.present_survey import check_sites
from attnscope.survey.heads import (
    SEED,
    HeadOptions,
    Ranking,
    check_measured,
    ranked,
    unsorted_note,
)
from attnscope.views.look import Look

if TYPE_CHECKING:
    from attnscope.survey.heads import HeadSurvey

_LISTED = 20


def command(
    model: m.NeededModel,
    text: o.TextArgument = None,
    file: o.File = None,
    texts: m.Texts = None,
    per_line: m.PerLine = False,
    target_text: m.TargetText = None,
    chat: m.Chat = False,
    layer: s.Layer = None,
    sort: s.Sort = "name",
    only: s.Only = None,
    least: s.Least = None,
    limit: s.Limit = None,
    no_sink: s.NoSink = False,
    probe: s.Probe = False,
    seed: s.Seed = SEED,
    device: o.DeviceOption = "cpu",
    dtype: s.ModelDtype = None,
    offline: m.Offline = False,
    strict: m.Strict = False,
    precision: s.Precision = 2,
    format_: o.FormatOption = None,
    json: o.Json = False,
    output: o.Output = None,
    force: o.Force = False,
    color: o.Color = o.ColorMode.AUTO,
    width: o.Width = None,
) -> None:
    """Measure what every head of a model does on a text, and name it.

    Exact means over all rows, at any length: how much goes to the first token, the token before,
    what followed this token earlier, … Each stands beside what random tokens at the same places
    give. A head is named if it goes far enough from chance to all of its weight.
    """
    target = prepare(format_, json, output, force, color, width)
    look = Look((), None, None, precision, target.width, target.for_people, target.colours)
    asked = Ranking(sort, only, least, limit)
    options = HeadOptions(layer, no_sink=no_sink, probe=probe, seed=seed)
    check_measured(asked, options)
    given = ModelAsked(
        model, text, file, texts or (), per_line, target_text, chat,
        device=device, dtype=dtype, offline=offline,
    )  # fmt: skip
    made = _made(given, options)
    survey = ranked(made, asked)
    say("note", (*survey.notes, *unsorted_note(made, asked)))
    say("warning", survey.warnings)
    say("warning", (f"not recorded: {line}" for line in survey.skipped))
    _write(survey, target, look, limit)
    if strict:
        check_sites(survey.sites)


def _made(given: ModelAsked, options: HeadOptions) -> "HeadSurvey":
    from attnscope.cli.present_survey import cut_all

    loaded, tokens, targets = cut_all(given)
    from attnscope.sources.model.survey import survey_heads

    with progress_bar() as report:
        return survey_heads(loaded, tokens, targets, options, report)


def _write(survey: "HeadSurvey", target: Target, look: Look, limit: int | None) -> None:
    if target.format is o.Format.JSON:
        from attnscope.views.heads_json import render_heads

        target.write(render_heads(_limited(survey, limit)))
        return
    from attnscope.views.heads_parts import csv_of_heads, parts_of_heads

    if target.format is o.Format.CSV:
        target.write(csv_of_heads(_limited(survey, limit)))
    else:
        target.write_parts(parts_of_heads(survey, look, limit or _LISTED), look)


def _limited(survey: "HeadSurvey", limit: int | None) -> "HeadSurvey":
    from dataclasses import replace

    return replace(survey, heads=survey.heads[:limit])
