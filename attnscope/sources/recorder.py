"""Capture every model that runs in this thread, known beforehand or not, until told to stop.

Between two forwards nothing is changed in a model and nothing holds it: the program can save,
copy or drop it as ever. While it runs it is under a capture, as if `capture(model)` was written
around that forward.
"""

import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import wraps
from typing import Any

import torch
from torch.nn import Module
from torch.nn.modules.module import register_module_module_registration_hook

from attnscope.attention.verify import CapturedCall
from attnscope.sources.capture.assemble import Assembly
from attnscope.sources.capture.document import model_run
from attnscope.sources.capture.sdpa import seen_by_sdpa
from attnscope.sources.capture.session import Capture, CaptureError
from attnscope.sources.recorded_model import RecordedModel
from attnscope.sources.recording import Keeper, Limits, Recording

NO_MODULE = "(no module)"
_LISTS = (torch.nn.ModuleList, torch.nn.ModuleDict)


class Recorder:
    """Captures what runs between `start` and `stop`, in the thread that called `start`."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._keeper = Keeper(limits)
        self._models: list[RecordedModel] = []
        # by id, as a module may be one that cannot be hashed; ids are used again, so who is meant
        # is asked of the references
        self._known: dict[int, tuple[weakref.ref[Module], RecordedModel]] = {}
        self._parents: dict[int, list[weakref.ref[Module]]] = {}
        self._loose = Capture(Module(), self._take_loose)
        self._loose.places.names[id(self._loose.model)] = NO_MODULE
        self._loose_calls = Assembly()
        self._skipped: list[str] = []
        self._thread = 0
        self._inside = False
        self._calm = False
        self._restore = ExitStack()

    def start(self) -> None:
        """Watch every module that is called from now on."""
        self._thread = threading.get_ident()
        functional: Any = torch.nn.functional
        self._patch(Module, "__call__", self._watched)
        self._patch(torch, "compile", self._eager)
        self._patch(functional, "scaled_dot_product_attention", self._overheard)
        self._restore.callback(register_module_module_registration_hook(self._registered).remove)

    def stop(self) -> None:
        """Put back what was changed."""
        self._restore.close()

    def recording(self) -> Recording:
        """Return what was recorded, every call computed again to be proven."""
        runs = [run for model in self._models for run in model.runs()]
        loose = [
            model_run(NO_MODULE, records, notes=self._keeper.notes())
            for _, records in self._loose_calls.texts()
        ]
        notes = [*self._keeper.notes()]
        left_out = sum(model.left_out for model in self._models)
        if left_out:
            forwards = "1 forward" if left_out == 1 else f"{left_out} forwards"
            notes.append(f"--steps {self._limits.steps} left out {forwards}")
        reasons = [model.reason for model in self._models if model.reason]
        skipped = [line for model in self._models for line in model.capture.skipped]
        skipped += self._skipped
        return Recording(
            (*runs, *loose),
            tuple(notes),
            tuple(dict.fromkeys(skipped)),
            self._keeper.reason or (reasons[0] if reasons else "no module of torch ran in it"),
            self._keeper.models,
        )

    def _patch(self, owner: Any, name: str, around: Callable[[Any], Any]) -> None:
        plain = getattr(owner, name)
        setattr(owner, name, wraps(plain)(around(plain)))
        self._restore.callback(setattr, owner, name, plain)

    def _watched(self, plain: Any) -> Any:
        def call(module: Module, *args: Any, **kwargs: Any) -> Any:
            if self._inside or self._elsewhere():
                return plain(module, *args, **kwargs)
            self._inside = True
            try:
                with self._hearing(module):
                    return plain(module, *args, **kwargs)
            finally:
                self._inside = False

        return call

    def _eager(self, plain: Any) -> Any:
        def compile(*args: Any, **kwargs: Any) -> Any:
            compiled = plain(*args, **kwargs)
            self._run_eagerly()
            return compiled

        return compile

    def _overheard(self, plain: Any) -> Any:
        def scaled_dot_product_attention(*args: Any, **kwargs: Any) -> Any:
            out = plain(*args, **kwargs)
            if not self._inside and not self._elsewhere():
                model = self._loose.model
                self._loose.note(lambda: seen_by_sdpa(args, kwargs, out, model, None), model)
            return out

        return scaled_dot_product_attention

    def _elsewhere(self) -> bool:
        """Whether this is not the program's own run: another thread, tracing, compiling."""
        return (
            threading.get_ident() != self._thread
            or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
            or torch.compiler.is_compiling()
        )

    def _hearing(self, part: Module) -> AbstractContextManager[None]:
        """Return what a call of a module that no other module called is to run in."""
        self._run_eagerly()
        try:
            root = self._root_of(part)
            model = self._model_of(root, part)
        except Exception as error:  # e.g. TorchScript; the program runs as if nobody looked
            self._skipped.append(f"{type(part).__name__}: {error}")
            return nullcontext()
        steps = self._limits.steps
        if steps is not None and model.forwards >= steps:
            model.left_out += 1
            return nullcontext()
        return model.hearing(root, part)

    def _model_of(self, root: Module, part: Module) -> RecordedModel:
        if isinstance(root, torch.jit.ScriptModule):
            raise CaptureError("it is TorchScript, whose functions cannot be seen")
        who, model = self._known.get(id(root), (None, None))
        if who is None or model is None or who() is not root or not model.knows(part):
            model = RecordedModel(root, self._keeper)
            self._known[id(root)] = weakref.ref(root), model
            self._models.append(model)
        return model

    def _run_eagerly(self) -> None:
        """Let compiled code run as the code it was compiled from: the other cannot be seen."""
        if not self._calm and not self._inside and "torch._dynamo" in sys.modules:
            self._calm = True
            self._restore.enter_context(torch.compiler.set_stance("force_eager"))

    def _registered(self, parent: Module, name: str, child: Module | None) -> None:  # noqa: ARG002  as torch calls it
        if child is not None:
            others = [one for one in self._parents.get(id(child), []) if one() is not None]
            self._parents[id(child)] = [*others, weakref.ref(parent)]

    def _root_of(self, part: Module) -> Module:
        """Return the model that a module is a part of; a list of models is none itself."""
        root = here = part
        seen: set[int] = set()
        while id(here) not in seen:
            seen.add(id(here))
            parents = [one() for one in self._parents.get(id(here), [])]
            here = next((one for one in parents if one is not None and _holds(one, here)), here)
            root = root if isinstance(here, _LISTS) else here
        return root

    def _take_loose(self, call: CapturedCall) -> None:
        if self._keeper.wants(call, NO_MODULE):
            self._loose_calls.take(call)


def _holds(parent: Module, child: Module) -> bool:
    return any(one is child for one in parent._modules.values())
