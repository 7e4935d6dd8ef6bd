"""Other libraries work without a word: their bars become our progress, their logs nothing."""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any, Self

# What is being done, and how much of it is done (0 to 1; None: not known).
Progress = Callable[[str, float | None], None]

_LOGGERS = ("transformers", "huggingface_hub", "accelerate", "gguf")


@contextmanager
def quiet(report: Progress | None = None, doing: str = "") -> Iterator[None]:
    """Hold back bars, warnings and logs of transformers and its helpers; then restore them.

    `report`, if given, hears `doing` and the share of it that is done.
    """
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        _silence_logs(stack)
        _silence_bars(stack)
        if report is not None:
            _redirect_bars(stack, report, doing)
        yield


class Bar:
    """What stands in for a progress bar: it draws nothing and reports the share that is done."""

    def __init__(self, report: Progress, doing: str, things: Any = None, total: Any = None) -> None:
        self._report, self._doing, self._things = report, doing, things
        if total is None and hasattr(things, "__len__"):
            total = len(things)
        self._total = total
        self._done = 0

    def __iter__(self) -> Iterator[Any]:
        for thing in self._things:
            yield thing
            self.update()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def update(self, count: int = 1) -> None:
        """Count what is done."""
        self._done += count
        self._report(self._doing, min(1.0, self._done / self._total) if self._total else None)

    def __getattr__(self, name: str) -> Any:
        # everything else that a bar can do is about how it looks
        return lambda *_, **__: None


def _silence_logs(stack: ExitStack) -> None:
    import_module("transformers")  # sets its own level as it is imported
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        stack.callback(logger.setLevel, logger.level)
        logger.setLevel(logging.CRITICAL + 1)


def _silence_bars(stack: ExitStack) -> None:
    bars = import_module("huggingface_hub.utils")
    log = import_module("transformers.utils.logging")
    # transformers switches both on and off together
    if not bars.are_progress_bars_disabled():
        stack.callback(bars.enable_progress_bars)
    elif log.is_progress_bar_enabled():
        stack.callback(bars.disable_progress_bars)
    if log.is_progress_bar_enabled():
        stack.callback(log.enable_progress_bar)
    log.disable_progress_bar()


def _redirect_bars(stack: ExitStack, report: Progress, doing: str) -> None:
    def bar(things: Any = None, *_: Any, total: Any = None, **__: Any) -> Bar:
        return Bar(report, doing, things, total)

    log = import_module("transformers.utils.logging")
    if hasattr(log, "set_tqdm_hook"):  # new in transformers 5
        previous = log.set_tqdm_hook(lambda _, given, named: bar(*given, **named))
        stack.callback(log.set_tqdm_hook, previous)
    # The loader of .gguf files asks nobody whether it may draw.
    loader: Any = import_module("transformers.modeling_gguf_pytorch_utils")
    stack.callback(setattr, loader, "tqdm", loader.tqdm)
    loader.tqdm = bar
