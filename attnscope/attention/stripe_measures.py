"""Everything that is gathered from the weights of one stripe while a tile is in the cache."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from attnscope.attention.key_sums import KeySums
from attnscope.attention.tile_plan import Plan
from attnscope.attention.tile_weights import Stripe
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
        # many tiles make long sums: float64 costs nothing on one number per row
        wide = torch.float64 if like.device.type != "mps" else like.dtype
        self.sums = like.new_zeros(len(SUMS), heads, rows, dtype=wide)
        self.flat_sums = self.sums.flatten(1)
        self.first = like.new_zeros(heads, rows)
        self.largest = self.first
        self.largest_key = like.new_full((heads, rows), -1, dtype=torch.int64)
        self._candidates: list[tuple[Tensor, Tensor, Tensor]] = []
        self.strongest_of_row: tuple[Tensor, Tensor] | None = None
        cells = plan.cells_of(stripe.rows)
        self.start = self.first_key // plan.cell_keys * plan.cell_keys
        width = -(-(self.end - self.start) // plan.cell_keys) * plan.cell_keys
        shape = (heads, cells.stop - cells.start, width)
        self.received, self.highest = like.new_empty(shape), like.new_empty(shape)
        for keys in (self.received, self.highest):  # what no tile writes
            keys[..., : self.first_key - self.start] = 0.0
            keys[..., self.end - self.start :] = 0.0
        self.profile = like.new_zeros(heads, rows - 1 + self.end - self.first_key)
        self.profile_from = self.first_key - (stripe.rows.stop - 1 + plan.query_offset)

    def gather(self, buffer: WeightBuffer, step: Callable[[], None]) -> None:
        """Read all tiles of the stripe; `step` is called before each and may raise."""
        if self.first_key == self.end:
            return
        for start in range(self.first_key, self.end, self.plan.chunk):
            chunk = slice(start, min(start + self.plan.chunk, self.end))
            maxima = self.gather_chunk(chunk, buffer, step)
            self.note_largest(buffer, maxima, start)
            if self.plan.top:
                self.find_strongest(buffer, maxima, start)
        self.choose_largest()
        self.finish_sums()

    def gather_chunk(self, chunk: slice, buffer: WeightBuffer, step: Callable[[], None]) -> Tensor:
        """Read the tiles of a chunk; return the maxima of its groups, (heads · rows, groups)."""
        heads, rows = self.shape
        count = chunk.stop - chunk.start
        buffer.lay_out(heads, rows, count, self.plan.chunk)
        maxima = self.profile.new_empty(heads * rows, -(-count // buffer.group))
        diagonal = 0  # columns of the skewed view that are done
        place = chunk.start - self.first_key
        for left in range(0, count, self.plan.tile):
            step()
            right = min(left + self.plan.tile, count)
            keys = slice(chunk.start + left, chunk.start + right)
            out = buffer.flat(left, left + whole_vectors(right - left))
            self.flat_sums[ENTROPY] += self.stripe.fill(keys, out)
            self._add_rows(buffer, keys, chunk.start)
            self.add_special(buffer, slice(left, right), chunk.start)
            self._add_keys(buffer.weights[..., left:right], keys)
            groups = buffer.groups(left, right)
            torch.amax(groups, dim=2, out=maxima[:, left // buffer.group :][:, : groups.shape[1]])
            # a diagonal is whole once its lowest row is there
            ready = right if right < count else rows - 1 + count
            by_distance = buffer.skewed[..., diagonal:ready].sum(dim=1)
            self.profile[:, place + diagonal : place + ready] += by_distance
            diagonal = ready
        self.add_local(buffer, chunk)
        return maxima

    def _add_rows(self, buffer: WeightBuffer, keys: slice, begin: int) -> None:
        """Add the sums of rows over some keys, where `begin` is the key of the first column."""
        plan, sums = self.plan, self.flat_sums
        if keys.start == 0:
            self.first = buffer.weights[..., 0].clone()
        first = self.stripe.rows.start + plan.query_offset
        last = first + self.shape[1] - 1
        for start, stop in _cut(keys, first, last + 1):
            weights = buffer.flat(start - begin, stop - begin)
            # how far a key is from the nearest row; how far that is from the others comes last
            if stop <= first:
                sums[BEFORE] += weights.sum(dim=1)
                far = plan.falling[len(plan.falling) - 1 - (first - start) :][: stop - start]
                sums[DISTANCE] += torch.mv(weights, far)
            elif start > last:
                sums[AFTER] += weights.sum(dim=1)
                sums[DISTANCE] += torch.mv(weights, plan.rising[start - last :][: stop - start])
            else:
                sums[AMONG] += weights.sum(dim=1)
                near = plan.square[: self.shape[1], start - first : stop - first]
                among = (weights.view(*self.shape, -1) * near).sum(dim=2)
                sums[DISTANCE] += among.flatten()

    def finish_sums(self) -> None:
        """Add to the distances of each row how far it is from the first, and from the last."""
        sums, row = self.sums, self.plan.rising[: self.shape[1]]
        sums[DISTANCE] += sums[BEFORE] * row + sums[AFTER] * row.flip(0)
        sums[ENTROPY] *= math.log(2.0)  # bits

    def _add_keys(self, weights: Tensor, keys: slice) -> None:
        here = slice(keys.start - self.start, keys.stop - self.start)
        cell = min(self.plan.cell_rows, self.shape[1])
        whole = self.shape[1] // cell
        cut = weights[:, : whole * cell].view(len(weights), whole, cell, -1)
        torch.sum(cut, dim=2, out=self.received[:, :whole, here])
        torch.amax(cut, dim=2, out=self.highest[:, :whole, here])
        if whole * cell < self.shape[1]:  # the last rows of all
            rest = weights[:, whole * cell :]
            torch.sum(rest, dim=1, out=self.received[:, whole, here])
            torch.amax(rest, dim=1, out=self.highest[:, whole, here])

    def add_special(self, buffer: WeightBuffer, columns: slice, begin: int) -> None:
        """Add the weight of special tokens in some columns, where `begin` is the first key."""
        if self.plan.special is not None:
            special = self.plan.special[begin + columns.start : begin + columns.stop]
            weights = buffer.flat(columns.start, columns.stop)
            self.flat_sums[SPECIAL] += torch.mv(weights, special)

    def add_local(self, buffer: WeightBuffer, chunk: slice) -> None:
        """Add the weight of the keys of a chunk that are nearer than the window."""
        nearest = chunk.start - (self.stripe.rows.stop - 1 + self.plan.query_offset)
        low = max(0, 1 - self.plan.window - nearest)
        high = min(buffer.skewed.shape[2], self.plan.window - nearest)
        if low < high:
            self.sums[LOCAL] += buffer.skewed[..., low:high].sum(dim=2)

    def note_largest(self, buffer: WeightBuffer, maxima: Tensor, start: int) -> None:
        """Keep the group with the largest weight of each row of a chunk."""
        most, group = maxima.max(dim=1)
        inside = buffer.grouped.index_select(0, buffer.first_groups + group)
        self._candidates.append((most, group * buffer.group + start, inside))

    def choose_largest(self) -> None:
        """Find the largest weight of each row, and the first key that has it."""
        most, starts, inside = self._candidates[0]
        if len(self._candidates) > 1:
            every = [torch.stack(parts) for parts in zip(*self._candidates, strict=True)]
            most, chunk = every[0].max(dim=0)
            chosen = chunk * len(most) + torch.arange(len(most), device=most.device)
            starts, inside = (part.flatten(0, 1).index_select(0, chosen) for part in every[1:])
        key = (starts + inside.argmax(dim=1)).masked_fill_(most == 0.0, -1)
        self.largest, self.largest_key = most.view(self.shape), key.view(self.shape)

    def find_strongest(self, buffer: WeightBuffer, maxima: Tensor, start: int) -> None:
        """Join the strongest keys of a chunk to those of the chunks before."""
        most = self.plan.top
        _, groups = strongest_columns(maxima, most)
        places = (buffer.first_groups[:, None] + groups).flatten()
        inside = buffer.grouped.index_select(0, places).view(maxima.shape[0], -1)
        weights, columns = strongest_columns(inside, most)
        size = buffer.group
        keys = start + groups.gather(1, columns // size) * size + columns % size
        if self.strongest_of_row is not None:
            weights = torch.cat([self.strongest_of_row[0], weights], dim=1)
            keys = torch.cat([self.strongest_of_row[1], keys], dim=1)
            weights, order = torch.topk(weights, min(most, weights.shape[1]), dim=1)
            keys = keys.gather(1, order)
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
