"""The torch functions that attention is made of, seen as the model calls them."""

import types
from typing import Any, Protocol

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from attnscope.attention.verify import Route
from attnscope.sources.capture.observer import SOFTMAX, Observer, seen_by_observer
from attnscope.sources.capture.place import Places
from attnscope.sources.capture.sdpa import seen_by_flex, seen_by_sdpa
from attnscope.sources.capture.seen import Seen

_SDPA = {
    functional.scaled_dot_product_attention,
    torch.ops.aten.scaled_dot_product_attention,
    torch.ops.aten.scaled_dot_product_attention.default,
}


class Session(Protocol):
    """What the mode needs to know of its capture."""

    places: Places

    @property
    def attentive(self) -> bool:
        """Whether the model's own forward runs here, and nobody else takes the call down."""

    def note(self, make: Any, module: torch.nn.Module) -> None:
        """Record the call that `make()` returns."""


class Mode(TorchFunctionMode):
    """Sees every torch function of this thread; runs each as it is, and notes attention."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self.observer = Observer()
        self._in_composite = 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run `func`; see the class."""
        kwargs = kwargs or {}
        if not self._session.attentive:
            return func(*args, **kwargs)
        if func is functional.multi_head_attention_forward:
            return self._composite(args, kwargs)
        out = func(*args, **kwargs)
        if func in _SDPA:
            self._note(lambda m: seen_by_sdpa(args, kwargs, out, m, self._session.places.batch))
        elif getattr(func, "__name__", "") == "flex_attention" and len(args) >= 6:
            self._note(lambda _: seen_by_flex(args, out))
        elif func in SOFTMAX:
            places = self._session.places
            depth = places.owner()
            with torch._C.DisableTorchFunction():
                self.observer.softmax(args, kwargs, out, depth, places.stack[depth].module)
        elif not self.observer.idle:
            self._follow(func, args, kwargs, out)
        return out

    def _follow(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        with torch._C.DisableTorchFunction():
            met = self.observer.follow(func, args, kwargs, out)
        if met is not None:
            trail, found = met
            places = self._session.places
            self._note(lambda m: seen_by_observer(trail, found, m, places.batch, places.tokens()))

    def _note(self, make: Any) -> None:
        places = self._session.places
        module = places.stack[places.owner()].module

        def routed() -> Seen:
            seen: Seen = make(module)
            if isinstance(module, torch.nn.MultiheadAttention) or self._in_composite:
                seen.route = _MULTI_HEAD
            return seen

        self._session.note(routed, module)

    def _composite(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run nn.MultiheadAttention's function with this mode on, which is off in a handler.

        The function would hand itself to the mode again, so a copy runs that does not ask.
        """
        super().__enter__()  # type: ignore[no-untyped-call]
        self._in_composite += 1
        try:
            return _MULTI_HEAD_FORWARD(*args, **kwargs)
        finally:
            self._in_composite -= 1
            super().__exit__(None, None, None)  # type: ignore[no-untyped-call]


_MULTI_HEAD: Route = "multi_head_attention"


def _unasking(function: Any) -> types.FunctionType:
    names = dict(function.__globals__)
    for name in names:
        if name.startswith("has_torch_function"):
            names[name] = lambda *_: False
    copy = types.FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


_MULTI_HEAD_FORWARD = _unasking(functional.multi_head_attention_forward)
