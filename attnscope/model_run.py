"""ModelRun: every attention call that a model made for one text, each proven."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from attnscope.attention.call import AttentionCall
from attnscope.attention.device import check_fits
from attnscope.attention.result import AttentionResult, attend, observe
from attnscope.attention.verify import CapturedCall, ObservedCall, output_error, widened
from attnscope.attention.warnings import warnings_of
from attnscope.errors import OptionError
from attnscope.run import Axis, Run, Settings, Site
from attnscope.text.display import visible

if TYPE_CHECKING:
    from torch import Tensor

_MOST_NAMED = 8


@dataclass(frozen=True, slots=True, eq=False)
class ModelCall:
    """One attention call: where it was made, its record, and what its rows and columns are."""

    site: Site
    captured: CapturedCall
    queries: Axis
    keys: Axis
    projected_lengths: "Tensor | None" = None  # ‖v·W_O‖ of each key: (heads, keys)

    @property
    def mask_name(self) -> str:
        """What the mask lets see: "none", "causal", "window 4096", …"""
        call = self.captured.call
        return call.mask.name if isinstance(call, AttentionCall) else "observed"


@dataclass(frozen=True, slots=True, eq=False)
class ModelRun:
    """One text through a model: its attention calls in the order in which they were made.

    `queries` are the tokens that the last part of the model read, `source` those of its encoder.
    `without` names the blocks of the model that have no attention, `skipped` the calls that fit
    into no record, and why.
    """

    model: str
    queries: Axis
    calls: tuple[ModelCall, ...]
    source: Axis | None = None
    without: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    provenance: dict[str, str] = field(default_factory=dict)

    def layer(self, number: int, part: str = "") -> Run:
        """Return one layer as a Run, every matrix computed.

        `part` is "encoder", "decoder" or "cross" in a model that has all three.
        Memory: ten matrices of heads × queries × keys while it is computed.
        Raises: OptionError naming the layers there are.
        """
        return self.run_of(self.find(f"{part}.{number}" if part else str(number)))

    def find(self, wanted: str) -> tuple[ModelCall, ...]:
        """Return the calls that `--layer` means, in order.

        A number, "cross.3" or a module's name; a part alone ("cross") or "all"; several
        separated by commas, and ranges ("3-5").
        Raises: OptionError naming the value and what there is.
        """
        found: list[ModelCall] = []
        for name in (piece.strip() for piece in wanted.split(",")):
            matches = [call for call in self.calls if _matches(call, name)]
            if not matches:
                raise OptionError(
                    f'--layer "{visible(name)}" is no layer with attention', self._known()
                )
            found += [call for call in matches if call not in found]
        places = {id(call): i for i, call in enumerate(self.calls)}
        return tuple(sorted(found, key=lambda call: places[id(call)]))

    def run_of(self, calls: Sequence[ModelCall]) -> Run:
        """Return some calls as one Run. Raises: OptionError if they are over different tokens."""
        self.check_same_tokens(calls)
        first = calls[0].captured.call
        dtype = calls[0].captured.output.dtype
        check_fits(
            sum(call.captured.call.heads for call in calls), first.queries, first.keys, dtype
        )
        results = tuple(result_of(call) for call in calls)
        again = [_proven_again(*pair) for pair in zip(calls, results, strict=True)]
        warnings = [*self.warnings, *(line for _, said in again for line in said)]
        for call, result in zip(calls, results, strict=True):
            said = warnings_of(result, call.queries.labels, call.keys.labels)
            warnings += [f"layer {call.site.name}: {line}" for line in said]
        queries, keys = calls[0].queries, calls[0].keys
        return Run(
            self.settings_of(calls),
            queries,
            keys,
            results,
            None,
            tuple(warnings),
            self.notes,
            self.provenance,
            tuple(site for site, _ in again),
        )

    def only(self, calls: Sequence[ModelCall]) -> "ModelRun":
        """Return the same run with some of its calls."""
        return replace(self, calls=tuple(calls))

    def check_same_tokens(self, calls: Sequence[ModelCall]) -> None:
        """Raise OptionError if some calls are over different tokens."""
        axes = {(id(call.queries), id(call.keys)) for call in calls}
        if len(axes) > 1:
            names = [call.site.name for call in calls]
            raise OptionError(
                f"these are calls over different tokens: {_listed(names)}",
                "Give one of them, or one part: encoder, decoder or cross",
            )

    def settings_of(self, calls: Sequence[ModelCall]) -> Settings:
        """Return the settings of a run of some calls; widths are those of the first."""
        call, names = calls[0].captured.call, {one.mask_name for one in calls}
        if isinstance(call, ObservedCall):
            key_heads, d_key, scale, softcap = call.heads, 0, 1.0, None
        else:
            key_heads, d_key, scale, softcap = (
                call.key_heads, call.query.shape[2], call.scale, call.softcap,
            )  # fmt: skip
        wide = call.value.dtype.itemsize >= 4
        causal = all(name.startswith(("causal", "window")) for name in names)
        cross = calls[0].captured.kind == "cross"
        kinds = ["cross"] if cross else []
        kinds += ["causal"] if causal else []
        kinds += ["multi-head"] if call.heads > 1 else []
        return Settings(
            source="model",
            variant="+".join(kinds) or "self",
            heads=max(one.captured.call.heads for one in calls),
            key_heads=key_heads,
            d_key=d_key,
            d_value=call.value.shape[2],
            causal=causal,
            align=None,
            mask_method="neg-inf",
            scale=scale,
            softcap=softcap,
            dtype=str(call.value.dtype).removeprefix("torch.") if wide else "float32",
            device=str(call.value.device),
            model=self.model,
        )

    def _known(self) -> str:
        names = [call.site.name for call in self.calls]
        return f"There {'is' if len(names) == 1 else 'are'}: {_listed(names)}; or all"


def result_of(call: ModelCall) -> AttentionResult:
    """Compute a call's matrices: in float32 from half types, as the proof does."""
    record = call.captured.call
    result = attend(widened(record)) if isinstance(record, AttentionCall) else observe(record)
    return replace(result, projected_lengths=call.projected_lengths)


def _proven_again(call: ModelCall, result: AttentionResult) -> tuple[Site, list[str]]:
    """Return where a call was made, its proof checked by what is shown, and what to say of it.

    A file may be changed after it was written, and a record after it was captured.
    """
    site = call.site
    error = output_error(result.context, call.captured.output, result.visible)
    if not site.proven or error <= site.tolerance:
        return site, []
    said = "NaN" if math.isnan(error) else f"{error:.2g}"
    return replace(site, error=error), [
        f"layer {site.name}: it was proven with relative error {site.error:.2g}, and the record "
        f"now gives {said}: it was changed since"
    ]


def _matches(call: ModelCall, wanted: str) -> bool:
    site = call.site
    if wanted in ("all", site.name, site.module_name, site.part or None):
        return True
    range_ = re.fullmatch(r"(?:(encoder|decoder|cross)\.)?([0-9]{1,9})(?:-([0-9]{1,9}))?", wanted)
    if range_ is None:
        return False
    first, last = int(range_[2]), int(range_[3] or range_[2])
    return first <= site.layer <= last and range_[1] in (None, site.part)


def _listed(names: Sequence[str]) -> str:
    if len(names) <= _MOST_NAMED:
        return ", ".join(names)
    return f"{', '.join(names[: _MOST_NAMED - 1])}, …, {names[-1]}"
