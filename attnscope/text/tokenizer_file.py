"""A tokenizer.json, or a folder that holds one, loaded and checked."""

import json
from pathlib import Path
from typing import Any

import orjson
from tokenizers import Tokenizer

from attnscope.errors import TokenizerError
from attnscope.text.display import visible
from attnscope.text.tokenizer import TextTokenizer, guarded, most_rows

_SEQUENCES = ("normalizers", "pretokenizers", "processors", "decoders")
_MODELS = ("BPE", "Unigram", "WordLevel", "WordPiece")


def load_tokenizer(path: Path) -> TextTokenizer:
    """Load `path` (a tokenizer.json or a folder that holds one), padding and truncation off.

    Raises: TokenizerError naming the file and what is wrong with it.
    """
    try:
        file = path / "tokenizer.json" if path.is_dir() else path
    except OSError as error:
        raise TokenizerError(
            f"{visible(str(path))} cannot be read: {error.strerror}", "Check the path"
        ) from None
    name = visible(str(file))
    settings = _settings(file, name)
    model = _checked_model(settings, name)
    notes = _switch_off_cutting(settings)
    byte_level = _keep_whole_spans(settings)
    tokenizer = guarded(lambda: Tokenizer.from_buffer(orjson.dumps(settings)), f"tokenizer {name}")
    return TextTokenizer(
        tokenizer,
        "file",
        name,
        unknown_ids=_unknown_ids(model, tokenizer),
        special_ids=frozenset(
            token_id
            for token_id, added in tokenizer.get_added_tokens_decoder().items()
            if added.special
        ),
        byte_level=byte_level,
        added_ids=frozenset(tokenizer.get_added_tokens_decoder()),
        notes=notes,
    )


def _settings(file: Path, name: str) -> dict[str, Any]:
    try:
        data = file.read_bytes()
    except (FileNotFoundError, ValueError):  # a path with a NUL is a ValueError
        raise TokenizerError(
            f"there is no tokenizer file {name}",
            "Give a tokenizer.json or a folder that holds one",
        ) from None
    except OSError as error:
        raise TokenizerError(f"tokenizer file {name} cannot be read: {error.strerror}") from None
    try:
        settings = json.loads(data)
    except UnicodeDecodeError as error:
        raise TokenizerError(
            f"tokenizer file {name} is not UTF-8: byte 0x{data[error.start]:02X} at offset "
            f"{error.start}",
            "Give a tokenizer.json",
        ) from None
    except (ValueError, RecursionError) as error:
        where = (
            f"{error.msg} at line {error.lineno} column {error.colno}"
            if isinstance(error, json.JSONDecodeError)
            else visible(" ".join(str(error).split()))  # too many digits, or too many brackets
        )
        raise TokenizerError(
            f"tokenizer file {name} is not JSON: {where}", "Give a complete tokenizer.json"
        ) from None
    if not isinstance(settings, dict):
        raise TokenizerError(
            f"tokenizer file {name} holds {type(settings).__name__} at line 1 column 1, "
            "not a tokenizer",
            "Give a tokenizer.json as the tokenizers library writes it",
        )
    return settings


def _checked_model(settings: dict[str, Any], name: str) -> dict[str, Any]:
    model = settings.get("model")
    if not isinstance(model, dict):
        raise TokenizerError(
            f'tokenizer file {name} has no "model"',
            "Give a tokenizer.json as the tokenizers library writes it",
        )
    kind = model.get("type")
    if kind is not None and kind not in _MODELS:
        raise TokenizerError(
            f"tokenizer file {name} has the unknown model type {visible(str(kind))}",
            f"Known are {', '.join(_MODELS)}",
        )
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, dict):
        _check_ids(vocabulary, settings, name)
    return model


def _check_ids(vocabulary: dict[str, Any], settings: dict[str, Any], name: str) -> None:
    added = settings.get("added_tokens") or []
    if not isinstance(added, list) or not all(isinstance(token, dict) for token in added):
        raise TokenizerError(
            f'"added_tokens" in tokenizer file {name} is not a list of tokens',
            "Give a tokenizer.json as the tokenizers library writes it",
        )
    entries = dict(vocabulary)
    entries.update({str(token.get("content")): token.get("id") for token in added})
    most = most_rows(len(entries))
    for piece, piece_id in entries.items():
        if not isinstance(piece_id, int) or not 0 <= piece_id < most:
            raise TokenizerError(
                f"tokenizer file {name} gives the token {visible(piece)} the id "
                f"{visible(str(piece_id))}, but holds {len(entries)} tokens",
                "Number the tokens from 0",
            )


def _switch_off_cutting(settings: dict[str, Any]) -> tuple[str, ...]:
    """Switch off stored padding, truncation and dropout in place; return a note for each."""
    notes = []
    if truncation := settings.get("truncation"):
        length = truncation.get("max_length") if isinstance(truncation, dict) else truncation
        notes.append(f"the tokenizer file cuts texts at {length} tokens: switched off here")
    if settings.get("padding"):
        notes.append("the tokenizer file pads texts: switched off here")
    settings["truncation"] = settings["padding"] = None
    model = settings["model"]
    if model.get("dropout"):
        dropout = visible(str(model["dropout"]))
        notes.append(
            f"the tokenizer file drops merges at random (dropout {dropout}): switched off here"
        )
        model["dropout"] = None
    return tuple(notes)


def _keep_whole_spans(settings: dict[str, Any]) -> bool:
    """Make spans include the space a piece begins with, in place; return whether byte-level.

    With `trim_offsets` a piece that is a space has an empty span and looks added.
    """
    byte_level = False
    for part in _parts(settings):
        if "trim_offsets" in part:
            part["trim_offsets"] = False
        byte_level = byte_level or part.get("type") == "ByteLevel"
    return byte_level


def _parts(settings: dict[str, Any]) -> list[dict[str, Any]]:
    parts = []
    waiting = [
        settings.get(room) for room in ("normalizer", "pre_tokenizer", "post_processor", "decoder")
    ]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        elif isinstance(part, dict):
            parts.append(part)
            waiting += [part.get(inner) for inner in _SEQUENCES]
    return parts


def _unknown_ids(model: dict[str, Any], tokenizer: Tokenizer) -> frozenset[int]:
    unknown = model.get("unk_token")
    unknown_id = model.get("unk_id")
    if isinstance(unknown, str):
        unknown_id = tokenizer.token_to_id(unknown)
    return frozenset({unknown_id} if isinstance(unknown_id, int) else ())
