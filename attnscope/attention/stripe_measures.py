"""Everything that is gathered from the weights of one stripe while they are in the cache."""

import math

import torch
from torch import Tensor

from attnscope.attention.key_sums import KeySums
from attnscope.attention.stripe import Stripe
from attnscope.attention.stripe_plan import Plan
from attnscope.attention.top_keys import strongest_columns
from attnscope.attention.weight_buffer import WeightBuffer, whole_vectors

# Sums over the keys of a row. The weight is summed by where the key lies: before all queries of the
# stripe, among them, after them.
SUMS = ("entropy", "distance", "before", "among", "after", "local", "special")
ENTROPY, DISTANCE, BEFORE, AMONG, AFTER, LOCAL, SPECIAL = range(len(SUMS))


class StripeMeasures:
    """The sums and maxima of one stripe of rows.

    Shapes: sums (SUMS, heads, rows), float64, of which distance is not divided by the row's weight;
    first, largest, largest_key (heads, rows). By key, a row of the map each, (heads, cells, keys
    from `start` on): received, highest. By distance (heads, rows − 1 + keys): profile, whose first
    number is of the distance `profile_from`.
    """

    def __init__(self, plan: Plan, stripe: Stripe, span: tuple[int, int], like: Tensor) -> None:
        self.plan, self.stripe = plan, stripe
        self.first_key, self.end = span
        heads, rows = stripe.size, stripe.rows.stop - stripe.rows.start
        self.shape = (heads, rows)
        # float64 costs nothing on one number per row
        wide = torch.float64 if like.device.type != "mps" else like.dtype
        self.sums = like.new_zeros(len(SUMS), heads, rows, dtype=wide)
        self.flat_sums = self.sums.flatten(1)
        self._like = like
        self.strongest_of_row: tuple[Tensor, Tensor] | None = None
        cells = plan.cells_of(stripe.rows)
        self.start = self.first_key // plan.cell_keys * plan.cell_keys
        width = -(-(self.end - self.start) // plan.cell_keys) * plan.cell_keys
        shape = (heads, cells.stop - cells.start, width)
        self.received, self.highest = like.new_empty(shape), like.new_empty(shape)
        if (self.first_key, self.end) != (self.start, self.start + width):
            for keys in (self.received, self.highest):  # what is not written below
                keys[..., : self.first_key - self.start] = 0.0
                keys[..., self.end - self.start :] = 0.0
        self.profile = like.new_empty(heads, rows - 1 + self.end - self.first_key)
        self.profile_from = self.first_key - (stripe.rows.stop - 1 + plan.query_offset)

    def gather(self, buffer: WeightBuffer) -> None:
        """Compute the weights of the stripe, and measure them."""
        heads, rows = self.shape
        count = self.end - self.first_key
        if self.first_key > 0 or not count:
            self.first = self._like.new_zeros(heads, rows)
        if not count:
            self.largest = self.first
            self.largest_key = torch.full_like(self.first, -1, dtype=torch.int64)
            self.stripe.fill(slice(0, 0), self.first.new_empty(heads * rows, 0))
            return
        buffer.lay_out(heads, rows, count, self.plan.width)
        maxima = self._like.new_empty(heads * rows, -(-count // buffer.group))
        self.read(buffer, maxima)
        self._add_special(buffer)
        self._add_local(buffer)
        if self.first_key == 0:
            self.first = buffer.weights[..., 0].clone()
        self.find_largest(buffer, maxima)
        if self.plan.top:
            self.find_strongest(buffer, maxima)

    def read(self, buffer: WeightBuffer, maxima: Tensor) -> None:
        """Write weights into the buffer, and the maxima of groups, and take all sums of them.

        Shapes: maxima (heads · rows, groups).
        """
        count = self.end - self.first_key
        out = buffer.flat(0, whole_vectors(count))
        keys = slice(self.first_key, self.end)
        self.flat_sums[ENTROPY] = self.stripe.fill(keys, out).mul_(math.log(2.0))  # bits
        self._add_rows(buffer)
        self._sum_keys(buffer.weights)
        torch.amax(buffer.groups(0, count), dim=2, out=maxima)
        torch.sum(buffer.skewed, dim=1, out=self.profile)

    def _add_rows(self, buffer: WeightBuffer) -> None:
        """Add the sums of rows, and how far their weight lies."""
        plan, sums, begin = self.plan, self.flat_sums, self.first_key
        first = self.stripe.rows.start + plan.query_offset
        last = first + self.shape[1] - 1
        row = plan.rising[: self.shape[1]].repeat(self.shape[0])
        for start, stop in _cut(slice(begin, self.end), first, last + 1):
            weights = buffer.flat(start - begin, stop - begin)
            whole = weights.sum(dim=1)
            # how far a key is from the nearest row, and that row from this one
            if stop <= first:
                sums[BEFORE] = whole
                far = plan.falling[len(plan.falling) - 1 - (first - start) :][: stop - start]
                sums[DISTANCE] += torch.mv(weights, far).add_(whole.mul_(row))
            elif start > last:
                sums[AFTER] = whole
                far = plan.rising[start - last :][: stop - start]
                sums[DISTANCE] += torch.mv(weights, far).add_(whole.mul_(row.flip(0)))
            else:
                sums[AMONG] = whole
                near = plan.square[: self.shape[1], start - first : stop - first]
                sums[DISTANCE] += (weights.view(*self.shape, -1) * near).sum(dim=2).flatten()

    def _sum_keys(self, weights: Tensor) -> None:
        """Take sum and maximum of each key, by the rows of a cell of the map."""
        here = slice(self.first_key - self.start, self.end - self.start)
        cell = min(self.plan.cell_rows, self.shape[1])
        whole = self.shape[1] // cell
        cut = weights[:, : whole * cell].view(len(weights), whole, cell, -1)
        torch.sum(cut, dim=2, out=self.received[:, :whole, here])
        torch.amax(cut, dim=2, out=self.highest[:, :whole, here])
        if whole * cell < self.shape[1]:  # the last rows of all
            rest = weights[:, whole * cell :]
            torch.sum(rest, dim=1, out=self.received[:, whole, here])
            torch.amax(rest, dim=1, out=self.highest[:, whole, here])

    def _add_special(self, buffer: WeightBuffer) -> None:
        """Add the weight of special tokens."""
        if self.plan.special is not None:
            special = self.plan.special[self.first_key : self.end]
            self.flat_sums[SPECIAL] += torch.mv(buffer.flat(0, len(special)), special)

    def _add_local(self, buffer: WeightBuffer) -> None:
        """Add the weight of the keys that are nearer than the window."""
        low = max(0, 1 - self.plan.window - self.profile_from)
        high = min(buffer.skewed.shape[2], self.plan.window - self.profile_from)
        if low < high:
            self.sums[LOCAL] += buffer.skewed[..., low:high].sum(dim=2)

    def find_largest(self, buffer: WeightBuffer, maxima: Tensor) -> None:
        """Find the largest weight of each row, and the first key that has it."""
        most, group = maxima.max(dim=1)
        inside = buffer.grouped.index_select(0, buffer.first_groups + group)
        key = group * buffer.group + inside.argmax(dim=1) + self.first_key
        self.largest = most.view(self.shape)
        self.largest_key = key.masked_fill_(most == 0.0, -1).view(self.shape)

    def find_strongest(self, buffer: WeightBuffer, maxima: Tensor) -> None:
        """Find the strongest keys of each row: they lie in the groups with the largest maxima."""
        most, size = self.plan.top, buffer.group
        _, groups = strongest_columns(maxima, most)
        places = (buffer.first_groups[:, None] + groups).flatten()
        inside = buffer.grouped.index_select(0, places).view(maxima.shape[0], -1)
        weights, columns = strongest_columns(inside, most)
        keys = self.first_key + groups.gather(1, columns // size) * size + columns % size
        self.strongest_of_row = weights, keys.masked_fill(weights == 0.0, -1)

    def add_keys(self, sums: KeySums, heads: slice, number: int) -> None:
        """Add what was gathered by key and by distance; this is stripe `number`."""
        plan, keys = self.plan, slice(self.first_key, self.end)
        here = slice(self.first_key - self.start, self.end - self.start)
        sums.received[heads, keys] += self.received[..., here].sum(dim=1)
        most, before = self.highest[..., here].amax(dim=1), sums.highest[heads, keys]
        stripe = sums.stripe_of_highest[heads, keys]
        # a NaN is more than any number, and the first stripe is named of those that are equal
        better = ~(most <= before) & ~before.isnan()
        better |= (most == before) & (stripe > number)
        stripe.masked_fill_(better, number)
        torch.maximum(most, before, out=before)
        there = self.profile_from - plan.nearest
        sums.profile[heads, there : there + self.profile.shape[1]] += self.profile
        rows = plan.cells_of(self.stripe.rows)
        cut = (*self.received.shape[:2], -1, plan.cell_keys)
        first = self.start // plan.cell_keys
        columns = slice(first, first + self.received.shape[2] // plan.cell_keys)
        sums.map_sum[heads, rows, columns] += self.received.view(cut).sum(dim=3)
        maxima = sums.map_max[heads, rows, columns]
        torch.maximum(maxima, self.highest.view(cut).amax(dim=3), out=maxima)

    @property
    def strongest(self) -> tuple[Tensor, Tensor] | None:
        """The strongest weights and their keys, (heads, rows, up to top), if there are any."""
        if self.strongest_of_row is None:
            return None
        weights, keys = (numbers.view(*self.shape, -1) for numbers in self.strongest_of_row)
        return weights, keys


def _cut(keys: slice, first: int, end: int) -> list[tuple[int, int]]:
    """Cut a range where it enters and leaves another, into up to three that are not empty."""
    edges = [keys.start, *(edge for edge in (first, end) if keys.start < edge < keys.stop)]
    return list(zip(edges, [*edges[1:], keys.stop], strict=True))
