"""Totals: the measures of a whole call, stripe by stripe as its workers bring them."""

import threading

import torch
from torch import Tensor
from torch.nn import functional

from attnscope.attention.key_sums import KeySums
from attnscope.attention.measured import MeasureOptions, Measures, histogram
from attnscope.attention.stripe import Rows
from attnscope.attention.stripe_measures import SUMS, StripeMeasures
from attnscope.attention.stripe_plan import Plan


class Totals:
    """What is known so far. Rows are written without a lock: each belongs to one job."""

    def __init__(
        self, plan: Plan, options: MeasureOptions, heads: int, value_width: int, like: Tensor
    ) -> None:
        self.plan, self.options, self.heads = plan, options, heads
        self._lock = threading.Lock()
        queries = plan.queries
        zeros = like.new_zeros
        # what no stripe writes, because its rows see nothing, stays so
        self.sums = zeros(len(SUMS), heads, queries)
        self.first, self.largest = zeros(heads, queries), zeros(heads, queries)
        self.largest_key = zeros(heads, queries, dtype=torch.int64) - 1
        wide = torch.float64 if like.device.type != "mps" else like.dtype
        self.logsumexp = zeros(heads, queries, dtype=wide)
        self.blind = zeros(heads, queries, dtype=torch.bool)
        self.strongest_weights = zeros(heads, queries, plan.top)
        self.strongest_keys = zeros(heads, queries, plan.top, dtype=torch.int64) - 1
        self.keys = KeySums.empty(plan, heads, like)
        self.context = zeros(heads, queries, value_width) if options.keep_context else None

    def know(self, heads: slice, rows: slice, known: Rows) -> None:
        """Take what is known about some rows."""
        self.logsumexp[heads, rows] = known.logsumexp
        self.blind[heads, rows] = known.blind
        if self.context is not None and known.context is not None:
            self.context[heads, rows] = known.context

    def add(self, heads: slice, number: int, found: StripeMeasures) -> None:
        """Take the measures of stripe `number`."""
        rows = found.stripe.rows
        self.sums[:, heads, rows] = found.sums
        self.first[heads, rows] = found.first
        self.largest[heads, rows] = found.largest
        self.largest_key[heads, rows] = found.largest_key
        if found.strongest is not None:
            weights, keys = found.strongest
            count = weights.shape[-1]  # fewer where rows see fewer
            self.strongest_weights[heads, rows, :count] = weights
            self.strongest_keys[heads, rows, :count] = keys
        if found.first_key < found.end:
            with self._lock:
                found.add_keys(self.keys, heads, number)

    def finished(self) -> Measures:
        """Return the measures, once every stripe is in."""
        plan, keys, dtype = self.plan, self.keys, self.largest.dtype
        sums = dict(zip(SUMS, self.sums, strict=True))
        row_sum = sums["before"] + sums["among"] + sums["after"]
        bins, edges = histogram(keys.profile, plan.nearest)
        mapped = self.options.grid is not None
        return Measures(
            logsumexp=self.logsumexp.to(dtype),
            entropy=sums["entropy"],
            largest=self.largest,
            largest_key=self.largest_key,
            first=self.first,
            special=sums["special"] if plan.special is not None else None,
            local=sums["local"],
            distance=sums["distance"] / row_sum.masked_fill(self.blind, 1.0),
            row_sum=row_sum,
            blind=self.blind,
            strongest_weights=self.strongest_weights,
            strongest_keys=self.strongest_keys,
            received=keys.received.to(dtype),
            received_max=keys.highest,
            received_max_query=keys.query_of_highest.long(),
            nearest=plan.nearest,
            distance_profile=keys.profile.to(dtype),
            distance_histogram=bins.to(dtype),
            distance_edges=edges,
            map_cell=(plan.cell_rows, plan.cell_keys) if mapped else None,
            map_mean=self._map_mean().to(dtype) if mapped else None,
            map_max=keys.map_max if mapped else None,
            context=self.context,
        )

    def _map_mean(self) -> Tensor:
        plan, sums = self.plan, self.keys.map_sum
        down = _cell_sizes(sums.new_ones(plan.queries), plan.cell_rows)
        across = _cell_sizes(sums.new_ones(plan.keys), plan.cell_keys)
        return sums / (down[:, None] * across)


def _cell_sizes(ones: Tensor, cell: int) -> Tensor:
    return functional.pad(ones, (0, -len(ones) % cell)).view(-1, cell).sum(dim=1)
