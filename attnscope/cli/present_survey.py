"""What the commands about a model's heads, tokens and layers share."""

from typing import TYPE_CHECKING

from attnscope.cli.model_source import ModelAsked
from attnscope.cli.present_model import check_sites as check_sites
from attnscope.cli.text_input import argument
from attnscope.errors import TextError

if TYPE_CHECKING:
    from attnscope.sources.model.loaded import LoadedModel
    from attnscope.text.tokens import Tokens


def cut_all(
    given: ModelAsked, *, shorten: bool = False
) -> "tuple[LoadedModel, list[Tokens], list[Tokens] | None]":
    """Load the model and cut the texts; what can be checked without the model is checked first.

    `shorten`: the text is our own, and a model that cannot take all of it gets the beginning.
    """
    texts = given.texts()
    loaded = given.load()
    tokens = _shortened(given, loaded, texts[0]) if shorten else given.cut(loaded, texts)
    if given.target is None:
        return loaded, tokens, None
    from attnscope.sources.model.cut import cut

    return loaded, tokens, [cut(loaded, argument(given.target), target=True)]


def _shortened(given: ModelAsked, loaded: "LoadedModel", text: str) -> "list[Tokens]":
    words = text.split()
    while True:
        try:
            return given.cut(loaded, [" ".join(words)])
        except TextError:
            if len(words) == 1:
                raise
            words = words[: len(words) // 2]
