"""Exact measures of an attention call of any length, without its matrix of weights.

Some whole rows at a time: their logits, the softmax of them, and all measures gathered from the
weights while they are in the cache, with the context. Memory grows with the length, time with its
square.
"""

import functools
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from attnscope.attention.call import AttentionCall
from attnscope.attention.call_stripe import AT_ONCE, PIECE, CallStripe
from attnscope.attention.head_group import wide_dtype
from attnscope.attention.measured import MeasureOptions, Measures, effective_keys, quantiles
from attnscope.attention.stripe import Scratch
from attnscope.attention.stripe_measures import StripeMeasures
from attnscope.attention.stripe_plan import Plan, plan_for
from attnscope.attention.stripe_sources import CallSource, ObservedSource, Source
from attnscope.attention.totals import Totals
from attnscope.attention.verify import ObservedCall
from attnscope.attention.weight_buffer import VECTOR, WeightBuffer, bytes_of
from attnscope.attention.workers import Crew, Progress
from attnscope.errors import OptionError

__all__ = [
    "MeasureOptions",
    "Measures",
    "effective_keys",
    "estimate_bytes",
    "measure",
    "quantiles",
]

# Weights from which on compiled code saves more than the second it takes to load: those of one
# call, or of all calls of this process together, as of the layers of a model.
_LONG = 1 << 28
_seen = [0]
# Pieces of a stripe that are alive at once where logits take more steps than a product.
_PIECES = 14
# Keys whose largest query is looked for at once.
_KEYS_AT_ONCE = 1024
# Rows, of all heads together, that are looked through at once.
_HEADS_AT_ONCE = 1024


@torch.no_grad()
def measure(
    call: AttentionCall | ObservedCall,
    options: MeasureOptions | None = None,
    *,
    progress: Progress | None = None,
    workers: int | None = None,
) -> Measures:
    """Compute every measure of a call, exactly, stripe by stripe.

    `progress` is told (stripes done, stripes in all) from the calling thread. `workers`: threads
    on a CPU, each with one thread inside its operations; torch's number of threads if not given.
    An interrupt stops all of them within a second. Weights below the smallest normal number of
    the dtype count as 0.

    Memory: what `estimate_bytes` says.
    Raises: OptionError, ShapeError for options that do not fit the call.
    """
    options = options or MeasureOptions()
    like = (call.query if isinstance(call, AttentionCall) else call.weights)[:0]
    like = like.to(wide_dtype(like.dtype))
    plan = _plan(call, options)
    source: Source
    if isinstance(call, AttentionCall):
        source = CallSource(call, keep_context=options.keep_context)
    else:
        source = ObservedSource(call, keep_context=options.keep_context)
    totals = Totals(plan, options, call.heads, call.value.shape[2], like)
    if workers is None:
        workers = torch.get_num_threads()
    pass_ = _Pass(source, plan, totals, like, progress)
    pass_.run(workers if like.device.type == "cpu" else 1)
    return totals.finished()


