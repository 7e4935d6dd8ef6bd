"""One capture: hooks, mode and patch for the time of a `with`, and the calls it heard."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, Self

import torch

from attnscope.attention.verify import CapturedCall
from attnscope.errors import AttnscopeError, OptionError
from attnscope.model_run import ModelRun
from attnscope.sources.capture.document import runs_of
from attnscope.sources.capture.interface import seen_by_interface
from attnscope.sources.capture.mode import Mode
from attnscope.sources.capture.observer import PartialError, Trail
from attnscope.sources.capture.place import Places
from attnscope.sources.capture.seen import Seen, unseen
from attnscope.sources.capture.shared import Given, listening
from attnscope.sources.capture.split import MaskStore, texts
from attnscope.text.display import visible

# Weights of attention have a batch, heads, queries and keys; gates and routers have fewer axes.
_AXES_OF_ATTENTION = 4


class CaptureError(AttnscopeError):
    """The attention of a model cannot be captured."""


class Capture:
    """The attention calls of one model in one thread; see `capture`.

    `calls` grows as the model runs. `skipped` says in a line each which calls did not fit into
    a record, and why; the model never notices.
    """

    def __init__(
        self, model: torch.nn.Module, on_call: Callable[[CapturedCall], None] | None = None
    ) -> None:
        if not isinstance(model, torch.nn.Module):
            raise OptionError(
                f"capture was given a {type(model).__name__}", "Give a torch.nn.Module"
            )
        self.model = model
        self.part = model  # whose modules are followed: what runs
        self.calls: list[CapturedCall] = []
        self.skipped: list[str] = []
        self.captured = 0  # how many calls there were, kept or handed on
        self._take = self.calls.append if on_call is None else on_call
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
            for module in self.part.modules():
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

    @property
    def without(self) -> list[str]:
        """The blocks without attention, by name, of a model that has some with and some without.

        A block is a numbered member of a list of modules, e.g. "model.layers.0"; it counts if it
        ran. A hybrid of state-space and attention layers has such blocks.
        """
        return self.places.without()

    def require(self) -> None:
        """Raise: CaptureError saying why, if no attention call was captured."""
        if self.captured:
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
            "State-space, convolution and linear-attention layers have no attention weights; "
            "a softmax written as exp is not recognised",
        )

    @property
    def runs(self) -> list[ModelRun]:
        """Everything captured as documents, one per text and per forward that began anew.

        The steps of `generate` are put together. Each call is computed again, to be proven.
        Raises: CaptureError if nothing was captured.
        """
        self.require()
        return runs_of(self)

    @property
    def run(self) -> ModelRun:
        """The document of the one text that was captured: see `runs`. Raises: OptionError."""
        runs = self.runs
        if len(runs) != 1:
            raise OptionError(
                f"{len(runs)} texts or forwards were captured", "Take one of them from .runs"
            )
        return runs[0]

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
        self.places.attend(module)
        frame = self.places.frame(module)
        try:
            with unseen():
                seen = make()
                observed = seen.route == "softmax"
                if frame is not None and observed and frame.refused:
                    return
                place = self.places.place(module, seen.queries, seen.keys)
                records = list(texts(seen, self._masks))
        except Exception as error:  # the model must run as if nobody looked
            self._skip(module, str(error))
            if isinstance(error, PartialError) and frame is not None:
                frame.refused = True
                frame.waiting.clear()
            return
        calls = [
            CapturedCall(
                call,
                output,
                **place._asdict(),
                text=text,
                route=seen.route,
                dropout=seen.dropout,
                unknown=seen.unknown,
            )
            for text, (call, output) in enumerate(records)
        ]
        # a later softmax of the same forward may show that these are parts of something else
        if frame is not None and observed:
            frame.waiting += calls
        else:
            self._hand_on(calls)

    def _hand_on(self, calls: list[CapturedCall]) -> None:
        if not calls:  # as for nearly every module that ends
            return
        with unseen(), self.hush():  # what is done with a call is no call of the model
            for call in calls:
                self.captured += 1
                self._take(call)

    def _skip(self, module: torch.nn.Module, why: str) -> None:
        name = self.places.names.get(id(module)) or type(module).__name__
        line = f"{visible(name)}: {why}"
        if line not in self.skipped:  # once, however many tokens are generated
            self.skipped.append(line)

    def _lose(self, trail: Trail) -> None:
        if len(trail.shape) >= _AXES_OF_ATTENTION:
            self.places.attend(trail.module)
            self._skip(
                trail.module,
                f"a softmax over {trail.shape[-1]} keys met no values. "
                "Banded attention is not recorded",
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
        for frame in self.places.leave(module):
            self._hand_on(frame.waiting)
            frame.waiting = []
        depth = len(self.places.stack)
        if not self._mode.observer.idle:
            for trail in self._mode.observer.forget(depth if depth else -1):
                self._lose(trail)
        if not depth:
            self._masks.forget()

    def _end(self) -> None:
        self._thread = 0
        for frame in self.places.stack:
            self._hand_on(frame.waiting)
        self.places.stack.clear()
        self._mode.observer.forget(-1)
        self._masks.forget()


def _in_backward() -> bool:
    # a checkpointed block runs again there: it is no new call
    return torch._C._current_graph_task_id() != -1
