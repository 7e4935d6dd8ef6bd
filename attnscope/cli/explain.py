"""`attnscope explain`: one query, worked out from the word to its context vector."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnscope.cli import model_options as m
from attnscope.cli import options as o
from attnscope.cli.model_source import ModelAsked
from attnscope.cli.output import Target, prepare, say
from attnscope.cli.refuse import refuse_with_model, refuse_without_model
from attnscope.cli.source import LESSON_SENTENCE, Asked
from attnscope.cli.tokenizers import Cutting
from attnscope.errors import OptionError
from attnscope.text.display import visible
from attnscope.views.look import Look

if TYPE_CHECKING:
    from attnscope.explain import Explanation
    from attnscope.run import Run


FORMATS = (*o.TEXT_FORMATS, o.Format.MARKDOWN)

Query = Annotated[
    str | None,
    typer.Option(
        "--query",
        metavar="N|WORD",
        help="The query: its position, counted from 0, or its word [the last token].",
        show_default=False,
    ),
]
AllQueries = Annotated[
    bool, typer.Option("--all-queries", help="Every query, one after the other.")
]
StepOption = Annotated[
    str | None,
    typer.Option(
        "--step",
        metavar="N|NAME",
        help="Only this step: its number, or its name in JSON, e.g. omegas.",
        show_default=False,
    ),
]
Dims = Annotated[
    int,
    typer.Option(
        "--dims",
        metavar="N",
        help="Terms of a sum and numbers of a vector to write out, the largest; the rest is "
        "counted and added up [8].",
        show_default=False,
    ),
]
Flash = Annotated[
    int | None,
    typer.Option(
        "--flash",
        metavar="BLOCK",
        help="Then the same row as FlashAttention computes it, BLOCK keys at a time.",
        show_default=False,
    ),
]
FormatOption = Annotated[
    o.Format | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help="table (default); plain: a sentence per row, without boxes and colour; json; csv; "
        "markdown.",
        show_default=False,
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write to a file; the ending .json, .csv, .txt or .md names the format.",
        show_default=False,
    ),
]


def command(
    text: o.TextArgument = None,
    query: Query = None,
    all_queries: AllQueries = False,
    step: StepOption = None,
    head: o.Head = None,
    dims: Dims = 8,
    flash: Flash = None,
    file: o.File = None,
    variant: o.VariantOption = None,
    heads: o.Heads = None,
    cross: o.Cross = None,
    causal: o.Causal = False,
    align: o.AlignOption = None,
    mask_method: o.MaskMethodOption = o.Method.NEG_INF,
    model: m.Model = None,
    layer: m.OneLayer = None,
    target_text: m.TargetText = None,
    chat: m.Chat = False,
    offline: m.Offline = False,
    qkv: o.Qkv = None,
    tokenizer: o.Tokenizer = None,
    vocabulary: o.VocabularyFile = None,
    keep_punctuation: o.KeepPunctuation = False,
    d_model: o.DModel = None,
    d_key: o.DKey = None,
    d_value: o.DValue = None,
    vocabulary_size: o.VocabularySize = None,
    seed: o.Seed = None,
    device: o.DeviceOption = "cpu",
    dtype: o.DtypeOption = None,
    precision: o.Precision = 4,
    format_: FormatOption = None,
    json: o.Json = False,
    output: Output = None,
    force: o.Force = False,
    color: o.Color = o.ColorMode.AUTO,
    width: o.Width = None,
) -> None:
    """Explain one query, from the word to its context vector.

    Each step with its shape, its formula, a sentence and its numbers written out: token, id,
    embedding, query, keys, values, omegas, scale, mask, softmax, context. Without a text it takes
    the lesson's sentence. With --model it explains a head of a real model: --layer and --head.
    """
    if query is not None and all_queries:
        raise OptionError("--query and --all-queries contradict each other", "Give one")
    for name, value in (("--dims", dims), ("--flash", flash)):
        if value is not None and value < 1:
            raise OptionError(f"{name} {value} is not positive", "Give 1 or more")
    target = prepare(format_, json, output, force, color, width, formats=FORMATS)
    look = Look(precision=precision, width=target.width, summarise=target.for_people)
    if model is not None:
        refuse_with_model(
            variant=variant, heads=heads, cross=cross, causal=causal, align=align, qkv=qkv,
            tokenizer=tokenizer, vocabulary=vocabulary, keep_punctuation=keep_punctuation,
            d_model=d_model, d_key=d_key, d_value=d_value, vocabulary_size=vocabulary_size,
            seed=seed, mask_method=None if mask_method is o.Method.NEG_INF else mask_method,
        )  # fmt: skip
        if layer is None:
            raise OptionError("a model has many layers", "Choose one with --layer N")
        given = ModelAsked(
            model, LESSON_SENTENCE if text is None and file is None else text, file,
            target=target_text,
            chat=chat, device=device, dtype=dtype, offline=offline,
        )  # fmt: skip
        run = _run_of_model(given, layer)
        _explain(run, query, all_queries, head, dims, step, flash, target, look)
        return
    refuse_without_model(layer=layer, target=target_text, chat=chat, offline=offline)
    asked = Asked(
        text, file, qkv, cross, variant, heads, causal, align, str(mask_method), d_model, d_key,
        d_value, vocabulary_size, seed, device, dtype,
        Cutting(tokenizer, vocabulary, keep_punctuation),
    )  # fmt: skip
    _explain(asked.make(LESSON_SENTENCE), query, all_queries, head, dims, step, flash, target, look)


def _run_of_model(given: ModelAsked, layer: str) -> "Run":
    (found,) = given.make()
    calls = found.find(layer)
    if len(calls) > 1:
        names = ", ".join(call.site.name for call in calls[:8])
        raise OptionError(
            f'--layer "{visible(layer)}" names {len(calls)} calls, and one is explained',
            f"Give one of {names}",
        )
    return found.run_of(calls)


def _explain(
    run: "Run",
    query: str | None,
    all_queries: bool,
    head: int | None,
    dims: int,
    step: str | None,
    flash: int | None,
    target: Target,
    look: Look,
) -> None:
    from attnscope.explain import explain

    explanation = explain(
        run, _queries(run, query, all_queries), head=head, dims=dims, step=step, flash=flash
    )
    say("note", run.notes)
    say("warning", run.warnings)
    _write(target, explanation, look, head)


def _queries(run: "Run", query: str | None, every: bool) -> tuple[int, ...]:
    from attnscope.run import find_queries

    if every:
        return tuple(range(len(run.queries)))
    return (len(run.queries) - 1,) if query is None else find_queries(run, query)


def _write(target: Target, explanation: "Explanation", look: Look, head: int | None) -> None:
    if target.format is o.Format.JSON:
        from attnscope.views.explain_json import render_explanation

        target.write(render_explanation(explanation, head))
        return
    from attnscope.views.explain_parts import parts_of_explanation

    csv = target.format is o.Format.CSV
    parts = parts_of_explanation(explanation, look, every_number=csv)
    if target.format is o.Format.MARKDOWN:
        from attnscope.views import markdown

        target.write(markdown.render(parts, look))
        return
    target.write_parts(parts, look)
