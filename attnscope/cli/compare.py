"""`attnscope compare`: the two ways to apply a causal mask, side by side."""

from typing import Annotated

import typer

from attnscope.cli import options as o
from attnscope.cli.output import prepare, say
from attnscope.cli.present import look_for
from attnscope.cli.source import LESSON_SENTENCE, Asked
from attnscope.cli.tokenizers import Cutting
from attnscope.errors import CheckFailed
from attnscope.views.look import read_steps
from attnscope.views.style import gap

FailAbove = Annotated[
    float | None,
    typer.Option(
        "--fail-above",
        metavar="X",
        min=0.0,
        help="Exit with 1 if the largest difference is above X, or not a number.",
        show_default=False,
    ),
]
MethodsOption = Annotated[
    o.Methods,
    typer.Option(
        "--mask-method",
        metavar="METHOD",
        help="Which to compute: neg-inf, renormalize or both (default).",
        show_default=False,
    ),
]


def command(
    text: o.TextArgument = None,
    file: o.File = None,
    mask_method: MethodsOption = o.Methods.BOTH,
    fail_above: FailAbove = None,
    heads: o.Heads = None,
    cross: o.Cross = None,
    align: o.AlignOption = None,
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
    """Compare the two ways to apply a causal mask.

    neg-inf puts minus infinity where a key is hidden, before the softmax; renormalize
    multiplies by the mask after it and divides by the row sums. They are equal on paper, and
    part in floating point when a hidden score lies far above the visible ones. Without a text
    it takes the lesson's sentence.
    """
    steps = read_steps(show)
    target = prepare(format_, json, output, force, color, width)
    cutting = Cutting(tokenizer, vocabulary, keep_punctuation)
    both = mask_method is o.Methods.BOTH
    first = "neg-inf" if both else str(mask_method)
    asked = Asked(
        text, file, qkv, cross, None, heads, True, align, first, d_model, d_key, d_value,
        vocabulary_size, seed, device, dtype, cutting,
    )  # fmt: skip
    run = asked.make(LESSON_SENTENCE)

    from attnscope.attention.engine import MaskMethod
    from attnscope.compare import compare_masks
    from attnscope.views.comparison_parts import parts_of_comparison, steps_missing

    look = look_for(run, target, steps, query, head, precision)
    comparison = compare_masks(run, tuple(MaskMethod) if both else (MaskMethod(first),))
    say("note", [*run.notes, *steps_missing(steps)])
    say("warning", comparison.warnings)
    if target.format is o.Format.JSON:
        from attnscope.views.json_text import render_comparison

        target.write(render_comparison(comparison, look))
    else:
        target.write_parts(parts_of_comparison(comparison, look), look)
    largest = comparison.largest_gap
    if fail_above is not None and largest is None:
        raise CheckFailed("there is nothing to compare with: torch has no kernel with a softcap")
    if fail_above is not None and largest is not None and not largest <= fail_above:
        raise CheckFailed(f"max |Δ| = {gap(largest)} is above {fail_above:g}")
