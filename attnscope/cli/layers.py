"""`attnscope layers`: the truth about each layer of a model."""

from attnscope.cli import model_options as m
from attnscope.cli import options as o
from attnscope.cli import survey_options as s
from attnscope.cli.model_source import ModelAsked, progress_bar
from attnscope.cli.output import prepare, say
from attnscope.cli.present_survey import check_sites, cut_all
from attnscope.views.look import Look

# Read where no text is given: long enough that a window or a chunk of a small model shows.
BUILT_IN = (
    "When the ferry reached the island, the old keeper was already waiting on the pier with a "
    "lamp in one hand and a bundle of letters in the other. He had kept the light for thirty "
    "years, he said, and in all that time the letters had never come late. The young woman who "
    "was to take his place listened to him, looked up at the tower, and counted its windows. "
    "There were nine. Behind the ninth, he told her, she would find the book in which every "
    "keeper had written down the ships, the storms, and the names of those who came back."
)


def command(
    model: m.NeededModel,
    text: o.TextArgument = None,
    file: o.File = None,
    target_text: m.TargetText = None,
    chat: m.Chat = False,
    device: o.DeviceOption = "cpu",
    dtype: s.ModelDtype = None,
    offline: m.Offline = False,
    strict: m.Strict = False,
    precision: o.Precision = 4,
    format_: o.FormatOption = None,
    json: o.Json = False,
    output: o.Output = None,
    force: o.Force = False,
    color: o.Color = o.ColorMode.AUTO,
    width: o.Width = None,
) -> None:
    """Show what each layer of a model is, as it was seen to compute.

    What a query may see, heads and key heads, widths, scale, softcap, sinks, how positions are
    known, how the attention was seen, and its proof. Without a text a built-in one is read.
    """
    target = prepare(format_, json, output, force, color, width)
    look = Look((), None, None, precision, target.width, target.for_people, target.colours)
    built_in = text is None and file is None
    given = ModelAsked(
        model, BUILT_IN if built_in else text, file, (), False, target_text, chat,
        device=device, dtype=dtype, offline=offline,
    )  # fmt: skip
    loaded, tokens, targets = cut_all(given, shorten=built_in)
    from attnscope.sources.model.layers import reads_targets, survey_layers

    if targets is None and reads_targets(loaded):
        # a decoder of one token would not show what it may see
        from attnscope.sources.model.cut import cut

        targets = [cut(loaded, tokens[0].text, target=True)]
    with progress_bar() as report:
        survey = survey_layers(loaded, tokens[0], None if targets is None else targets[0], report)
    say("note", survey.notes)
    say("warning", survey.warnings)
    say("warning", (f"not recorded: {line}" for line in survey.skipped))
    if target.format is o.Format.JSON:
        from attnscope.views.layers_json import render_layers

        target.write(render_layers(survey))
    else:
        from attnscope.views.layers_parts import csv_of_layers, parts_of_layers

        if target.format is o.Format.CSV:
            target.write(csv_of_layers(survey))
        else:
            target.write_parts(parts_of_layers(survey, look), look)
    if strict:
        check_sites([facts.site for facts in survey.layers])
