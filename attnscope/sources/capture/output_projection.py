"""The matrix W_O that a model multiplies the joined contexts of its heads by, found as it is used.

No name is trusted: the projection is the linear layer whose input is, number for number, the
output of the attention call before it.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from attnscope.attention.verify import CapturedCall

CallKey = tuple[str, int, int]  # module name, turn, layer
# Linear layers whose inputs are remembered: of one attention module, and some to spare.
_REMEMBERED = 16


def call_key(captured: CapturedCall) -> CallKey:
    """Return what tells the calls of one forward apart."""
    return captured.module_name, captured.nth, captured.layer


class OutputProjections:
    """Finds the output projections of a model while it runs.

    `found` maps a call to its matrix, (heads · d_value, d_model).
    """

    def __init__(self) -> None:
        self.found: dict[CallKey, Tensor] = {}
        self._call: tuple[CallKey, int] | None = None
        self._outputs: list[Tensor] = []
        self._before_it: deque[tuple[torch.nn.Module, Tensor]] = deque(maxlen=_REMEMBERED)

    def heard(self, captured: CapturedCall) -> None:
        """Take a call, as the model made it."""
        call = (call_key(captured), captured.step)
        if call != self._call:
            self._call, self._outputs = call, []
        self._outputs.append(captured.output)
        if captured.route == "softmax":  # handed on when its module ends: W_O was used before
            for module, given in self._before_it:
                self._compare(module, given)

    @contextmanager
    def watching(self, model: torch.nn.Module) -> Iterator[None]:
        """Look at what the linear layers of a model are given."""
        handles = [
            module.register_forward_pre_hook(self._before)
            for module in model.modules()
            if _matrix(module) is not None
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            self._before_it.clear()

    def _before(self, module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        if args and isinstance(args[0], Tensor):
            self._compare(module, args[0])
            with torch._C.DisableTorchFunction():
                self._before_it.append((module, args[0].detach()))

    def _compare(self, module: torch.nn.Module, given: Tensor) -> None:
        """Take the weights of a linear layer if its input is the output of the last call."""
        if self._call is None or self._call[0] in self.found:
            return
        if given.numel() != sum(output.numel() for output in self._outputs):
            return
        with torch._C.DisableTorchFunction(), torch.no_grad():
            joined = torch.stack([output.transpose(0, 1).flatten(1) for output in self._outputs])
            if torch.equal(joined.flatten(), given.detach().flatten()):
                weight = _matrix(module)
                assert weight is not None  # only such modules are watched
                # a Linear has (out, in), the Conv1D of GPT-2 (in, out)
                turned = isinstance(module, torch.nn.Linear)
                self.found[self._call[0]] = weight.T if turned else weight
                self._call = None


def _matrix(module: torch.nn.Module) -> Tensor | None:
    weight = getattr(module, "weight", None)
    is_linear = isinstance(module, torch.nn.Linear) or type(module).__name__ == "Conv1D"
    return weight.detach() if is_linear and isinstance(weight, Tensor) else None
