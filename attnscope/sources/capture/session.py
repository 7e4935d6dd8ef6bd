"""One capture: hooks, mode and patch for the time of a `with`, and the calls it heard."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, Self

import torch

from attnscope.attention.verify import CapturedCall
from attnscope.errors import AttnscopeError, OptionError
from attnscope.sources.capture.interface import seen_by_interface
from attnscope.sources.capture.mode import Mode
from attnscope.sources.capture.place import Places
from attnscope.sources.capture.seen import Seen, unseen
from attnscope.sources.capture.shared import Given, listening
from attnscope.sources.capture.split import MaskStore, texts


class CaptureError(AttnscopeError):
    """The attention of a model cannot be captured."""


class Capture:
    """The attention calls of one model in one thread; see `capture`.

    `calls` grows as the model runs. `skipped` says in a line each which calls did not fit into
    a record, and why; the model never notices.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        if not isinstance(model, torch.nn.Module):
            raise OptionError(
                f"capture was given a {type(model).__name__}", "Give a torch.nn.Module"
            )
        self.model = model
        self.calls: list[CapturedCall] = []
        self.skipped: list[str] = []
        self.places = Places(model)
        self._masks = MaskStore()
        self._mode = Mode(self)
        self._hushed = 0
        self._thread = 0
        self._exit = ExitStack()

    def __enter__(self) -> Self:
        if self._thread:
            raise OptionError("this capture is already running", "Call capture(model) again")
        with ExitStack() as stack:
            self._thread = threading.get_ident()
            stack.callback(self._end)
            for module in self.model.modules():
                self._hook(module, stack)
            stack.enter_context(listening(self))
            stack.enter_context(self._mode)
            self._exit = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._exit.__exit__(kind, error, trace)

    def require(self) -> None:
        """Raise: CaptureError saying why, if no attention call was captured."""
        if self.calls:
            return
        name = type(self.model).__name__
        if self.skipped:
            raise CaptureError(f"no attention call of {name} fits a record", self.skipped[0])
        if not self.places.ran:
            raise CaptureError(
                f"{name} did not run while it was captured", "Call it inside the with block"
            )
        if self._mode.observer.lost:
            raise CaptureError(
                f"a softmax of {name} was not followed to a product with values",
                "Gates and routers have none; banded and sparse attention is not recognised",
            )
        raise CaptureError(
            f"no softmax attention ran in {name}",
            "State-space, convolution and linear-attention layers have no attention weights",
        )

    # what the hooks, the mode and the patch ask

    @property
    def attentive(self) -> bool:
        """Whether the model's own forward runs here, and nobody else takes the call down."""
        return not self._hushed and bool(self.places.stack)

    def hears(self, module: torch.nn.Module) -> bool:
        """Return whether a call of this module, in this thread, belongs to the model."""
        return (
            id(module) in self.places.names
            and threading.get_ident() == self._thread
            and not self._hushed
            and not _in_backward()
        )

    @contextmanager
    def hush(self) -> Iterator[None]:
        """Hear nothing: the call is already being taken down."""
        self._hushed += 1
        try:
            yield
        finally:
            self._hushed -= 1

    def heard(
        self, name: str, function: Any, module: torch.nn.Module, given: Given, returned: Any
    ) -> None:
        """Record a call of an implementation that transformers chose."""
        self.note(lambda: seen_by_interface(name, function, module, given, returned), module)

    def note(self, make: Callable[[], Seen], module: torch.nn.Module) -> None:
        """Record the call that `make()` returns. Whatever is odd about it, the model goes on."""
        name = self.places.names.get(id(module), "")
        try:
            with unseen():
                seen = make()
                place = self.places.place(module, seen.queries, seen.keys)
                records = list(texts(seen, self._masks))
        except Exception as error:  # the model must run as if nobody looked
            self.skipped.append(f"{name or type(module).__name__}: {error}")
            return
        for text, (call, output) in enumerate(records):
            self.calls.append(
                CapturedCall(
                    call,
                    output,
                    **place._asdict(),
                    text=text,
                    route=seen.route,
                    dropout=seen.dropout,
                    unknown=seen.unknown,
                )
            )

    def _hook(self, module: torch.nn.Module, stack: ExitStack) -> None:
        if isinstance(module, torch.jit.ScriptModule):
            raise CaptureError(
                f"{type(module).__name__} is TorchScript, whose functions cannot be seen",
                "Load the model itself",
            )
        before = module.register_forward_pre_hook(self._before, with_kwargs=True)
        stack.callback(before.remove)
        stack.callback(module.register_forward_hook(self._after, always_call=True).remove)

    def _before(
        self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if threading.get_ident() != self._thread:
            return
        if self.places.stack or not _in_backward():
            self.places.enter(module, args, kwargs)

    def _after(self, module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> None:  # noqa: ARG002  as torch calls it
        if threading.get_ident() != self._thread:
            return
        self.places.leave(module)
        depth = len(self.places.stack)
        if not self._mode.observer.idle:
            self._mode.observer.forget(depth if depth else -1)
        if not depth:
            self._masks.forget()

    def _end(self) -> None:
        self._thread = 0
        self.places.stack.clear()
        self._mode.observer.forget(-1)
        self._masks.forget()


def _in_backward() -> bool:
    # a checkpointed block runs again there: it is no new call
    return torch._C._current_graph_task_id() != -1
