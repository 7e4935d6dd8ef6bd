"""Every option that commands share, declared once."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from attnscope.sources.options import Align


class Format(StrEnum):
    """What a document is written as."""

    TABLE = "table"
    PLAIN = "plain"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"
    HTML = "html"
    SVG = "svg"
    PNG = "png"
    NDJSON = "ndjson"


TEXT_FORMATS = (Format.TABLE, Format.PLAIN, Format.JSON, Format.CSV)
SAVED_FORMATS = (*TEXT_FORMATS, Format.HTML, Format.SVG, Format.PNG)
RUN_FORMATS = (*SAVED_FORMATS, Format.NDJSON)


class ColorMode(StrEnum):
    """When to colour tables."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class Variant(StrEnum):
    """The lesson's four kinds of attention."""

    SELF = "self"
    MULTI_HEAD = "multi-head"
    CROSS = "cross"
    CAUSAL = "causal"


class Method(StrEnum):
    """How hidden keys get no weight."""

    NEG_INF = "neg-inf"
    RENORMALIZE = "renormalize"


class Methods(StrEnum):
    """Which of the two methods to compute."""

    NEG_INF = "neg-inf"
    RENORMALIZE = "renormalize"
    BOTH = "both"


class Dtype(StrEnum):
    """The floating type of inputs, scores and weights."""

    FLOAT64 = "float64"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


def _option(*names: str, help: str, **more: object) -> object:
    return typer.Option(*names, help=help, show_default=False, **more)  # type: ignore[arg-type]


TextArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="TEXT", help='The sentence; "-" reads standard input.', show_default=False
    ),
]
File = Annotated[
    Path | None, _option("--file", metavar="FILE", help="Read the text from a file (UTF-8).")
]
Cross = Annotated[
    str | None,
    _option("--cross", metavar="TEXT", help="Cross-attention: keys and values from this text."),
]
VariantOption = Annotated[
    Variant | None,
    _option(
        "--variant",
        metavar="KIND",
        help="The same by name: self (the default); multi-head sets --heads 4; cross without "
        "--cross takes the lesson's second sequence of eight vectors; causal sets --causal.",
    ),
]
Heads = Annotated[
    int | None, _option("--heads", metavar="N", help="The number of attention heads [1].")
]
Causal = Annotated[
    bool, _option("--causal", help="Each token sees itself and what comes before it.")
]
AlignOption = Annotated[
    Align | None,
    _option(
        "--align",
        metavar="CORNER",
        help="With unequal lengths: top-left (the first query sees the first key) or bottom-right "
        "(the last query sees every key).",
    ),
]
MaskMethodOption = Annotated[
    Method,
    _option(
        "--mask-method",
        metavar="METHOD",
        help="Hide keys with minus infinity before the softmax (neg-inf, the default), or "
        "multiply by the mask after it and divide by the row sums (renormalize).",
    ),
]
DModel = Annotated[
    int | None, _option("--d-model", metavar="N", help="The width of embeddings [3].")
]
DKey = Annotated[
    int | None, _option("--d-key", metavar="N", help="The width of queries and keys [2].")
]
DValue = Annotated[
    int | None,
    _option("--d-value", metavar="N", help="The width of each head's values [4 / heads]."),
]
VocabularySize = Annotated[
    int | None,
    _option("--vocabulary-size", metavar="N", help="The rows of the embedding table [50000]."),
]
Seed = Annotated[
    int | None, _option("--seed", metavar="N", help="What the weights are drawn from [123].")
]
DeviceOption = Annotated[
    str, _option("--device", metavar="NAME", help="cpu (default), cuda, cuda:N, mps or auto.")
]
DtypeOption = Annotated[
    Dtype | None,
    _option(
        "--dtype",
        metavar="TYPE",
        help="The type of inputs, scores and weights: float64, float32 (default), bfloat16 or "
        "float16.",
    ),
]
Qkv = Annotated[
    Path | None,
    _option(
        "--qkv",
        metavar="FILE",
        help="Take query, key and value from a .json, .npz or .safetensors file, not from text.",
    ),
]
Tokenizer = Annotated[
    Path | None,
    _option(
        "--tokenizer",
        metavar="PATH",
        help="A tokenizer.json or a folder that holds one; without it words are tokens.",
    ),
]
VocabularyFile = Annotated[
    Path | None,
    _option(
        "--vocabulary",
        metavar="FILE",
        help="Build the vocabulary from this text; other words become [UNK].",
    ),
]
KeepPunctuation = Annotated[
    bool, _option("--keep-punctuation", help="Punctuation marks are tokens too.")
]
SaveTokenizer = Annotated[
    Path | None,
    _option(
        "--save-tokenizer",
        metavar="FILE",
        help="Write the tokenizer as a tokenizer.json; a built one gets [UNK] as its last id.",
    ),
]
Show = Annotated[
    str | None,
    _option(
        "--show",
        metavar="STEPS",
        help="Only these steps, separated by commas: tokens, shapes, embeddings, projections, "
        "queries, keys, values, omegas, mask, scaled, unmasked, masked, row-sums, weights, "
        "norms, output-norms, context, concatenation, summary; or all.",
    ),
]
Norms = Annotated[
    bool,
    _option(
        "--norms",
        help="Beside each weight the length of what it moves: its value, and in a model its value "
        "times the output projection.",
    ),
]
Query = Annotated[
    str | None,
    _option(
        "--query",
        metavar="N|WORD",
        help="Only this query, number by number: its position, counted from 0, or its word.",
    ),
]
Head = Annotated[int | None, _option("--head", metavar="N", help="Only this head, counted from 0.")]
Precision = Annotated[int, _option("--precision", metavar="N", help="Decimals in tables [4].")]
FormatOption = Annotated[
    Format | None,
    _option(
        "--format",
        metavar="NAME",
        help="table (default); plain: a sentence per row, without boxes and colour; json; csv.",
    ),
]
RunFormatOption = Annotated[
    Format | None,
    _option(
        "--format",
        metavar="NAME",
        help="table (default); plain: a sentence per row, without boxes and colour; json; csv; "
        "html: a page to explore; svg or png: a heat map; ndjson: measures, a line per query as "
        "they are computed.",
    ),
]
Json = Annotated[bool, _option("--json", help="The same as --format json.")]
Output = Annotated[
    Path | None,
    _option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write to a file; the ending .json, .csv or .txt names the format.",
    ),
]
PictureOutput = Annotated[
    Path | None,
    _option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write to a file; the ending .html, .svg, .png, .json, .csv or .txt names the format.",
    ),
]
Save = Annotated[
    Path | None,
    _option("--save", metavar="FILE", help="Keep the run in a file for attnscope show."),
]
Heatmap = Annotated[
    bool,
    _option("--heatmap", help="Show the weights as coloured cells (read out with --format plain)."),
]
Downsample = Annotated[
    int | None,
    _option(
        "--downsample",
        metavar="N",
        help="Draw heat maps, pages and pictures as at most N × N blocks: each shows its largest "
        "weight.",
    ),
]
Budget = Annotated[
    int | None, _option("--budget", metavar="MB", help="The largest HTML page to write [100].")
]
Force = Annotated[bool, _option("--force", help="Write over files that exist.")]
Color = Annotated[
    ColorMode,
    _option("--color", metavar="WHEN", help="When to colour: auto (default), always or never."),
]
Width = Annotated[
    int | None,
    _option("--width", metavar="N", help="Columns of a table [the terminal's]."),
]
