"""Run: the document that sources make and views show."""

import math
import re
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

from attnscope.errors import OptionError
from attnscope.text.display import label, visible
from attnscope.text.tokens import Tokens, part_of_tokens

if TYPE_CHECKING:  # views read a Run without loading torch
    from torch import Tensor

    from attnscope.attention.projections import Projections
    from attnscope.attention.result import AttentionResult, HeadResult


@dataclass(frozen=True, slots=True)
class Settings:
    """What was asked, every default filled in. None: does not apply to this source."""

    source: str  # "sentence", "tensors" or "model"
    variant: str  # "self", "multi-head", "cross" or "causal", or several joined by "+"
    heads: int
    key_heads: int
    d_key: int
    d_value: int
    causal: bool
    align: str | None
    mask_method: str
    scale: float
    dtype: str
    device: str
    d_model: int | None = None
    vocabulary_size: int | None = None
    seed: int | None = None
    softcap: float | None = None
    file: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Site:
    """Where in a model an attention call was made, and how it was proven.

    `error` is max |context − output| / max |output|: the context computed from the record
    against what the model's own implementation returned. NaN: it was not to be had.
    """

    name: str  # what `--layer` takes: "16", "cross.3", "7#1" for the second call of a layer
    layer: int
    part: str  # "encoder", "decoder" or "cross" in a model that has all three, else ""
    module_name: str
    nth: int  # which call of that module in one forward
    route: str  # how it was seen
    error: float
    tolerance: float

    @property
    def proven(self) -> bool:
        """Whether the record reproduces the model's own output, within the tolerance."""
        return not math.isnan(self.error) and self.error <= self.tolerance


@dataclass(frozen=True, slots=True)
class Axis:
    """What the rows or the columns of a matrix stand for.

    `labels` are safe to print; `tokens` is None where the vectors came without words. `first` is
    the position of the first place: an axis may be a part of a longer one.
    """

    labels: tuple[str, ...]
    tokens: Tokens | None = None
    first: int = 0

    def __len__(self) -> int:
        return len(self.labels)


def part_of_axis(axis: Axis, part: slice) -> Axis:
    """Return some consecutive places of an axis, at the positions they have there."""
    start, stop, _ = part.indices(len(axis))
    if (start, stop) == (0, len(axis)):
        return axis
    tokens = None if axis.tokens is None else part_of_tokens(axis.tokens, slice(start, stop))
    return Axis(axis.labels[start:stop], tokens, axis.first + start)


def axis_of_tokens(tokens: Tokens) -> Axis:
    """Return an axis with one place per token."""
    return Axis(tokens.labels, tokens)


def axis_of_positions(prefix: str, length: int) -> Axis:
    """Return an axis of `length` vectors without words: q0, q1, …"""
    return Axis(tuple(f"{prefix}{i}" for i in range(length)))


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """The vectors that were projected to queries, keys and values.

    Shapes: query_inputs (queries, d_model), key_inputs (keys, d_model).
    """

    query_inputs: "Tensor"
    key_inputs: "Tensor"
    projections: "Projections"


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One text through attention: what was asked, the tokens, and every number.

    `layers` holds one AttentionResult per attention call, and `sites`, for the calls of a model,
    where each was made; `warnings` say in one line each what a reader of the numbers must know.
    """

    settings: Settings
    queries: Axis
    keys: Axis
    layers: "tuple[AttentionResult, ...]"
    inputs: Inputs | None = None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    provenance: dict[str, str] = field(default_factory=dict)
    sites: tuple[Site, ...] = ()

    def head(self, number: int) -> "HeadResult":
        """Return one head of a run of one layer. Raises: OptionError if it is not there."""
        if len(self.layers) != 1:
            raise OptionError(
                f"this run has {len(self.layers)} layers", "Choose one, or take run.layers[i]"
            )
        check_head(self, number)
        return self.layers[0].head(number)

    def layer_number(self, index: int) -> int:
        """Return the model's number of a layer, or its place in the run."""
        return self.sites[index].layer if self.sites else index

    def layer_name(self, index: int) -> str:
        """Return the name of a layer: "16", "cross.3", or its place in the run."""
        return self.sites[index].name if self.sites else str(index)

    def _repr_html_(self) -> str | None:
        """Return what a notebook shows: the page of this run, in a frame."""
        # The document does not know its views; a notebook asks the document, so it asks for one.
        frame: str | None = import_module("attnscope.views.notebook").html_frame(self)
        return frame

    def _repr_mimebundle_(
        self,
        include: object = None,  # noqa: ARG002  as Jupyter calls it
        exclude: object = None,  # noqa: ARG002
    ) -> dict[str, str]:
        """Return the page, if it is small enough to be kept in a notebook, and a line of text."""
        s = self.settings
        text = f"<Run: {s.variant} attention, {len(self.queries)} × {len(self.keys)} tokens>"
        frame = self._repr_html_()
        return {"text/plain": text} | ({} if frame is None else {"text/html": frame})

    @property
    def crossed(self) -> bool:
        """Whether the keys belong to another sequence than the queries."""
        return self.queries is not self.keys


def find_queries(run: Run, wanted: str) -> tuple[int, ...]:
    """Return the positions meant by `--query`: a position, or every place of a word.

    Raises: OptionError naming the value and what there is.
    """
    return places_on(run.queries, wanted)


def places_on(axis: Axis, wanted: str) -> tuple[int, ...]:
    """Return the places of an axis that are meant by `--query`; see `find_queries`."""
    total = len(axis)
    places = tuple(i for i in range(total) if wanted in _names(axis, i))
    if places:
        return places
    if not re.fullmatch(r"-?[0-9]{1,18}", wanted):
        raise OptionError(
            f'--query "{visible(wanted)}" is not a token of the text',
            f"Give a position from {axis.first} to {axis.first + total - 1} or one of: "
            f"{_listed(axis.labels)}",
        )
    position = int(wanted)
    if not axis.first <= position < axis.first + total:
        counted = "Positions count from 0: give" if axis.first == 0 else "This is a part: give"
        raise OptionError(
            f"--query {position} is out of range: there {_are(total, 'query', 'queries')}",
            f"{counted} {axis.first} to {axis.first + total - 1}",
        )
    return (position - axis.first,)


def check_head(run: Run, head: int | None) -> None:
    """Raise OptionError if `--head` names a head that is not there."""
    check_heads(max(layer.call.heads for layer in run.layers), head)


def check_heads(heads: int, head: int | None) -> None:
    """Raise OptionError if `--head` is not one of `heads` heads."""
    if head is not None and not 0 <= head < heads:
        raise OptionError(
            f"--head {head} is out of range: there {_are(heads, 'head', 'heads')}",
            f"Heads count from 0: give 0 to {heads - 1}" if heads > 1 else "Give 0",
        )


def _are(count: int, one: str, many: str) -> str:
    return f"is 1 {one}" if count == 1 else f"are {count} {many}"


def _names(axis: Axis, position: int) -> set[str]:
    # A number is always a position, also where a token happens to look like one: a position
    # must mean the same in every text.
    names = {axis.labels[position]}
    if axis.tokens is not None:
        source = axis.tokens.source(position)
        names |= {axis.tokens.pieces[position], source, source.strip()}
    return {name for name in names if name and not name.isdecimal()}


def _listed(labels: tuple[str, ...], most: int = 10) -> str:
    distinct = list(dict.fromkeys(label(name) for name in labels))
    more = ", …" if len(distinct) > most else ""
    return ", ".join(distinct[:most]) + more
