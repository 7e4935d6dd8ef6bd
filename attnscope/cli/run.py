"""`attnscope run`: one text through attention."""

from attnscope.cli import options as o
from attnscope.cli.output import prepare, write_file
from attnscope.cli.present import Drawing, look_for, present
from attnscope.cli.source import Asked
from attnscope.cli.tokenizers import Cutting
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
    heatmap: o.Heatmap = False,
    downsample: o.Downsample = None,
    budget: o.Budget = None,
    precision: o.Precision = 4,
    format_: o.RunFormatOption = None,
    json: o.Json = False,
    output: o.PictureOutput = None,
    save: o.Save = None,
    force: o.Force = False,
    color: o.Color = o.ColorMode.AUTO,
    width: o.Width = None,
) -> None:
    """Run a sentence through attention and show every step.

    Words become tokens, tokens become seeded embeddings, and those go through self,
    multi-head, cross or causal attention. Or take query, key and value from another program
    with --qkv. Every run is compared with torch's own kernel.
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
    cutting = Cutting(tokenizer, vocabulary, keep_punctuation, save_tokenizer, force)
    asked = Asked(
        text, file, qkv, cross, variant, heads, causal, align, str(mask_method), d_model, d_key,
        d_value, vocabulary_size, seed, device, dtype, cutting,
    )  # fmt: skip
    run = asked.make()
    look = look_for(run, target, steps, query, head, precision)
    cutting.save_if_asked()
    if save is not None:
        from attnscope.runfile import dump_run

        write_file(save, dump_run(run), force=force)
    present(run, target, look, drawing)
