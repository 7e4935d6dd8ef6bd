"""What to keep of the attention calls of a program, and what was kept."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from attnscope.errors import OptionError, SizeError
from attnscope.text.display import visible

if TYPE_CHECKING:  # limits are read before torch is loaded
    from attnscope.attention.verify import CapturedCall
    from attnscope.model_run import ModelRun


@dataclass(frozen=True, slots=True)
class Limits:
    """How much to keep; None keeps all. Raises: OptionError for what keeps nothing."""

    calls: int | None = None
    steps: int | None = None
    layers: str | None = None

    def __post_init__(self) -> None:
        for name, value in (("--calls", self.calls), ("--steps", self.steps)):
            if value is not None and value < 1:
                raise OptionError(f"{name} {value} keeps nothing", "Give 1 or more")
        self.ranges()

    def ranges(self) -> tuple[range, ...] | None:
        """Return the layers that `--layers` names: "0,3,10-12"."""
        if self.layers is None:
            return None
        found = []
        for piece in self.layers.split(","):
            match = re.fullmatch(r"\s*([0-9]{1,9})(?:-([0-9]{1,9}))?\s*", piece)
            if match is None or int(match[2] or match[1]) < int(match[1]):
                raise OptionError(
                    f'--layers "{visible(self.layers)}" does not name layers',
                    "Give numbers and ranges, e.g. 0,3,10-12",
                )
            found.append(range(int(match[1]), int(match[2] or match[1]) + 1))
        return tuple(found)


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """What was recorded: one document per text and forward; or `reason`, why there is nothing.

    `notes` say what the limits left out, `skipped` which calls fit into no record.
    """

    runs: "tuple[ModelRun, ...]" = ()
    notes: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    reason: str = "it did not load torch"
    models: dict[str, int] = field(default_factory=dict)  # calls kept of each

    @property
    def summary(self) -> str:
        """How many calls of which models were kept: "60 attention calls of BertModel"."""
        total = _calls(sum(self.models.values()))
        if len(self.models) == 1:
            return f"{total} of {next(iter(self.models))}"
        return f"{total} ({', '.join(f'{count} of {name}' for name, count in self.models.items())})"

    @property
    def calls(self) -> int:
        """How many records there are; those of the steps of one text were put together."""
        return sum(len(run.calls) for run in self.runs)

    @property
    def unproven(self) -> int:
        """How many of them do not reproduce the output that the model computed."""
        return sum(not call.site.proven for run in self.runs for call in run.calls)


@dataclass(slots=True, eq=False)
class Keeper:
    """Decides call by call, and counts what is left out."""

    limits: Limits
    kept: int = 0
    over: int = 0  # more than --calls
    no_room: int = 0
    other_layers: int = 0
    models: dict[str, int] = field(default_factory=dict)
    _bytes: int = 0
    _seen_layers: set[int] = field(default_factory=set)

    def wants(self, call: "CapturedCall", model: str) -> bool:
        """Return whether to keep a call. Once one is left out for want of room, all later are.

        A text of which a step is missing in the middle could not be put together.
        """
        ranges = self.limits.ranges()
        self._seen_layers.add(call.layer)
        if ranges is not None and not any(call.layer in one for one in ranges):
            self.other_layers += 1
        elif self.limits.calls is not None and self.kept >= self.limits.calls:
            self.over += 1
        elif self.no_room or not self._fits(call):
            self.no_room += 1
        else:
            self.kept += 1
            self.models[model] = self.models.get(model, 0) + 1
            return True
        return False

    def notes(self) -> tuple[str, ...]:
        """Return what was left out, in a line each."""
        counted = (
            (self.over, f"--calls {self.limits.calls} left out"),
            (self.other_layers, f"--layers {self.limits.layers} left out"),
            (self.no_room, "use --calls, --steps or --layers: there was no memory for"),
        )
        return tuple(f"{why} {_calls(count)}" for count, why in counted if count)

    @property
    def reason(self) -> str:
        """Why nothing was kept, if it is for a limit."""
        if self.kept or not self._seen_layers:
            return ""
        if self.other_layers:
            return (
                f"no attention call was in --layers {self.limits.layers}: those made were in "
                f"{_numbers(sorted(self._seen_layers))}"
            )
        return "there is no memory to keep an attention call in"

    def _fits(self, call: "CapturedCall") -> bool:
        from attnscope.attention.device import check_bytes

        size = self._bytes + _size(call)
        try:
            check_bytes(size, "")  # what is kept is copied once, to be written
        except SizeError:
            return False
        self._bytes = size
        return True


def _size(call: "CapturedCall") -> int:
    record = call.call
    names = ("query", "key", "value", "bias", "weights", "scores")
    tensors = [call.output, *(getattr(record, name, None) for name in names)]
    cells = record.queries * record.keys  # of the mask
    return cells + sum(x.numel() * x.element_size() for x in tensors if x is not None)


def _calls(count: int) -> str:
    return "1 attention call" if count == 1 else f"{count} attention calls"


def _numbers(layers: Sequence[int]) -> str:
    return ", ".join(map(str, layers[:8])) + (", …" if len(layers) > 8 else "")
