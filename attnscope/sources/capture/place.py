"""Where a call was made: module, layer, step, and which positions of the text it saw."""

import inspect
import re
import weakref
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnscope.attention.verify import CapturedCall, Kind

# What attention modules call the vectors that keys are made from, if those are not the queries'.
_OTHER_SEQUENCE = ("key_value_states", "encoder_hidden_states", "context", "memory")


class Place(NamedTuple):
    """The part of a record that the record's own tensors do not tell."""

    module_name: str
    layer: int
    nth: int
    step: int
    kind: Kind
    query_offset: int
    key_offset: int


@dataclass(slots=True, eq=False)
class Frame:
    """One running call of a module, with what it was given and what was found in it."""

    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    waiting: list[CapturedCall] = field(default_factory=list)  # until it ends
    refused: bool = False  # its attention fits no record, nor does any part of it


@dataclass(slots=True, eq=False)
class _Positions:
    """How many queries a module has had of the text it is in, and in which of its calls."""

    seen: int = 0
    before: int = 0
    frame: Frame | None = None
    cache: "weakref.ref[object] | None" = None


@dataclass(slots=True, eq=False)
class _Pass:
    """What has run since a module of the model was last called from outside."""

    layer_of: dict[str, tuple[Frame | None, int]] = field(default_factory=dict)
    last: dict[tuple[str, Kind], int] = field(default_factory=dict)
    looped: set[tuple[str, Kind]] = field(default_factory=set)


class Places:
    """Follows a model through its forwards and says where each call stands."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self.names = {
            id(module): name.removeprefix("_orig_mod").removeprefix(".")  # torch.compile's wrapper
            for name, module in model.named_modules()
        }
        self.stack: list[Frame] = []
        self.step = -1
        self.batch: int | None = None
        self.ran: set[int] = set()  # ids of the modules that have run,
        self.attended: set[int] = set()  # and of those in which attention was met
        self._own_weights = {
            id(module) for module in model.modules() if next(module.parameters(), None) is not None
        }
        self._nth: dict[str, int] = {}
        self._positions: dict[str, _Positions] = {}
        self._order: dict[str, int] = {}
        self._pass = _Pass()

    def enter(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A module of the model starts."""
        if module is self.model:
            self.step += 1
            self._nth.clear()
        if not self.stack:
            self._pass = _Pass()
            self.batch = _batch_of((*args, *kwargs.values()))
        self.ran.add(id(module))
        self.stack.append(Frame(module, args, kwargs))

    def leave(self, module: torch.nn.Module) -> list[Frame]:
        """A module of the model has ended; what it left unended (an error) ends with it."""
        for depth in range(len(self.stack) - 1, -1, -1):
            if self.stack[depth].module is module:
                ended = self.stack[depth:]
                for frame in ended:
                    frame.args, frame.kwargs = (), {}  # frames are remembered, not their tensors
                del self.stack[depth:]
                return ended
        return []

    def rest(self) -> None:
        """Hold none of the modules that have run: the model may be gone before it runs again."""
        self._pass = _Pass()
        for positions in self._positions.values():
            positions.frame = None

    def owner(self) -> int:
        """Return the depth of the innermost running module that has weights of its own.

        A softmax, a dropout or a helper without parameters works for the module around it.
        """
        for depth in range(len(self.stack) - 1, 0, -1):
            if id(self.stack[depth].module) in self._own_weights:
                return depth
        return 0

    def frame(self, module: torch.nn.Module) -> Frame | None:
        """Return the innermost running call of a module."""
        return next((f for f in reversed(self.stack) if f.module is module), None)

    def attend(self, module: torch.nn.Module) -> None:
        """Remember that attention was met in a module, and so in all that run around it."""
        self.attended.update(id(frame.module) for frame in self.stack)
        self.attended.add(id(module))

    def without(self) -> list[str]:
        """Return the blocks that ran and met no attention, if others of their list did."""
        found = []
        for name, module in self.model.named_modules():
            if not isinstance(module, torch.nn.ModuleList) or _numbered(name)[1] is not None:
                continue
            blocks = [(self.names[id(block)], id(block)) for block in module]
            if any(block in self.attended for _, block in blocks):
                found += [x for x, i in blocks if i in self.ran and i not in self.attended]
        return found

    def tokens(self) -> set[int]:
        """Return how many tokens the owner of a call was given, wherever that axis may be."""
        frame = self.stack[self.owner()]
        for value in (*frame.args, *frame.kwargs.values()):
            if isinstance(value, Tensor) and value.is_floating_point() and value.dim() > 2:
                return {value.shape[1], value.shape[-2]}
        return set()

    def place(self, module: torch.nn.Module, queries: int, keys: int) -> Place:
        """Return where a call of `module` stands; to be asked once per call."""
        name = self.names[id(module)]
        frame = self.frame(module)
        arguments = {} if frame is None else _arguments(frame)
        kind = _kind(arguments)
        nth = self._nth[name] = self._nth.get(name, -1) + 1
        query_offset, seen = self._count(name, frame, arguments, queries, keys, kind)
        key_offset = seen - keys if kind == "self" and keys < seen else 0
        layer = self._layer(name, kind, frame)
        return Place(name, layer, nth, max(self.step, 0), kind, query_offset, key_offset)

    def _count(
        self,
        name: str,
        frame: Frame | None,
        arguments: dict[str, Any],
        queries: int,
        keys: int,
        kind: Kind,
    ) -> tuple[int, int]:
        """Return the position of the first query, and how many queries there have been."""
        positions = self._positions.setdefault(name, _Positions())
        if frame is None or positions.frame is not frame:  # several calls in one are one text
            cache = _cache(arguments)
            if cache is not None:
                goes_on = positions.cache is not None and positions.cache() is cache
                positions.cache = weakref.ref(cache)
            else:
                goes_on = kind == "self" and keys > queries
                positions.cache = None
            positions.before = positions.seen if goes_on else 0
            positions.seen = positions.before + queries
            positions.frame = frame
        return positions.before, positions.seen

    def _layer(self, name: str, kind: Kind, frame: Frame | None) -> int:
        """Return the number in the name; where modules run again as further layers, count on."""
        prefix, number = _numbered(name)
        if number is None:
            number = self._order.setdefault(name, len(self._order))
        here, key = self._pass, (prefix, kind)
        if name in here.layer_of:
            then, layer = here.layer_of[name]
            if then is frame:
                return layer
            here.looped.add(key)
        layer = here.last[key] + 1 if key in here.looped else number
        here.layer_of[name] = (frame, layer)
        here.last[key] = max(layer, here.last.get(key, -1))
        return layer


