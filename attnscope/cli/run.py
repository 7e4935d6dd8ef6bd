"""`attnscope run`: one text through attention."""

from attnscope.cli import long_options as lo
from attnscope.cli import model_options as m
from attnscope.cli import options as o
from attnscope.cli.long import Shown, show_call
from attnscope.cli.long_model import show_model
from attnscope.cli.model_source import ModelAsked
from attnscope.cli.output import prepare
from attnscope.cli.present import Drawing
from attnscope.cli.present_model import Selection
from attnscope.cli.refuse import refuse_with_model, refuse_without_model
from attnscope.cli.source import Asked
from attnscope.cli.tokenizers import Cutting
from attnscope.errors import OptionError
from attnscope.views.look import read_steps


def command(
    text: o.TextArgument = None,
    file: o.File = None,
    variant: o.VariantOption = None,
    heads: o.Heads = None,
    cross: o.Cross = None,
    causal: o.Causal = False,
    align: o.AlignOption = None,
    mask_method: o.MaskMethodOption = o.Method.NEG_INF,
    model: m.Model = None,
    layer: m.Layer = None,
    target_text: m.TargetText = None,
    chat: m.Chat = False,
    generate: m.Generate = None,
    texts: m.Texts = None,
    per_line: m.PerLine = False,
    offline: m.Offline = False,
    strict: m.Strict = False,
    qkv: o.Qkv = None,
    tokenizer: o.Tokenizer = None,
    vocabulary: o.VocabularyFile = None,
    keep_punctuation: o.KeepPunctuation = False,
    save_tokenizer: o.SaveTokenizer = None,
    d_model: o.DModel = None,
    d_key: o.DKey = None,
    d_value: o.DValue = None,
    vocabulary_size: o.VocabularySize = None,
    seed: o.Seed = None,
    device: o.DeviceOption = "cpu",
    dtype: o.DtypeOption = None,
    show: o.Show = None,
    query: o.Query = None,
    head: o.Head = None,
    norms: o.Norms = False,
    heatmap: o.Heatmap = False,
    downsample: o.Downsample = None,
    budget: o.Budget = None,
    precision: o.Precision = 4,
    format_: o.RunFormatOption = None,
    json: o.Json = False,
    output: o.PictureOutput = None,
    measures: lo.Measures = False,
    top: lo.Top = None,
    near: lo.Near = None,
    grid: lo.Grid = None,
    rows: lo.Rows = None,
    keys: lo.Keys = None,
    max_memory: lo.MaxMemory = None,
    save: o.Save = None,
    keep_qkv: lo.KeepQkv = False,
    force: o.Force = False,
    color: o.Color = o.ColorMode.AUTO,
    width: o.Width = None,
) -> None:
    """Run a sentence through attention and show every step.

    Words become tokens, tokens become seeded embeddings, and those go through self,
    multi-head, cross or causal attention; every run is compared with torch's own kernel. Or take
    query, key and value from another program with --qkv. Or run a real model with --model: its
    attention is watched as it computes, and proven against the model's own output.
    """
    steps = read_steps(show)
    target = prepare(
        format_,
        json,
        output,
        force,
        color,
        width,
        other_files=[save_tokenizer, save],
        formats=o.RUN_FORMATS,
    )
    drawing = Drawing(heatmap, downsample, budget)
    drawing.check(target, query, show, precision)
    if norms and (heatmap or target.format in (o.Format.HTML, o.Format.SVG, o.Format.PNG)):
        raise OptionError(
            "--norms adds numbers to tables, and a heat map shows weights",
            "Leave it out, or give --format json or csv",
        )
    long = lo.LongAsked(measures, top, near, grid, rows, keys, max_memory, keep_qkv)
    long.check(saved=save is not None)
    shown = Shown(target, steps, query, head, precision, norms, drawing, long, save, force)
    shown.check()
    cutting = Cutting(tokenizer, vocabulary, keep_punctuation, save_tokenizer, force)
    if model is not None:
        model_asked = ModelAsked(
            model, text, file, texts or (), per_line, target_text, chat, generate, device, dtype,
            offline, norms,
        )  # fmt: skip
        refuse_with_model(
            variant=variant, heads=heads, cross=cross, causal=causal, align=align, qkv=qkv,
            tokenizer=tokenizer, vocabulary=vocabulary, keep_punctuation=keep_punctuation,
            save_tokenizer=save_tokenizer, d_model=d_model, d_key=d_key, d_value=d_value,
            vocabulary_size=vocabulary_size, seed=seed,
            mask_method=None if mask_method is o.Method.NEG_INF else mask_method,
        )  # fmt: skip
        show_model(
            model_asked, Selection(layer, steps, query, head, precision, strict, norms), shown
        )
        return
    refuse_without_model(
        layer=layer, target=target_text, chat=chat, generate=generate, text=texts,
        per_line=per_line, offline=offline, strict=strict,
    )  # fmt: skip
    asked = Asked(
        text, file, qkv, cross, variant, heads, causal, align, str(mask_method), d_model, d_key,
        d_value, vocabulary_size, seed, device, dtype, cutting,
    )  # fmt: skip
    given = asked.given()
    show_call(given, shown)
    cutting.save_if_asked()
