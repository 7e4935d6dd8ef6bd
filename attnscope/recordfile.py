"""Save the attention calls of models and load them back: described in docs/recordfile.md.

A record file holds what each call used (query, key, value, mask, …) and what the model made of
it, in the type it was captured in. The matrices are not in it: they follow from it, and are
computed when they are shown. Nothing in the file is executed.
"""

import dataclasses
import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from attnscope.attention.call import AttentionCall
from attnscope.attention.engine import visible as engine_visible
from attnscope.attention.masks import EVERYTHING
from attnscope.attention.verify import ObservedCall
from attnscope.document_file import FileKind, damaged, holds, read_document
from attnscope.errors import RunFileError
from attnscope.model_run import ModelCall, ModelRun
from attnscope.recordfile_checks import AxisHeader, CallHeader, RunHeader, read_run, rule_called
from attnscope.run import Axis
from attnscope.runfile_checks import checked
from attnscope.text.display import visible

KIND = FileKind(
    "attnscope-record",
    1,
    "record file",
    "Record it again",
    "is a safetensors file, but no record that attnscope wrote",
    "Make one with attnscope record",
)
# A reader of safetensors takes no header above 100 MB.
_MOST_HEADER = 90_000_000


def dump_record(runs: Sequence[ModelRun]) -> bytes:
    """Return model runs as the bytes of a record file. Equal runs give equal bytes.

    Memory: a second copy of every tensor.
    Raises: RunFileError if there are no runs, or more calls than a file can list.
    """
    if not runs:
        raise RunFileError("there is no attention call to save")
    writer = _Writer()
    header = {
        "format": KIND.version,
        "runs": [dataclasses.asdict(writer.run(i, run)) for i, run in enumerate(runs)],
        "axes": [dataclasses.asdict(axis) for axis in writer.axes],
    }
    text = json.dumps(header, ensure_ascii=False, allow_nan=False)
    if len(text.encode()) > _MOST_HEADER:
        raise RunFileError(
            f"{sum(len(run.calls) for run in runs)} attention calls are more than a file can list",
            "Keep fewer of them",
        )
    return safetensors.torch.save(writer.tensors, {KIND.key: text})


def save_record(runs: Sequence[ModelRun], path: str | Path) -> None:
    """Write model runs to a new file.

    Raises: RunFileError if the file exists or cannot be written.
    """
    path = Path(path)
    try:
        with path.open("xb") as file:
            file.write(dump_record(runs))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RunFileError(f"{visible(str(path))} cannot be written: {reason}") from None


def is_record(path: str | Path) -> bool:
    """Return whether a file says that it is a record file, whatever else may be wrong with it."""
    return holds(path, KIND)


def load_record(path: str | Path) -> list[ModelRun]:
    """Load a record file.

    The error that each call was proven with is read, not computed again.
    Raises: RunFileError naming the file, if it is damaged, foreign or from a newer version.
    """
    path = Path(path)
    header, tensors = read_document(path, KIND)
    with damaged(path, KIND):
        axes = [one.axis() for one in checked(tuple[AxisHeader, ...], header["axes"], "axes")]
        runs = checked(tuple[RunHeader, ...], header["runs"], "runs")
        if not runs:
            raise ValueError("it holds no runs")
        return [read_run(i, run, axes, tensors) for i, run in enumerate(runs)]