def _numbered(name: str) -> tuple[str, int | None]:
    found = re.search(r"(?:^|\.)([0-9]+)(?:\.|$)", name)
    return (name, None) if found is None else (name[: found.start()], int(found[1]))


def _batch_of(values: tuple[Any, ...]) -> int | None:
    """Return the batch size of a model's input: (batch, tokens) of ids or (batch, …, width)."""
    for value in values:
        if isinstance(value, Tensor) and value.dim() > (2 if value.is_floating_point() else 1):
            return value.shape[0]
    return None


@lru_cache(maxsize=1024)
def _parameters(function: Any) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(function).parameters)[1:]
    except (TypeError, ValueError):  # written in C, or bound in a way that hides it
        return ()


def _arguments(frame: Frame) -> dict[str, Any]:
    names = _parameters(type(frame.module).forward)
    return {**dict(zip(names, frame.args, strict=False)), **frame.kwargs}


def _kind(arguments: dict[str, Any]) -> Kind:
    query, key = arguments.get("query"), arguments.get("key")
    if isinstance(query, Tensor) and isinstance(key, Tensor):
        return "self" if query is key else "cross"
    crossed = any(isinstance(arguments.get(name), Tensor) for name in _OTHER_SEQUENCE)
    return "cross" if crossed else "self"


def _cache(arguments: dict[str, Any]) -> object | None:
    """Return the cache of earlier keys that a module was given, if it is an object of its own."""
    return next((x for x in arguments.values() if hasattr(x, "get_seq_length")), None)
