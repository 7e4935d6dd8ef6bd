"""The measures of one stripe of a plain float32 call, read by compiled code."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnscope.attention.compiled import gather_tile, join_keys, keep_strongest
from attnscope.attention.key_sums import KeySums
from attnscope.attention.stripe_measures import AMONG, DISTANCE, ENTROPY, StripeMeasures
from attnscope.attention.tile_plan import Plan
from attnscope.attention.tile_weights import CallStripe
from attnscope.attention.weight_buffer import WeightBuffer


class CompiledMeasures(StripeMeasures):
    """StripeMeasures, each tile in one pass, which also names the query of each key's largest."""

    def __init__(self, plan: Plan, stripe: CallStripe, span: tuple[int, int], like: Tensor) -> None:
        super().__init__(plan, stripe, span, like)
        self._logarithms = stripe.logarithms
        heads, rows = self.shape
        self._by_row = like.new_zeros(3, heads * rows, dtype=torch.float64)
        # of each row, the bits of the largest weight and its key
        self._largest = torch.zeros(heads * rows, 2, dtype=torch.int64)
        self._largest[:, 1] = -1
        self._highest_row = torch.empty_like(self.highest, dtype=torch.int32)

    def gather_chunk(self, chunk: slice, buffer: WeightBuffer, step: Callable[[], None]) -> Tensor:
        """See StripeMeasures."""
        heads, rows = self.shape
        count = chunk.stop - chunk.start
        buffer.lay_out(heads, rows, count, self.plan.chunk)
        maxima = self.profile.new_empty(heads * rows, -(-count // buffer.group))
        cell = min(self.plan.cell_rows, rows)
        by_keys = (self.received.numpy(), self.highest.numpy(), self._highest_row.numpy())
        first_row = self.stripe.rows.start
        for left in range(0, count, self.plan.tile):
            step()
            right = min(left + self.plan.tile, count)
            first = chunk.start + left
            logs = self._logarithms(slice(first, chunk.start + right), right - left)
            gather_tile(
                logs.numpy(),
                buffer.memory.numpy(),
                _bits(buffer.memory),
                self._by_row.numpy(),
                self._largest.numpy(),
                *by_keys,
                _bits(maxima),
                self.profile.numpy(),
                (
                    left,
                    right - left,
                    first - self.start,
                    first - self.first_key,
                    first - (first_row + self.plan.query_offset),
                    first,
                    first_row,
                ),
                (buffer.lead, buffer.pitch, rows, cell, buffer.group),
            )
            self.add_special(buffer, slice(left, right), chunk.start)
        if chunk.start == 0:
            self.first = buffer.weights[..., 0].clone()
        self.add_local(buffer, chunk)
        return maxima

    def note_largest(self, buffer: WeightBuffer, maxima: Tensor, start: int) -> None:
        """The largest are known."""

    def choose_largest(self) -> None:
        """See StripeMeasures."""
        bits, keys = self._largest.unbind(1)
        self.largest = bits.to(torch.int32).view(torch.float32).view(self.shape)
        self.largest_key = keys.view(self.shape)

    def finish_sums(self) -> None:
        """See StripeMeasures."""
        for name, numbers in zip((ENTROPY, DISTANCE, AMONG), self._by_row, strict=True):
            self.flat_sums[name] = numbers
        self.flat_sums[ENTROPY] *= math.log(2.0)  # bits

    def find_strongest(self, buffer: WeightBuffer, maxima: Tensor, start: int) -> None:
        """See StripeMeasures."""
        if self.strongest_of_row is None:
            new = maxima.new_zeros(len(maxima), self.plan.top)
            self.strongest_of_row = new, torch.full_like(new, -1, dtype=torch.int64)
        weights, keys = self.strongest_of_row
        keep_strongest(
            _bits(buffer.memory),
            _bits(maxima),
            _bits(weights),
            keys.numpy(),
            start,
            (buffer.lead, buffer.pitch, buffer.group),
        )

    def add_keys(self, sums: KeySums, heads: slice, number: int) -> None:  # noqa: ARG002
        """See StripeMeasures."""
        mine = (self.received, self.highest, self._highest_row, self.profile)
        everything = (sums.received, sums.highest, sums.query_of_highest, sums.profile)
        join_keys(
            *(tensor.numpy() for tensor in (*mine, *everything, sums.map_sum, sums.map_max)),
            (
                heads.start,
                self.first_key,
                self.end,
                self.start,
                self.profile_from - self.plan.nearest,
                self.plan.cells_of(self.stripe.rows).start,
                self.plan.cell_keys,
            ),
        )


def _bits(numbers: Tensor) -> Any:
    return numbers.view(torch.int32).numpy()
