"""A tokenizer, built or loaded, and the one way to cut text with it."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from tokenizers import Encoding, Tokenizer

from attnscope.errors import TextError, TokenizerError
from attnscope.text.display import byte_level_label, label, visible
from attnscope.text.tokens import Tokens, Vocabulary

# A vocabulary of at most this many entries is shown whole.
SHOWN_WHOLE = 1000

# A few ids may be unused (removed or reserved tokens). More holes than the vocabulary has
# entries, and more than these, mean a damaged file: an embedding table would have a row for each.
_HOLES_ALLOWED = 1024

T = TypeVar("T")


def most_rows(size: int) -> int:
    """Return how many rows an embedding table may need for a vocabulary of `size` tokens."""
    return 2 * size + _HOLES_ALLOWED


@dataclass(frozen=True, slots=True, eq=False)
class TextTokenizer:
    """A `tokenizers.Tokenizer` with what is known about its vocabulary."""

    tokenizer: Tokenizer
    source: str  # "text", "corpus" or "file"
    name: str
    unknown_ids: frozenset[int] = frozenset()
    special_ids: frozenset[int] = frozenset()
    byte_level: bool = False
    added_ids: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()

    def tokens(self, text: str) -> Tokens:
        """Cut `text` into tokens.

        Raises: TextError if no token is left; TokenizerError if the tokenizer fails.
        """
        check_text(text)
        encoding = guarded(lambda: self.tokenizer.encode(text), f"tokenizer {visible(self.name)}")
        if not encoding.ids:
            raise TextError(
                f"no tokens in {shortened(text)}",
                "Give at least one word; --keep-punctuation makes punctuation tokens"
                if self.source != "file"
                else "Give some text",
            )
        return self._tokens(text, encoding)

    def _tokens(self, text: str, encoding: Encoding) -> Tokens:
        ids = tuple(encoding.ids)
        pieces = tuple(encoding.tokens)
        spans = tuple((start, end) for start, end in encoding.offsets)
        most = most_rows(self.tokenizer.get_vocab_size())
        if len({len(ids), len(pieces), len(spans)}) > 1 or max(ids) >= most:
            raise TokenizerError(
                f"tokenizer {visible(self.name)} gives {len(ids)} ids up to {max(ids)} for "
                f"{len(pieces)} tokens",
                "Check the special tokens of its post-processor",
            )
        added = encoding.special_tokens_mask
        special = tuple(bool(added[i]) or ids[i] in self.special_ids for i in range(len(ids)))
        unknown = tuple(piece_id in self.unknown_ids for piece_id in ids)
        labels = tuple(self._label(text, *token) for token in zip(ids, pieces, spans, strict=True))
        return Tokens(
            text, pieces, labels, ids, spans, special, unknown, self._vocabulary(pieces, ids)
        )

    def _label(self, text: str, token_id: int, piece: str, span: tuple[int, int]) -> str:
        if token_id in self.unknown_ids:
            return f"{label(piece)} {label(text[slice(*span)])}"
        if self.byte_level and token_id not in self.added_ids:
            return byte_level_label(piece)
        return label(piece)

    def _vocabulary(self, pieces: tuple[str, ...], ids: tuple[int, ...]) -> Vocabulary:
        size = self.tokenizer.get_vocab_size()
        everything = self.tokenizer.get_vocab()
        complete = size <= SHOWN_WHOLE
        entries = everything if complete else dict(zip(pieces, ids, strict=True))
        ordered = dict(sorted(entries.items(), key=lambda entry: (entry[1], entry[0])))
        rows = max([*everything.values(), *ids]) + 1
        return Vocabulary(self.source, self.name, size, rows, ordered, complete, self.notes)


def check_text(text: str) -> None:
    """Raise TextError if `text` cannot be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TextError(
            f"the text holds a lone surrogate (U+{ord(text[error.start]):04X}) at character "
            f"{error.start}",
            "Give valid Unicode text",
        ) from None


def shortened(text: str, most: int = 40) -> str:
    """Return `text` quoted and visible for a message, cut after `most` characters."""
    return f'"{visible(text[:most])}{"…" if len(text) > most else ""}"'


def guarded(work: Callable[[], T], what: str) -> T:
    """Run a call into the tokenizers library; any failure, even a Rust panic, is one clear error.

    A panic arrives as a BaseException and the Rust side prints a report of its own to file
    descriptor 2, which is held back here.
    """
    with _held_back_stderr():
        try:
            return work()
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:
            reason = visible(" ".join(str(error).split()))
            raise TokenizerError(
                f"{what} cannot be used: {reason}",
                "Check the file with the program that wrote it",
            ) from None


@contextmanager
def _held_back_stderr() -> Iterator[None]:
    try:
        saved = os.dup(2)
    except OSError:  # no standard error at all
        yield
        return
    with tempfile.TemporaryFile() as sink:
        os.dup2(sink.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
