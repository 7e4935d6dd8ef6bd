"""Totals: the measures of a whole call, stripe by stripe as its workers bring them."""

import threading

import torch
from torch import Tensor
from torch.nn import functional

from attnscope.attention.first_pass import Rows
from attnscope.attention.measured import MeasureOptions, Measures, histogram
from attnscope.attention.stripe_measures import BY_ROW, StripeMeasures
from attnscope.attention.tile_plan import Plan


class Totals:
    """What is known so far. Rows are written without a lock: each belongs to one job."""

    def __init__(
        self, plan: Plan, options: MeasureOptions, heads: int, value_width: int, like: Tensor
    ) -> None:
        self.plan, self.options = plan, options
        self._lock = threading.Lock()
        queries, keys = plan.queries, plan.keys
        zeros = like.new_zeros
        # sums over all rows, in float64 where there is such a thing
        wide = torch.float64 if like.device.type != "mps" else like.dtype
        # what no stripe writes, because its rows see nothing, stays so
        self.rows = {name: zeros(heads, queries) for name in BY_ROW}
        self.rows["largest_key"] = zeros(heads, queries, dtype=torch.int64) - 1
        self.logsumexp = zeros(heads, queries)
        self.blind = zeros(heads, queries, dtype=torch.bool)
        self.strongest_weights = zeros(heads, queries, plan.top)
        self.strongest_keys = zeros(heads, queries, plan.top, dtype=torch.int64) - 1
        self.received = zeros(heads, keys, dtype=wide)
        self.received_max = zeros(heads, keys)
        self.stripe_of_max = zeros(heads, keys, dtype=torch.int64) - 1
        self.query_of_max = zeros(heads, keys, dtype=torch.int64) - 1
        self.profile = zeros(heads, queries + keys - 1, dtype=wide)
        shape = (heads, -(-queries // plan.cell_rows), -(-keys // plan.cell_keys))
        self.map_sum = zeros(shape, dtype=wide)
        self.map_max = zeros(shape)
        self.context = zeros(heads, queries, value_width) if options.keep_context else None

    def know(self, heads: slice, rows: slice, known: Rows) -> None:
        """Take what the first pass found."""
        self.logsumexp[heads, rows] = known.logsumexp
        self.blind[heads, rows] = known.blind
        if self.context is not None and known.context is not None:
            self.context[heads, rows] = known.context

    def add(self, heads: slice, number: int, found: StripeMeasures) -> None:
        """Take the measures of stripe `number`."""
        rows = found.stripe.rows
        for name, numbers in found.by_row.items():
            self.rows[name][heads, rows] = numbers
        if found.strongest is not None:
            weights, keys = found.strongest
            count = weights.shape[-1]  # fewer where rows see fewer
            self.strongest_weights[heads, rows, :count] = weights
            self.strongest_keys[heads, rows, :count] = keys
        if found.first_key < found.end:
            with self._lock:
                self._add_keys(heads, number, found)
                self._add_map(heads, found)

    def _add_keys(self, heads: slice, number: int, found: StripeMeasures) -> None:
        keys = slice(found.first_key, found.end)
        here = slice(found.first_key - found.start, found.end - found.start)
        self.received[heads, keys] += found.received[..., here].sum(dim=1)
        most = found.highest[..., here].amax(dim=1)
        before, stripe = self.received_max[heads, keys], self.stripe_of_max[heads, keys]
        better = (most > before) | ((most == before) & (most > 0) & (stripe > number))
        better |= most.isnan() & ~before.isnan()
        self.received_max[heads, keys] = torch.maximum(most, before)
        self.stripe_of_max[heads, keys] = stripe.masked_fill(better, number)
        there = found.profile_from - self.plan.nearest
        self.profile[heads, there : there + found.profile.shape[1]] += found.profile

    def _add_map(self, heads: slice, found: StripeMeasures) -> None:
        plan = self.plan
        rows = plan.cells_of(found.stripe.rows)
        first = found.start // plan.cell_keys
        sums = _by_cell(found.received, plan.cell_keys).sum(dim=-1)
        most = _by_cell(found.highest, plan.cell_keys).amax(dim=-1)
        columns = slice(first, first + sums.shape[-1])
        self.map_sum[heads, rows, columns] += sums
        before = self.map_max[heads, rows, columns]
        self.map_max[heads, rows, columns] = torch.maximum(before, most)

    def finished(self) -> Measures:
        """Return the measures, once every stripe is in."""
        plan, dtype, rows = self.plan, self.logsumexp.dtype, self.rows
        sums = rows["row_sum"].masked_fill(self.blind, 1.0)
        bins, edges = histogram(self.profile, plan.nearest)
        mapped = self.options.grid is not None
        return Measures(
            logsumexp=self.logsumexp,
            entropy=rows["entropy"],
            largest=rows["largest"],
            largest_key=rows["largest_key"],
            first=rows["first"],
            special=rows["special"] if plan.special is not None else None,
            local=rows["local"],
            distance=rows["distance"] / sums,
            row_sum=rows["row_sum"],
            blind=self.blind,
            strongest_weights=self.strongest_weights,
            strongest_keys=self.strongest_keys,
            received=self.received.to(dtype),
            received_max=self.received_max,
            received_max_query=self.query_of_max,
            nearest=plan.nearest,
            distance_profile=self.profile.to(dtype),
            distance_histogram=bins.to(dtype),
            distance_edges=edges,
            map_cell=(plan.cell_rows, plan.cell_keys) if mapped else None,
            map_mean=self._map_mean().to(dtype) if mapped else None,
            map_max=self.map_max if mapped else None,
            context=self.context,
        )

    def _map_mean(self) -> Tensor:
        plan = self.plan
        ones = self.map_sum.new_ones
        down = _cell_sizes(ones(plan.queries), plan.cell_rows)
        across = _cell_sizes(ones(plan.keys), plan.cell_keys)
        return self.map_sum / (down[:, None] * across)


def _by_cell(numbers: Tensor, cell: int) -> Tensor:
    return numbers.view(*numbers.shape[:-1], -1, cell)


def _cell_sizes(ones: Tensor, cell: int) -> Tensor:
    return _by_cell(functional.pad(ones, (0, -len(ones) % cell)), cell).sum(dim=1)
