"""Which tokenizer cuts the text, chosen by the options."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from attnscope.cli.output import check_writable, write_file
from attnscope.cli.text_input import read_file
from attnscope.errors import OptionError
from attnscope.text.tokens import Tokens

if TYPE_CHECKING:
    from attnscope.text.tokenizer import TextTokenizer


@dataclass(slots=True)
class Cutting:
    """How texts are cut into tokens, as asked on the command line; cuts them and saves how."""

    tokenizer: Path | None = None
    vocabulary: Path | None = None
    keep_punctuation: bool = False
    save: Path | None = None
    force: bool = False
    _used: "tuple[TextTokenizer, str] | None" = None

    def __post_init__(self) -> None:
        if self.tokenizer is not None and self.vocabulary is not None:
            raise OptionError("--tokenizer and --vocabulary both name a vocabulary", "Give one")
        if self.tokenizer is not None and self.keep_punctuation:
            raise OptionError(
                "--keep-punctuation is for built vocabularies, and --tokenizer is given",
                "Leave one out",
            )
        if self.save is not None:
            check_writable(self.save, force=self.force)

    @property
    def asked(self) -> bool:
        """Whether any of it was asked for."""
        return self != Cutting(force=self.force)

    def cut(self, *texts: str) -> list[Tokens]:
        """Cut texts with one tokenizer; a vocabulary built from text is built from all of them."""
        corpus = "\n".join(texts) if self.vocabulary is None else read_file(self.vocabulary)
        tokenizer = self._tokenizer(corpus)
        self._used = tokenizer, corpus
        return [tokenizer.tokens(text) for text in texts]

    def save_if_asked(self) -> None:
        """Write the tokenizer that was used, if --save-tokenizer was given."""
        if self.save is None or self._used is None:
            return
        from attnscope.text.words import reusable

        tokenizer, corpus = self._used
        saved = reusable(tokenizer, corpus, keep_punctuation=self.keep_punctuation)
        write_file(self.save, saved.tokenizer.to_str(pretty=True).encode(), force=self.force)

    def _tokenizer(self, corpus: str) -> "TextTokenizer":
        if self.tokenizer is not None:
            from attnscope.text.tokenizer_file import load_tokenizer

            return load_tokenizer(self.tokenizer)
        from attnscope.text.words import build_tokenizer, corpus_tokenizer

        if self.vocabulary is None:
            return build_tokenizer(corpus, keep_punctuation=self.keep_punctuation)
        name = str(self.vocabulary)
        return corpus_tokenizer(corpus, name, keep_punctuation=self.keep_punctuation)
