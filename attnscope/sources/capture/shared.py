"""What captures change for the whole process: changed by the first, put back by the last.

Two threads may capture at once and end in any order, so neither may put back what it found.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps
from typing import Any, Protocol

import torch

Given = tuple[tuple[Any, ...], dict[str, Any]]


class Listener(Protocol):
    """One capture, as the patched implementation sees it."""

    def hears(self, module: torch.nn.Module) -> bool:
        """Return whether this call, in this thread, belongs to the captured model."""

    def hush(self) -> AbstractContextManager[None]:
        """Return a context in which the capture hears nothing else."""

    def heard(
        self, name: str, function: Any, module: torch.nn.Module, given: "Given", returned: Any
    ) -> None:
        """Take down one call."""


class _Shared:
    """The captures that run, and what was changed for them."""

    def __init__(self) -> None:
        self.listeners: tuple[Listener, ...] = ()
        self._lock = threading.Lock()
        self._changed: set[str] = set()
        self._restore = ExitStack()

    def join(self, listener: Listener) -> None:
        with self._lock:
            if "torch._dynamo" in sys.modules and "stance" not in self._changed:
                # compiled code runs past hooks and patches; without dynamo nothing is compiled
                self._restore.enter_context(torch.compiler.set_stance("force_eager"))
                self._changed.add("stance")
            interface = _interface()
            if interface is not None and "interface" not in self._changed:
                _patch(interface, self._restore)
                self._changed.add("interface")
            self.listeners += (listener,)

    def leave(self, listener: Listener) -> None:
        with self._lock:
            self.listeners = tuple(x for x in self.listeners if x is not listener)
            if not self.listeners:
                self._changed.clear()
                self._restore.close()


_SHARED = _Shared()


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Let a capture hear the attention implementations of transformers."""
    _SHARED.join(listener)
    try:
        yield
    finally:
        _SHARED.leave(listener)


def _interface() -> Any:
    """Return the class that transformers' models ask for their implementation, if it is loaded.

    It is not imported: a model of transformers has done so already. Before transformers 5.1 there
    is nothing to patch, and the torch function mode sees the attention of these models.
    """
    interface = getattr(sys.modules.get("transformers.modeling_utils"), "AttentionInterface", None)
    return interface if hasattr(interface, "get_interface") else None


def _patch(interface: Any, restore: ExitStack) -> None:
    plain = interface.get_interface

    def get_interface(self: Any, attn_implementation: Any, default: Any) -> Any:
        return _overheard(attn_implementation, plain(self, attn_implementation, default))

    own = "get_interface" in vars(interface)
    interface.get_interface = get_interface
    if own:
        restore.callback(setattr, interface, "get_interface", plain)
    else:
        restore.callback(delattr, interface, "get_interface")


def _overheard(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def overheard(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        listeners = [listener for listener in _SHARED.listeners if listener.hears(module)]
        with ExitStack() as hushed:
            for listener in listeners:
                hushed.enter_context(listener.hush())
            returned = function(module, *args, **kwargs)
        for listener in listeners:
            listener.heard(name, function, module, (args, kwargs), returned)
        return returned

    return overheard
