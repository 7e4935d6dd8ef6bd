"""`attnscope top`: what a token attends to, over all heads of a model."""

from attnscope.cli import model_options as m
from attnscope.cli import options as o
from attnscope.cli import survey_options as s
from attnscope.cli.model_source import ModelAsked
from attnscope.cli.output import prepare
from attnscope.cli.present_links import show_links
from attnscope.survey.tokens import LINKS, Direction, LinkOptions
from attnscope.views.look import Look


def command(
    model: m.NeededModel,
    token: s.Token,
    text: o.TextArgument = None,
    file: o.File = None,
    texts: m.Texts = None,
    per_line: m.PerLine = False,
    target_text: m.TargetText = None,
    chat: m.Chat = False,
    layer: s.Layer = None,
    head: o.Head = None,
    words: s.Words = False,
    no_sink: s.NoSink = False,
    limit: s.LinkLimit = LINKS,
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
    """Show what a token attends to, and in which heads.

    The strongest weights of the token's row over all layers and heads, and the mean over all of
    them. Where the token stands several times, each place is shown.
    """
    target = prepare(format_, json, output, force, color, width)
    look = Look((), None, None, precision, target.width, target.for_people, target.colours)
    options = LinkOptions(Direction.TOP, token, layer, head, words, no_sink, limit)
    given = ModelAsked(
        model, text, file, texts or (), per_line, target_text, chat,
        device=device, dtype=dtype, offline=offline,
    )  # fmt: skip
    show_links(given, options, target, look, strict=strict)
