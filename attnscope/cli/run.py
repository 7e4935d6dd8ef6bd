"""`attnscope run`: one text through attention."""

from attnscope.cli import options as o
from attnscope.cli.output import prepare, say
from attnscope.cli.source import Asked
from attnscope.cli.tokenizers import Cutting
from attnscope.views.look import Look, read_steps


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
    precision: o.Precision = 4,
    format_: o.FormatOption = None,
    json: o.Json = False,
    output: o.Output = None,
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
    target = prepare(format_, json, output, force, color, width, other_file=save_tokenizer)
    cutting = Cutting(tokenizer, vocabulary, keep_punctuation, save_tokenizer, force)
    asked = Asked(
        text, file, qkv, cross, variant, heads, causal, align, str(mask_method), d_model, d_key,
        d_value, vocabulary_size, seed, device, dtype, cutting,
    )  # fmt: skip
    run = asked.make()

    from attnscope.run import check_head, find_queries
    from attnscope.views.run_parts import parts_of_run, steps_missing

    check_head(run, head)
    queries = None if query is None else find_queries(run, query)
    look = Look(steps, queries, head, precision, target.width, target.for_people)
    cutting.save_if_asked()
    say("note", [*run.notes, *steps_missing(run, steps)])
    say("warning", run.warnings)
    if target.format is o.Format.JSON:
        from attnscope.views.json_text import render_run

        target.write(render_run(run, look))
        return
    target.write_parts(parts_of_run(run, look), look)
