"""The matrix W_O that a model multiplies the joined contexts of its heads by, found as it is used.

No name is trusted: the projection is the linear layer whose input is, number for number, the
output of the attention call before it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from attnscope.attention.verify import CapturedCall

CallKey = tuple[str, int, int]  # module name, turn, layer


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

    def heard(self, captured: CapturedCall) -> None:
        """Take a call, as the model made it."""
        call = (call_key(captured), captured.step)
        if call != self._call:
            self._call, self._outputs = call, []
        self._outputs.append(captured.output)

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

    def _before(self, module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        if self._call is None or not args or not isinstance(args[0], Tensor):
            return
        size = sum(output.numel() for output in self._outputs)
        given = args[0]
        if given.numel() != size or self._call[0] in self.found:
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