def _plan(call: AttentionCall | ObservedCall, options: MeasureOptions) -> Plan:
    options.check(call.keys)
    group, offset, breadth = 1, 0, math.inf
    tensor = call.value
    if isinstance(call, AttentionCall):
        group, offset = call.heads // call.key_heads, call.query_offset
        breadth = max(1, call.mask.reach.last - call.mask.reach.first + 1)
    return plan_for(
        call.queries,
        call.keys,
        group,
        offset if options.query_offset is None else options.query_offset,
        tensor.device,
        wide_dtype(tensor.dtype),
        breadth=breadth,
        window=options.window,
        top=min(options.top, call.keys),
        grid=options.grid,
        special=options.special,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Room:
    """What one worker keeps in memory from stripe to stripe."""

    scratch: Scratch
    buffer: WeightBuffer


class _Pass:
    """One pass over all stripes of all heads."""

    def __init__(
        self, source: Source, plan: Plan, totals: Totals, like: Tensor, progress: Progress | None
    ) -> None:
        self._source, self._plan, self._totals, self._like = source, plan, totals, like
        self._compiled = _compiled_measures(totals.options, plan, totals.heads, like)
        self._stripes = plan.stripes()
        self._numbers = {rows.start: number for number, rows in enumerate(self._stripes)}
        self._rooms = threading.local()
        self._bases = like  # each row's log-sum-exp, once it is known
        self._crew = Crew(len(self._stripes) * len(source.heads), progress)

    def run(self, workers: int) -> None:
        """Gather all measures; then find the query of each key's largest weight."""
        jobs: list[Callable[[], None]] = [
            functools.partial(self._gather, group, rows)
            for rows in sorted(self._stripes, key=self._cost, reverse=True)  # the longest first
            for group in range(len(self._source.heads))
        ]
        self._crew.run(jobs, workers)
        self._crew.run(self._searches(), workers)

    def _cost(self, rows: slice) -> int:
        first, end = self._source.span(rows)
        cost: int = (rows.stop - rows.start) * (end - first)
        return cost

    def _gather(self, group: int, rows: slice) -> None:
        heads, room = self._source.heads[group], self._room_of_worker()
        self._crew.step()
        stripe = self._source.stripe(group, rows, room.scratch)
        kind = StripeMeasures
        if self._compiled and isinstance(stripe, CallStripe) and stripe.plain:
            kind = self._compiled
        found = kind(self._plan, stripe, self._source.span(rows), self._like)
        found.gather(room.buffer)
        self._totals.know(heads, rows, stripe.known())
        self._totals.add(heads, self._numbers[rows.start], found)

    def _room_of_worker(self) -> "_Room":
        room: _Room | None = getattr(self._rooms, "room", None)
        if room is None:
            place = self._like.dtype, self._like.device
            room = _Room(Scratch(*place), WeightBuffer(self._plan.group, *place))
            self._rooms.room = room
        return room

    def _searches(self) -> list[Callable[[], None]]:
        """Return jobs that find, stripe by stripe, the rows that gave keys their largest weight."""
        sums = self._totals.logsumexp
        self._bases = sums.masked_fill(sums == -torch.inf, 0.0)
        wanted: list[list[tuple[int, Tensor]]] = [[] for _ in self._stripes]
        for head, stripes in enumerate(self._totals.keys.stripe_of_highest):
            order = stripes.argsort(stable=True)
            counts = torch.bincount(stripes + 1, minlength=len(self._stripes) + 1).tolist()
            for number, keys in enumerate(order.split(counts)[1:]):
                wanted[number] += [(head, some) for some in keys.split(_KEYS_AT_ONCE) if len(some)]
        step = max(1, _HEADS_AT_ONCE // self._plan.rows)
        return [
            functools.partial(self._search, rows, found[start : start + step])
            for rows, found in zip(self._stripes, wanted, strict=True)
            for start in range(0, len(found), step)
        ]

    def _search(self, rows: slice, wanted: list[tuple[int, Tensor]]) -> None:
        """Find which of some rows gave some keys of some heads the largest weight.

        It is done for several heads at once, because each operation has its price.
        """
        self._crew.check()
        places = pad_sequence([keys for _, keys in wanted], batch_first=True)
        heads = places.new_tensor([head for head, _ in wanted])
        numbers = self._source.orders(heads, rows, places, self._bases[heads, rows])
        queries = _first_largest(numbers, rows.start)
        found = self._totals.keys.query_of_highest
        for (head, keys), query in zip(wanted, queries.to(found.dtype), strict=True):
            found[head, keys] = query[: len(keys)]


def _compiled_measures(
    options: MeasureOptions, plan: Plan, heads: int, like: Tensor
) -> type[StripeMeasures] | None:
    """Return how stripes are read where numba can do it, or None."""
    wanted = options.compiled
    if wanted is None:
        _seen[0] += heads * plan.queries * plan.keys
        wanted = _seen[0] >= _LONG
    if not wanted or like.dtype != torch.float32 or like.device.type != "cpu":
        return None
    try:
        from attnscope.attention.compiled_measures import CompiledMeasures
    except ImportError as error:
        if options.compiled is None:
            return None
        raise OptionError(
            "compiled measures need numba, which cannot be loaded",
            "Install it: pip install 'attnscope[fast]'",
        ) from error
    return CompiledMeasures


def _first_largest(numbers: Tensor, first: int) -> Tensor:
    """Return the first row that has the largest number of each column, or a NaN.

    `first` is the number of row 0. Shapes: (…, rows, columns) -> (…, columns). Down a column,
    argmax takes ten times as long as this, and truth values four times.
    """
    most = numbers.amax(dim=-2)
    if bool(most.isnan().any()):
        return numbers.argmax(dim=-2) + first
    count = numbers.shape[-2]
    # 0 where a number is the largest, and far below where it is not; then the earlier the more
    behind = torch.arange(count, 0, -1, device=numbers.device, dtype=numbers.dtype)
    order = numbers.sub_(most[..., None, :]).sign_().mul_(count).add_(behind[:, None])
    return (count + first) - order.amax(dim=-2).long()


def estimate_bytes(
    call: AttentionCall | ObservedCall,
    options: MeasureOptions | None = None,
    workers: int | None = None,
) -> int:
    """Return how many bytes `measure` takes beside the call: its result and its working memory."""
    options = options or MeasureOptions()
    plan = _plan(call, options)
    workers = workers or torch.get_num_threads()
    size = wide_dtype(call.value.dtype).itemsize
    group = call.heads // call.key_heads if isinstance(call, AttentionCall) else 1
    width = call.value.shape[2]
    by_row = 9 * size + 9 + plan.top * (size + 8) + (width * size if options.keep_context else 0)
    by_key = 2 * size + 24
    cells = -(-plan.queries // plan.cell_rows) * -(-plan.keys // plan.cell_keys)
    by_head = cells * (8 + 2 * size) + (plan.queries + plan.keys) * (8 + size)
    result = call.heads * (plan.queries * by_row + plan.keys * by_key + by_head)
    room = _room_bytes(plan, group, size)
    if isinstance(call, AttentionCall) and call.value.dtype.itemsize < size:
        room += plan.width * (call.key.shape[2] + width) * size  # those of a stripe are widened
    return result + workers * room + 2 * len(plan.rising) * size


def _room_bytes(plan: Plan, group: int, size: int) -> int:
    """Return how many bytes one worker takes, of `size` each number, for its stripes."""
    rows = group * plan.rows
    stripe_cells = -(-plan.rows // plan.cell_rows)
    by_key = group * plan.keys * (stripe_cells * (2 * size + 4) + 8)
    # the logits, what one operation on all of them needs, and what some rows give to their groups
    logits = max(rows * VECTOR, AT_ONCE) * size
    strongest = rows * (plan.top + 1) * plan.group * (size + 8) * 3
    pieces = rows * min(plan.width, PIECE) * size * _PIECES
    weights = bytes_of(group, plan.rows, plan.width, plan.group, size)
    return weights + logits + strongest + pieces + by_key
