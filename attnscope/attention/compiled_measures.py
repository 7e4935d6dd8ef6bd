"""The measures of one stripe of a plain float32 call, read by compiled code."""

import math
from typing import Any

import torch
from torch import Tensor

from attnscope.attention.call_stripe import HIDDEN_BELOW, CallStripe
from attnscope.attention.compiled import gather_rows, join_keys, keep_strongest
from attnscope.attention.key_sums import KeySums
from attnscope.attention.stripe_measures import AMONG, DISTANCE, ENTROPY, StripeMeasures
from attnscope.attention.stripe_plan import Plan
from attnscope.attention.weight_buffer import WeightBuffer


class CompiledMeasures(StripeMeasures):
    """StripeMeasures, row by row, which also name the query of each key's largest weight."""

    def __init__(self, plan: Plan, stripe: CallStripe, span: tuple[int, int], like: Tensor) -> None:
        super().__init__(plan, stripe, span, like)
        self._call_stripe = stripe
        # of each row, the bits of the largest weight and its key
        self._largest = torch.empty(self.shape[0] * self.shape[1], 2, dtype=torch.int64)
        self._highest_row = torch.empty_like(self.highest, dtype=torch.int32)

    def read(self, buffer: WeightBuffer, maxima: Tensor) -> None:
        """See StripeMeasures."""
        stripe, keys, rows = self._call_stripe, slice(self.first_key, self.end), self.shape[1]
        count, first_row = self.end - self.first_key, stripe.rows.start
        logits = buffer.flat(0, count)
        stripe.logits(keys, logits)
        softmax, by_row = logits.new_zeros(2, 3, len(logits))
        sinks = stripe.sinks()
        sinks = logits.new_full((len(logits),), -torch.inf) if sinks is None else sinks[:, 0]
        self.profile.zero_()
        gather_rows(
            buffer.memory.numpy(),
            _bits(buffer.memory),
            sinks.numpy(),
            softmax.numpy(),
            by_row.numpy(),
            self._largest.numpy(),
            self.received.numpy(),
            self.highest.numpy(),
            self._highest_row.numpy(),
            _bits(maxima),
            self.profile.numpy(),
            (
                count,
                self.first_key - self.start,
                self.first_key - (first_row + self.plan.query_offset),
                self.first_key,
                first_row,
                HIDDEN_BELOW,
            ),
            (buffer.lead, buffer.pitch, rows, min(self.plan.cell_rows, rows), buffer.group),
        )
        largest, base, total = softmax[..., None]
        stripe.base(largest)  # which notes the blind rows
        stripe.settle(base, total)
        stripe.take(logits, keys)
        for name, numbers in zip((ENTROPY, DISTANCE, AMONG), by_row, strict=True):
            self.flat_sums[name] = numbers
        self.flat_sums[ENTROPY] *= math.log(2.0)  # bits

    def find_largest(self, buffer: WeightBuffer, maxima: Tensor) -> None:  # noqa: ARG002
        """See StripeMeasures."""
        bits, keys = self._largest.unbind(1)
        self.largest = bits.to(torch.int32).view(torch.float32).view(self.shape)
        self.largest_key = keys.view(self.shape)

    def find_strongest(self, buffer: WeightBuffer, maxima: Tensor) -> None:
        """See StripeMeasures."""
        weights = maxima.new_zeros(len(maxima), self.plan.top)
        keys = torch.full_like(weights, -1, dtype=torch.int64)
        keep_strongest(
            _bits(buffer.memory),
            _bits(maxima),
            _bits(weights),
            keys.numpy(),
            self.first_key,
            (buffer.lead, buffer.pitch, buffer.group),
        )
        self.strongest_of_row = weights, keys

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