class _Writer:
    """Collects tensors and axes; what several calls share is kept once."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.axes: list[AxisHeader] = []
        self._numbers: dict[int, int] = {}  # by id, of the axes of one run
        self._shared: dict[tuple[object, ...], str] = {}
        self._memory: set[int] = set()

    def run(self, number: int, run: ModelRun) -> RunHeader:
        """Return the header of a run whose tensors were taken in."""
        self._numbers = {}
        return RunHeader(
            model=run.model,
            queries=self._axis(run.queries),
            source=None if run.source is None else self._axis(run.source),
            calls=tuple(
                self._call(f"run.{number}.call.{i}", call) for i, call in enumerate(run.calls)
            ),
            without=run.without,
            skipped=run.skipped,
            notes=run.notes,
            warnings=run.warnings,
            provenance=run.provenance,
        )

    def _axis(self, axis: Axis) -> int:
        # Runs share what is equal. Within a run two equal axes stay two: keys that are another
        # text than the queries can have the same words.
        if id(axis) not in self._numbers:
            header = AxisHeader(axis.labels, axis.tokens, axis.first)
            taken = self._numbers.values()
            free = (i for i, one in enumerate(self.axes) if one == header and i not in taken)
            number = next(free, len(self.axes))
            self.axes += [header] if number == len(self.axes) else []
            self._numbers[id(axis)] = number
        return self._numbers[id(axis)]

    def _call(self, prefix: str, call: ModelCall) -> CallHeader:
        site, captured, record = call.site, call.captured, call.captured.call
        self._add(prefix, "output", captured.output)
        if call.projected_lengths is not None:
            self._add(prefix, "projected_lengths", call.projected_lengths)
        if isinstance(record, ObservedCall):
            self._add(prefix, "weights", record.weights)
            self._add(prefix, "value", record.value)
            if record.scores is not None:
                self._add(prefix, "scores", record.scores)
        else:
            for name in ("query", "key", "value"):
                self._add(prefix, name, getattr(record, name))
        scored = record if isinstance(record, AttentionCall) else None
        mask, seen = (EVERYTHING.name, None) if scored is None else self._mask(scored)
        return CallHeader(
            name=site.name,
            layer=site.layer,
            part=site.part,
            module_name=site.module_name,
            nth=site.nth,
            route=site.route,
            error=repr(site.error),  # JSON has no NaN: the text of any float
            tolerance=site.tolerance,
            queries=self._axis(call.queries),
            keys=self._axis(call.keys),
            kind=captured.kind,
            step=captured.step,
            text=captured.text,
            query_offset=captured.query_offset,
            key_offset=captured.key_offset,
            dropout=captured.dropout,
            unknown=captured.unknown,
            observed=scored is None,
            scale=None if scored is None else scored.scale,
            softcap=None if scored is None else scored.softcap,
            first_position=0 if scored is None else scored.query_offset,
            mask=mask,
            visible=seen,
            bias=None if scored is None else self._share("bias", _narrowed(scored.bias)),
            sinks=None if scored is None else self._share("sinks", scored.sinks),
        )

    def _mask(self, call: AttentionCall) -> tuple[str, str | None]:
        """Return a mask's name, and the name of its cells unless its own says them."""
        name = call.mask.name
        rule = rule_called(name)
        if rule is not None and rule is call.mask:
            return name, None
        seen = engine_visible(call)
        if rule is not None:
            named = engine_visible(dataclasses.replace(call, mask=rule))
            if torch.equal(named.expand(seen.shape), seen):
                return name, None
            name = "given"  # it has the name of a rule that it is not
        return name, self._share("visible", seen)

    def _add(self, prefix: str, name: str, tensor: Tensor) -> None:
        tensor = tensor.detach().cpu().contiguous()
        place = tensor.data_ptr()
        # safetensors refuses tensors that share memory
        self.tensors[f"{prefix}.{name}"] = tensor.clone() if place in self._memory else tensor
        self._memory.add(place)

    def _share(self, kind: str, tensor: Tensor | None) -> str | None:
        if tensor is None:
            return None
        tensor = tensor.detach().cpu().contiguous()
        digest = sha256(tensor.reshape(-1).view(torch.uint8).numpy().data).hexdigest()
        key = (kind, tensor.dtype, tensor.shape, digest)
        if key not in self._shared:
            count = sum(one[0] == kind for one in self._shared)
            self._shared[key] = f"{kind}.{count}"
            self._add(kind, str(count), tensor)
        return self._shared[key]


def _narrowed(bias: Tensor | None) -> Tensor | None:
    """Return a bias without the copies along axes that it was only expanded over."""
    for axis in range(0 if bias is None else bias.dim()):
        if bias is not None and bias.shape[axis] > 1 and bias.stride(axis) == 0:
            bias = bias.narrow(axis, 0, 1)
    return bias
