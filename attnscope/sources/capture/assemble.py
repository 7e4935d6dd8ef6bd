"""The calls of one text, step by step, put together: one record per module and turn.

`generate` runs a model once per new token, each time with one more row of queries and, from a
cache, all keys. Put together they are the calls that one forward over the whole text would make:
rows at their absolute positions, each with the keys that it saw.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from attnscope.attention import engine
from attnscope.attention.call import AttentionCall
from attnscope.attention.mask_kinds import recognised
from attnscope.attention.masks import EVERYTHING, Mask, from_tensor
from attnscope.attention.verify import CapturedCall, ObservedCall, verify

Span = tuple[int, int]  # half-open positions


class Proven(NamedTuple):
    """A record, and the largest relative error that proving it gave."""

    captured: CapturedCall
    error: float


@dataclass(slots=True, eq=False)
class _Step:
    """The rows of one step; of the keys only those that no step before it has brought.

    Shapes: seen (heads or 1, rows, keys) bool; rows: query, or weights, of these rows; scores and
    bias as weights.
    """

    captured: CapturedCall  # without its record, once there are several steps
    seen: Tensor
    rows: Tensor
    keys: Tensor | None
    values: Tensor
    bias: Tensor | None = None
    scores: Tensor | None = None


def _step(captured: CapturedCall, fresh: slice, *, alone: bool) -> _Step:
    """Take of a call what is new in it: memory grows with the text, not with the steps."""
    call = captured.call

    def new(tensor: Tensor) -> Tensor:
        part = tensor[:, fresh]
        return part if alone else part.clone()  # a view would hold all keys

    if isinstance(call, ObservedCall):
        seen = torch.ones(1, 1, 1, dtype=torch.bool).expand(1, call.queries, call.keys)
        return _Step(captured, seen, call.weights, None, new(call.value), scores=call.scores)
    bias = call.bias
    if bias is not None:
        bias = bias.expand(call.heads, call.queries, call.keys)
    return _Step(captured, engine.visible(call), call.query, new(call.key), new(call.value), bias)


@dataclass(slots=True, eq=False)
class Strand:
    """The calls of one module at one turn, in one text, that go on from each other."""

    steps: list[_Step] = field(default_factory=list)
    rows_end: int = 0
    keys_end: int = 0
    error: float = 0.0
    last: int = -1  # the step of the call that came last

    def goes_on(self, captured: CapturedCall) -> bool:
        """Return whether a call is the next step of this strand."""
        call, before = captured.call, self.steps[0].captured.call
        if captured.step == self.last or captured.query_offset != self.rows_end:
            return False
        if isinstance(call, AttentionCall) and isinstance(before, AttentionCall):
            return call.query.shape[::2] == before.query.shape[::2] and (
                (call.scale, call.softcap) == (before.scale, before.softcap)
            )
        return type(call) is type(before)

    def add(self, captured: CapturedCall, error: float) -> None:
        """Add the next call, proven with `error`."""
        call, offset, alone = captured.call, captured.key_offset, not self.steps
        fresh = slice(min(max(0, self.keys_end - offset), call.keys), None)
        step = _step(captured, fresh, alone=alone)
        if not alone:  # the first keeps its record, for what all have in common
            step.captured = replace(captured, call=self.steps[0].captured.call)
        self.steps.append(step)
        self.last = captured.step
        self.rows_end = captured.query_offset + call.queries
        self.keys_end = max(self.keys_end, offset + call.keys)
        # a NaN must stay, and max() drops it where it comes second
        self.error = error if error != error or error > self.error else self.error

    def joined(self) -> CapturedCall:
        """Return one record of all steps."""
        first = self.steps[0].captured
        if len(self.steps) == 1:
            return _with_rule(self.steps[0])
        start = min(step.captured.key_offset for step in self.steps)
        joined: AttentionCall | ObservedCall
        if isinstance(first.call, AttentionCall):
            joined = self._joined_call(first.call, start)
        else:
            joined = self._joined_observed(start)
        output = torch.cat([step.captured.output for step in self.steps], dim=1)
        return replace(first, call=joined, output=output, key_offset=start)

    def _joined_call(self, call: AttentionCall, start: int) -> AttentionCall:
        seen = self._over_keys([step.seen for step in self.steps], start, fill=False)
        keys = [step.keys for step in self.steps if step.keys is not None]
        bias = None
        if any(step.bias is not None for step in self.steps):
            zero = call.query.new_zeros(())
            whole = [
                zero.expand(call.heads, *step.seen.shape[1:]) if step.bias is None else step.bias
                for step in self.steps
            ]
            bias = self._over_keys(whole, start, fill=0.0)
        return replace(
            call,
            query=torch.cat([step.rows for step in self.steps], dim=1),
            key=torch.cat(keys, dim=1),
            value=torch.cat([step.values for step in self.steps], dim=1),
            mask=recognised(seen, call.query_offset),
            bias=bias,
        )

    def _joined_observed(self, start: int) -> ObservedCall:
        scores = [step.scores for step in self.steps if step.scores is not None]
        return ObservedCall(
            self._over_keys([step.rows for step in self.steps], start, fill=0.0),
            torch.cat([step.values for step in self.steps], dim=1),
            self._over_keys(scores, start, fill=-torch.inf)
            if len(scores) == len(self.steps)
            else None,
        )

    def _over_keys(self, parts: Sequence[Tensor], start: int, fill: float) -> Tensor:
        """Stack rows over all keys: (heads or 1, rows, keys), each part at its own columns."""
        heads = max(part.shape[0] for part in parts)
        rows = sum(part.shape[1] for part in parts)
        whole = parts[0].new_full((heads, rows, self.keys_end - start), fill)
        row = 0
        for part, step in zip(parts, self.steps, strict=True):
            left = step.captured.key_offset - start
            whole[:, row : row + part.shape[1], left : left + part.shape[2]] = part
            row += part.shape[1]
        return whole


class Assembly:
    """Takes calls as they are made, proves each, and puts those of one text together.

    `spans(call)` says which rows and which columns of a call are the text, in positions that
    count the padding; the others are left out before anything is computed.
    """

    def __init__(self, spans: Callable[[CapturedCall], tuple[Span, Span]] | None = None) -> None:
        self._spans = spans
        self._strands: dict[tuple[int, str, int, int, str], list[Strand]] = {}

    def take(self, captured: CapturedCall) -> None:
        """Take one call."""
        if self._spans is not None:
            narrow = narrowed(captured, *self._spans(captured))
            if narrow is None:
                return
            captured = narrow
        error = verify(captured)
        key = (captured.text, captured.module_name, captured.nth, captured.layer, captured.kind)
        strands = self._strands.setdefault(key, [])
        if not strands or not strands[-1].goes_on(captured):
            strands.append(Strand())
        strands[-1].add(captured, error)

    def texts(self) -> Iterator[tuple[int, list[Proven]]]:
        """Yield (text, its records), once per text and forward that began anew."""
        found: dict[tuple[int, int], list[Proven]] = {}
        for (text, *_), strands in self._strands.items():
            for turn, strand in enumerate(strands):
                record = strand.joined()
                error = strand.error if len(strand.steps) == 1 else _larger(strand, record)
                found.setdefault((turn, text), []).append(Proven(record, error))
        for (_, text), records in sorted(found.items(), key=lambda item: item[0]):
            yield text, records


def _larger(strand: Strand, record: CapturedCall) -> float:
    whole = verify(record)  # the joined record is what is shown, so it is proven too
    return whole if whole != whole or whole > strand.error else strand.error


def narrowed(captured: CapturedCall, rows: Span, columns: Span) -> CapturedCall | None:
    """Return the part of a call whose queries and keys lie in these positions; None if empty.

    The first position left becomes position 0. Keys that are left out must be hidden from the
    rows that stay: padding is.
    """
    call = captured.call
    first_row, last_row = _inside(rows, captured.query_offset, call.queries)
    first_key, last_key = _inside(columns, captured.key_offset, call.keys)
    if first_row >= last_row or first_key >= last_key:
        return None
    whole = (0, call.queries, 0, call.keys)
    if (first_row, last_row, first_key, last_key) == whole and rows[0] == columns[0] == 0:
        return captured
    row, key = slice(first_row, last_row), slice(first_key, last_key)
    part: AttentionCall | ObservedCall
    if isinstance(call, AttentionCall):
        bias = call.bias
        if bias is not None:
            bias = bias.expand(call.heads, call.queries, call.keys)[:, row, key]
        part = replace(
            call,
            query=call.query[:, row],
            key=call.key[:, key],
            value=call.value[:, key],
            mask=_mask_of(engine.visible(call, row, key)),
            bias=bias,
            query_offset=0,
        )
    else:
        scores = None if call.scores is None else call.scores[:, row, key]
        part = ObservedCall(call.weights[:, row, key], call.value[:, key], scores)
    return replace(
        captured,
        call=part,
        output=captured.output[:, row],
        query_offset=captured.query_offset + first_row - rows[0],
        key_offset=captured.key_offset + first_key - columns[0],
    )


def _inside(span: Span, offset: int, count: int) -> Span:
    return max(0, span[0] - offset), min(count, span[1] - offset)


def _mask_of(seen: Tensor) -> Mask:
    return EVERYTHING if bool(seen.all()) else from_tensor(seen)


def _with_rule(step: _Step) -> CapturedCall:
    """Name the mask by its rule, where its cells are those of one."""
    captured = step.captured
    if isinstance(captured.call, ObservedCall):
        return captured
    mask = recognised(step.seen, captured.call.query_offset)
    return replace(captured, call=replace(captured.call, mask=mask))
