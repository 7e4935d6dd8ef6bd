"""Everything that is gathered from the weights of one stripe while a tile is in the cache."""

from collections.abc import Callable

import torch
from torch import Tensor

from attnscope.attention.tile_plan import Plan
from attnscope.attention.tile_weights import Stripe
from attnscope.attention.top_keys import strongest_columns
from attnscope.attention.weight_buffer import GROUP, WeightBuffer

_SUMS = ("entropy", "row_sum", "local", "distance", "special")
BY_ROW = (*_SUMS, "first", "largest", "largest_key")


class StripeMeasures:
    """The sums and maxima of one stripe of rows.

    Shapes: by_row (heads, rows), of which `distance` is not yet divided by the row's sum. By key, a
    row of the map each, (heads, cells, keys from `start` on): received, highest. By distance
    (heads, rows − 1 + keys): profile, whose first number is of the distance `profile_from`.
    """

    def __init__(self, plan: Plan, stripe: Stripe, span: tuple[int, int], like: Tensor) -> None:
        self.plan, self.stripe = plan, stripe
        self.first_key, self.end = span
        heads, rows = stripe.size, stripe.rows.stop - stripe.rows.start
        self._shape = (heads, rows)
        self.by_row: dict[str, Tensor] = {}
        self._parts: dict[str, list[Tensor]] = {name: [] for name in _SUMS}
        self._candidates: list[tuple[Tensor, Tensor, Tensor]] = []
        self._strongest: tuple[Tensor, Tensor] | None = None
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
            self._gather_chunk(slice(start, min(start + self.plan.chunk, self.end)), buffer, step)
        # many tiles make long sums: float64 costs nothing on one number per row
        wide = torch.float64 if self.profile.device.type != "mps" else self.profile.dtype
        for name, parts in self._parts.items():
            if parts:
                total = torch.stack(parts).sum(dim=0, dtype=wide)
                self.by_row[name] = total.to(self.profile.dtype)
        self._choose_largest()

    def _gather_chunk(self, chunk: slice, buffer: WeightBuffer, step: Callable[[], None]) -> None:
        heads, rows = self._shape
        count = chunk.stop - chunk.start
        buffer.lay_out(heads, rows, count)
        maxima = []
        diagonal = 0  # columns of the skewed view that are done
        for left in range(0, count, self.plan.tile):
            step()
            right = min(left + self.plan.tile, count)
            weights = buffer.weights[..., left:right]
            keys = slice(chunk.start + left, chunk.start + right)
            self._parts["entropy"].append(
                self.stripe.fill(keys, buffer.whole_vectors(slice(left, right)))
            )
            self._add_rows(weights, keys)
            self._add_keys(weights, keys)
            maxima.append(buffer.groups(slice(left, right)).amax(dim=-1))
            # a diagonal is whole once its lowest row is there
            ready = right if right < count else rows - 1 + count
            self._add_diagonals(buffer.skewed[..., diagonal:ready], chunk.start + diagonal)
            diagonal = ready
        whole = maxima[0] if len(maxima) == 1 else torch.cat(maxima, dim=-1)
        self._find_largest(buffer, whole.flatten(0, 1), chunk.start)
        if self.plan.top:
            self._find_strongest(buffer, whole.flatten(0, 1), chunk.start)

    def _add_rows(self, weights: Tensor, keys: slice) -> None:
        self._parts["row_sum"].append(weights.sum(dim=-1))
        if keys.start == 0:
            self.by_row["first"] = weights[..., 0].clone()
        if self.plan.special is not None:
            self._parts["special"].append(_products(weights, self.plan.special[keys]))

    def _add_keys(self, weights: Tensor, keys: slice) -> None:
        here = slice(keys.start - self.start, keys.stop - self.start)
        cell = min(self.plan.cell_rows, self._shape[1])
        whole = self._shape[1] // cell
        cut = weights[:, : whole * cell].view(len(weights), whole, cell, -1)
        torch.sum(cut, dim=2, out=self.received[:, :whole, here])
        torch.amax(cut, dim=2, out=self.highest[:, :whole, here])
        if whole * cell < self._shape[1]:  # the last rows of all
            rest = weights[:, whole * cell :]
            torch.sum(rest, dim=1, out=self.received[:, whole, here])
            torch.amax(rest, dim=1, out=self.highest[:, whole, here])

    def _add_diagonals(self, skewed: Tensor, place: int) -> None:
        """Add by distance: `place` is the key of row `rows − 1` in the first column."""
        plan = self.plan
        nearest = place - (self.stripe.rows.stop - 1 + plan.query_offset)
        count = skewed.shape[-1]
        there = nearest - self.profile_from
        self.profile[:, there : there + count] += skewed.sum(dim=1)
        distances = plan.distances[nearest - plan.nearest :][:count]
        self._parts["distance"].append(_products(skewed, distances))
        low, high = max(0, 1 - plan.window - nearest), min(count, plan.window - nearest)
        if low < high:
            self._parts["local"].append(skewed[..., low:high].sum(dim=-1))

    def _find_largest(self, buffer: WeightBuffer, maxima: Tensor, start: int) -> None:
        """Keep the group with the largest weight of each row: (rows, GROUP)."""
        most, group = maxima.max(dim=1)
        inside = buffer.grouped.index_select(0, buffer.first_groups + group)
        self._candidates.append((most, group * GROUP + start, inside))

    def _choose_largest(self) -> None:
        """Find the largest weight of each row, and the first key that has it."""
        most, starts, inside = (torch.stack(parts) for parts in zip(*self._candidates, strict=True))
        largest, chunk = most.max(dim=0)
        row = torch.arange(len(chunk), device=chunk.device)
        key = starts[chunk, row] + inside[chunk, row].argmax(dim=1)
        self.by_row["largest"] = largest.view(self._shape)
        self.by_row["largest_key"] = key.masked_fill(largest == 0.0, -1).view(self._shape)

    def _find_strongest(self, buffer: WeightBuffer, maxima: Tensor, start: int) -> None:
        """Join the strongest keys of a chunk to those of the chunks before."""
        most = self.plan.top
        _, groups = strongest_columns(maxima, most)
        places = (buffer.first_groups[:, None] + groups).flatten()
        inside = buffer.grouped.index_select(0, places).view(maxima.shape[0], -1)
        weights, columns = strongest_columns(inside, most)
        keys = start + groups.gather(1, columns // GROUP) * GROUP + columns % GROUP
        if self._strongest is not None:
            weights = torch.cat([self._strongest[0], weights], dim=1)
            keys = torch.cat([self._strongest[1], keys], dim=1)
            weights, order = torch.topk(weights, min(most, weights.shape[1]), dim=1)
            keys = keys.gather(1, order)
        self._strongest = weights, keys.masked_fill(weights == 0.0, -1)

    @property
    def strongest(self) -> tuple[Tensor, Tensor] | None:
        """The strongest weights and their keys, (heads, rows, up to top), if there are any."""
        if self._strongest is None:
            return None
        weights, keys = (numbers.view(*self._shape, -1) for numbers in self._strongest)
        return weights, keys


def _products(matrices: Tensor, vector: Tensor) -> Tensor:
    """Return each matrix times a vector; of the skewed view a batched product would make a copy."""
    return torch.stack([torch.mv(matrix, vector) for matrix in matrices])
