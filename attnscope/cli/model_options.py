"""The options of every command that runs a model, declared once."""

from typing import Annotated

import typer


def _option(*names: str, help: str, **more: object) -> object:
    return typer.Option(*names, help=help, show_default=False, **more)  # type: ignore[arg-type]


Model = Annotated[
    str | None,
    _option(
        "--model",
        metavar="PATH",
        help="Run this model: a folder with config, safetensors and tokenizer, a .gguf file, or "
        "owner/name on the hub.",
    ),
]
NeededModel = Annotated[
    str,
    _option(
        "--model",
        metavar="PATH",
        help="The model: a folder with config, safetensors and tokenizer, a .gguf file, or "
        "owner/name on the hub.",
    ),
]
Texts = Annotated[
    list[str] | None,
    _option("--text", metavar="TEXT", help="One more text; may be given several times."),
]
PerLine = Annotated[
    bool, _option("--per-line", help="With --file: each line is a text of its own.")
]
TargetText = Annotated[
    str | None,
    _option(
        "--target",
        metavar="TEXT",
        help="What the decoder of an encoder-decoder has written; the other text is its source.",
    ),
]
Chat = Annotated[
    bool, _option("--chat", help="Put the text into the model's chat template, as a user's turn.")
]
Generate = Annotated[
    int | None,
    _option(
        "--generate",
        metavar="N",
        help="Let the model go on greedily for N tokens, and show their attention too.",
    ),
]
Layer = Annotated[
    str | None,
    _option(
        "--layer",
        metavar="N",
        help="Show the weights of this layer: a number, a range (3-5), several (0,7), cross.3 in "
        "an encoder-decoder, a module's name, or all.",
    ),
]
OneLayer = Annotated[
    str | None,
    _option(
        "--layer",
        metavar="N",
        help="The layer to explain: a number, cross.3 in an encoder-decoder, or a module's name.",
    ),
]
Offline = Annotated[
    bool, _option("--offline", help="Never touch the network, whatever --model names.")
]
Strict = Annotated[
    bool,
    _option(
        "--strict",
        help="Exit with 1 if a layer's record does not reproduce the model's own output.",
    ),
]
