"""The options of `heads`, `top`, `who` and `layers`, declared once."""

from typing import Annotated

import typer

from attnscope.cli.options import Dtype


def _option(*names: str, help: str, **more: object) -> object:
    return typer.Option(*names, help=help, show_default=False, **more)  # type: ignore[arg-type]


Layer = Annotated[
    str | None,
    _option(
        "--layer",
        metavar="N",
        help="Only these layers: a number, a range (3-5), several (0,7), cross.3 in an "
        "encoder-decoder, or a module's name.",
    ),
]
Sort = Annotated[
    str,
    _option(
        "--sort",
        metavar="MEASURE",
        help="Largest first: first, special, previous, next, same, induction, probe, local, "
        "distance, entropy or largest; by name (the default), or by layer.",
    ),
]
Only = Annotated[
    str | None,
    _option(
        "--only",
        metavar="KIND",
        help="Only heads of this kind: previous, next, induction, same, first, special, local or "
        "none.",
    ),
]
Least = Annotated[
    float | None,
    _option(
        "--min", metavar="X", help="Only heads with at least X of the measure they are sorted by."
    ),
]
Limit = Annotated[
    int | None,
    _option("--limit", metavar="N", help="How many heads a table shows [20]; else all."),
]
LinkLimit = Annotated[
    int, _option("--limit", metavar="N", help="How many of the strongest to show [20].")
]
NoSink = Annotated[
    bool,
    _option("--no-sink", help="Leave the first token out, and divide the rest of each row anew."),
]
Probe = Annotated[
    bool,
    _option("--probe", help="Also run random tokens twice over, which shows induction heads."),
]
Seed = Annotated[
    int, _option("--seed", metavar="N", help="What the random tokens are drawn from [0].")
]
Precision = Annotated[int, _option("--precision", metavar="N", help="Decimals in tables [2].")]
ModelDtype = Annotated[
    Dtype | None,
    _option(
        "--dtype",
        metavar="TYPE",
        help="The type of the model's weights: float64, float32, bfloat16 or float16 [as stored].",
    ),
]
Token = Annotated[
    str,
    _option(
        "--token",
        metavar="N|WORD",
        help="The token that is asked about: its position, counted from 0, or its word.",
    ),
]
Words = Annotated[
    bool,
    _option(
        "--words",
        help="Whole words: the mean over the pieces that look, the sum over those looked at.",
    ),
]
