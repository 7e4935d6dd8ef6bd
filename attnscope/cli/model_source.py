"""From options to ModelRuns: which texts, through which model."""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from attnscope.cli.options import Dtype
from attnscope.cli.text_input import argument, read_text
from attnscope.errors import OptionError, TextError
from attnscope.text.display import visible

if TYPE_CHECKING:
    from collections.abc import Callable

    from attnscope.model_run import ModelRun
    from attnscope.sources.model.loaded import LoadedModel
    from attnscope.text.tokens import Tokens


@dataclass(frozen=True, slots=True)
class ModelAsked:
    """A model and the texts to run through it, as asked on the command line. None: not given."""

    model: str
    text: str | None = None
    file: Path | None = None
    more: Sequence[str] = ()
    per_line: bool = False
    target: str | None = None
    chat: bool = False
    generate: int | None = None
    device: str = "cpu"
    dtype: Dtype | None = None
    offline: bool = False
    norms: bool = False

    def texts(self) -> list[str]:
        """Return the texts. Raises: OptionError if there is none, or options contradict."""
        if self.per_line and self.file is None:
            raise OptionError("--per-line without --file", "Name the file whose lines are texts")
        if self.generate is not None and self.generate < 1:
            raise OptionError(f"--generate {self.generate} is not positive", "Give 1 or more")
        found = [argument(text) for text in self.more]
        first = read_text(self.text, self.file)
        if first is not None and self.per_line:
            lines = first.splitlines()
            if empty := [i + 1 for i, line in enumerate(lines) if not line.strip()]:
                raise TextError(
                    f"line {empty[0]} of {visible(str(self.file))} is empty",
                    "With --per-line each line is a text: take empty lines out",
                )
            found = lines + found
        elif first is not None:
            found.insert(0, first)
        if not found:
            raise OptionError(
                "there is no text", 'Give a sentence in quotes, "-" for standard input, or --file'
            )
        if self.target is not None and len(found) > 1:
            raise OptionError(
                f"there is one --target and {len(found)} texts", "Run them one at a time"
            )
        return found

    def load(self) -> "LoadedModel":
        """Load the model, saying on a terminal how far it is."""
        from attnscope.sources.model.place import find_model

        place = find_model(self.model, offline=self.offline)
        with progress_bar() as report:
            from attnscope.sources.model.loaded import load_model

            dtype = None if self.dtype is None else str(self.dtype)
            return load_model(place, device=self.device, dtype=dtype, progress=report)

    def cut(self, loaded: "LoadedModel", texts: Sequence[str]) -> "list[Tokens]":
        """Cut texts with the model's tokenizer."""
        from attnscope.sources.model.cut import cut

        more = self.generate or 0
        return [cut(loaded, text, chat=self.chat, generate=more) for text in texts]

    def ready(self) -> "ReadyTexts":
        """Load the model and cut the texts. What needs no model is checked first."""
        texts = self.texts()
        loaded = self.load()
        tokens = self.cut(loaded, texts)
        if self.target is None:
            return ReadyTexts(loaded, tokens)

        from attnscope.sources.model.cut import cut

        return ReadyTexts(loaded, tokens, [cut(loaded, argument(self.target), target=True)])

    def make(self) -> "list[ModelRun]":
        """Run every text, and keep what its attention calls used."""
        return self.run(self.ready())

    def run(self, ready: "ReadyTexts") -> "list[ModelRun]":
        """Run texts that are ready."""
        from attnscope.sources.model.watch import run_texts

        return run_texts(
            ready.loaded,
            ready.tokens,
            ready.targets,
            generated=self.generate or 0,
            norms=self.norms,
        )


@dataclass(frozen=True, slots=True)
class ReadyTexts:
    """A loaded model, and the texts for it; `targets`: of an encoder-decoder, if given."""

    loaded: "LoadedModel"
    tokens: "list[Tokens]"
    targets: "list[Tokens] | None" = None

    @property
    def first(self) -> "tuple[Tokens, Tokens | None]":
        """The first text and its target."""
        return self.tokens[0], None if self.targets is None else self.targets[0]


@contextlib.contextmanager
def progress_bar() -> "Iterator[Callable[[str, float | None], None] | None]":
    """Show on standard error what is being done and how far it is, if a person looks at it."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=24))
    with Progress(
        *columns, console=Console(stderr=True), transient=True, redirect_stdout=False
    ) as bar:
        task = bar.add_task("", total=None)

        def report(what: str, share: float | None) -> None:
            total = None if share is None else 1.0
            bar.update(task, description=visible(what), total=total, completed=share or 0.0)

        yield report
