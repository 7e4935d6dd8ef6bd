"""Cut texts with a model's own tokenizer."""

from typing import Any

from attnscope.errors import OptionError, TextError
from attnscope.sources.model.architecture import Kind
from attnscope.sources.model.error import ModelError
from attnscope.sources.model.loaded import LoadedModel
from attnscope.sources.model.quiet import quiet
from attnscope.text.display import visible
from attnscope.text.tokenizer import check_text, guarded, shortened
from attnscope.text.tokens import Tokens


def cut(
    loaded: LoadedModel,
    text: str,
    *,
    chat: bool = False,
    add_special: bool = True,
    target: bool = False,
    generate: int = 0,
) -> Tokens:
    """Cut a text into the tokens that the model would see; nothing is cut off.

    `chat` puts the text into the model's chat template, as a user's message that waits for an
    answer: the tokens are then those of the whole conversation. `add_special` adds what the
    tokenizer puts around a text. `target` cuts for the decoder of an encoder-decoder, whose
    language may be another. `generate` is how many tokens are to follow.
    Units: spans are characters of `Tokens.text`; all are empty where the tokenizer cannot tell.
    Raises: TextError without tokens or with more than the model has positions for; OptionError
    without a chat template; TokenizerError; ModelError if the tokenizer is another model's.
    """
    check_text(text)
    vocabulary = loaded.vocabulary
    whole = f"the tokenizer of {loaded.name}"
    if chat:
        text, add_special = _conversation(loaded, text), False
    with quiet():
        found = guarded(lambda: _encoded(loaded.tokenizer, text, add_special, target), whole)
    ids = [int(token) for token in found["input_ids"]]
    if not ids:
        raise TextError(f"no tokens in {shortened(text)}", "Give some text")
    follow = generate if loaded.kind is not Kind.ENCODER_DECODER else 0
    check_length(loaded, len(ids), follow, shortened(text))
    _check_ids(loaded, ids)
    spans = found.get("offset_mapping")
    return vocabulary.tokens(
        text,
        ids,
        None if spans is None else [(int(start), int(end)) for start, end in spans],
        [bool(mark) for mark in found["special_tokens_mask"]],
    )


def check_length(loaded: LoadedModel, tokens: int, follow: int, what: str) -> None:
    """Raise TextError if `tokens`, and as many as follow, are more than the model can place."""
    most = loaded.context_length
    if most is None or tokens + follow <= most:
        return
    if tokens <= most:
        raise TextError(
            f"{what} has {tokens} tokens, and with {follow} more they are {tokens + follow}: the "
            f"context of {loaded.name} is {most}",
            f"Generate at most {most - tokens}" if tokens < most else "Give a shorter text",
        )
    raise TextError(
        f"{what} has {tokens} tokens, and the context of {loaded.name} is {most}",
        "Give a shorter text; none is cut off",
    )


def _encoded(tokenizer: Any, text: str, add_special: bool, target: bool) -> Any:
    options = {
        "add_special_tokens": add_special,
        "return_special_tokens_mask": True,
        # switches off what the tokenizer file says about both
        "padding": False,
        "truncation": False,
        "verbose": False,
    }
    if tokenizer.is_fast:
        options["return_offsets_mapping"] = True
    return tokenizer(text_target=text, **options) if target else tokenizer(text, **options)


def _conversation(loaded: LoadedModel, text: str) -> str:
    tokenizer = loaded.tokenizer
    if not getattr(tokenizer, "chat_template", None):
        raise OptionError(
            f"the tokenizer of {loaded.name} has no chat template", "Leave out the chat option"
        )
    messages = [{"role": "user", "content": text}]
    with quiet():
        rendered = guarded(
            lambda: tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            ),
            f"the chat template of {loaded.name}",
        )
    return str(rendered)


def _check_ids(loaded: LoadedModel, ids: list[int]) -> None:
    """Raise ModelError if an id has no row in the model's table of embeddings."""
    table = getattr(loaded.model.get_input_embeddings(), "weight", None)
    if table is not None and max(ids) >= table.shape[0]:
        piece = visible(str(loaded.tokenizer.convert_ids_to_tokens(max(ids))))
        raise ModelError(
            f"the tokenizer of {loaded.name} gives {piece} the id {max(ids)}, and the model has "
            f"{table.shape[0]} embeddings",
            "Use the tokenizer that belongs to the model",
        )
