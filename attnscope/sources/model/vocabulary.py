"""What is known about a model's own tokenizer, found once, and tokens made with it."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

from attnscope.errors import TokenizerError
from attnscope.text.display import byte_level_label, label
from attnscope.text.tokenizer import SHOWN_WHOLE
from attnscope.text.tokens import Tokens, Vocabulary


@dataclass(frozen=True, slots=True, eq=False)
class ModelVocabulary:
    """A transformers tokenizer and what its ids mean. `name` is safe to print.

    Units: `rows` is one more than the largest id. `entries` is None if there are too many to
    show.
    """

    tokenizer: Any
    name: str
    size: int
    rows: int
    entries: dict[str, int] | None
    special_ids: frozenset[int]
    added_ids: frozenset[int]
    unknown_id: int | None
    byte_level: bool

    def tokens(
        self,
        text: str,
        ids: Sequence[int],
        spans: Sequence[tuple[int, int]] | None = None,
        added: Sequence[bool] | None = None,
    ) -> Tokens:
        """Return ids of this tokenizer as tokens of `text`.

        Without `spans` every token has an empty one: where it came from is not known. `added`
        says which tokens the tokenizer put in.
        """
        pieces = tuple(str(piece) for piece in self.tokenizer.convert_ids_to_tokens(list(ids)))
        spans = tuple(spans) if spans is not None else ((0, 0),) * len(ids)
        added = added if added is not None else (False,) * len(ids)
        special = tuple(
            bool(put_in) or token_id in self.special_ids
            for token_id, put_in in zip(ids, added, strict=True)
        )
        unknown = tuple(token_id == self.unknown_id for token_id in ids)
        labels = tuple(self._label(text, *token) for token in zip(ids, pieces, spans, strict=True))
        entries = self.entries or dict(
            sorted(zip(pieces, ids, strict=True), key=lambda entry: (entry[1], entry[0]))
        )
        vocabulary = Vocabulary(
            "file", self.name, self.size, self.rows, entries, self.entries is not None
        )
        return Tokens(text, pieces, labels, tuple(ids), spans, special, unknown, vocabulary)

    def _label(self, text: str, token_id: int, piece: str, span: tuple[int, int]) -> str:
        if token_id == self.unknown_id:
            return f"{label(piece)} {label(text[slice(*span)])}" if span[0] < span[1] else piece
        if self.byte_level and token_id not in self.added_ids:
            return byte_level_label(piece)
        return label(piece)


def vocabulary_of(tokenizer: Any, name: str) -> ModelVocabulary:
    """Find out what the ids of a transformers tokenizer mean, and make it keep spans whole.

    Raises: TokenizerError for a tokenizer without tokens.
    """
    entries = dict(tokenizer.get_vocab())
    added = dict(tokenizer.added_tokens_decoder)
    marks = {i for i, token in added.items() if getattr(token, "special", False)}
    special = frozenset(tokenizer.all_special_ids) | marks
    if set(entries.values()) <= special:
        raise TokenizerError(
            f"the tokenizer of {name} knows no tokens besides its special ones",
            "Save it with the model again; its vocabulary file is missing",
        )
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        _keep_whole_spans(backend)
    return ModelVocabulary(
        tokenizer,
        name,
        len(entries),
        max(entries.values()) + 1,
        dict(sorted(entries.items(), key=lambda e: (e[1], e[0])))
        if len(entries) <= SHOWN_WHOLE
        else None,
        special,
        frozenset(added),
        _unknown_id(tokenizer),
        backend is not None and _is_byte_level(backend),
    )


def _unknown_id(tokenizer: Any) -> int | None:
    """Return the id that stands for what the vocabulary lacks.

    Some tokenizers that lack nothing name their end mark for it: then no token is unknown.
    """
    unknown = tokenizer.unk_token_id
    marks = (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id)
    return None if unknown in marks else unknown


def _is_byte_level(backend: Any) -> bool:
    # the parts as JSON; the whole tokenizer would be megabytes of it
    parts = (backend.pre_tokenizer, backend.decoder)
    return any(part is not None and b'"ByteLevel"' in part.__getstate__() for part in parts)


def _keep_whole_spans(backend: Any) -> None:
    """Make spans include the space a piece begins with.

    Trimmed, a piece that is a space has an empty span and looks as if it had been put in.
    """
    ending = backend.post_processor
    parts = [ending]
    if type(ending).__name__ == "Sequence":
        # older versions of tokenizers cannot look inside one: spans stay trimmed there
        with suppress(TypeError, IndexError):
            for place in count():
                parts.append(ending[place])
    for part in parts:
        if getattr(part, "trim_offsets", False):
            part.trim_offsets = False
