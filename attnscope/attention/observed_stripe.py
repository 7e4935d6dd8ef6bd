"""The weights of some rows of an ObservedCall, which are there already."""

import math

import torch
from torch import Tensor

from attnscope.attention.masks import HIDDEN_AT_MOST
from attnscope.attention.stripe import LOG2_E, Rows
from attnscope.attention.verify import ObservedCall


class ObservedStripe:
    """Rows of one head of an ObservedCall, whose weights are there already."""

    def __init__(
        self, call: ObservedCall, head: int, rows: slice, *, keep_context: bool = False
    ) -> None:
        self.rows = rows
        self.size = 1
        self._weights = call.weights[head : head + 1, rows]
        self._call, self._head, self._keep = call, head, keep_context

    def fill(self, keys: slice, out: Tensor) -> Tensor:
        """Write the weights; see Stripe."""
        out[:, : keys.stop - keys.start] = self._weights[0, :, keys]
        surprise: Tensor = torch.special.entr(out)
        return surprise.sum(dim=1).mul_(LOG2_E)

    def known(self) -> Rows:
        """Return what is known; see Stripe."""
        return observed_rows(self._call, self._head, self.rows, keep_context=self._keep)


def observed_rows(call: ObservedCall, head: int, rows: slice, *, keep_context: bool) -> Rows:
    """Return what is known of some rows of an observed head; see Rows.

    The log-sum-exp is NaN where the scores were not seen, and then no row is known to be blind.
    """
    weights = call.weights[head : head + 1, rows]
    wide = torch.promote_types(weights.dtype, torch.float32)
    if call.scores is None:
        logsumexp = torch.full_like(weights[..., 0], math.nan, dtype=wide)
        blind = torch.zeros_like(logsumexp, dtype=torch.bool)
    else:
        scores = call.scores[head : head + 1, rows].to(wide)
        hidden = scores <= HIDDEN_AT_MOST
        logsumexp = torch.logsumexp(scores.masked_fill(hidden, -torch.inf), dim=-1)
        blind = hidden.all(dim=-1)
    context = None
    if keep_context:
        context = weights.to(wide) @ call.value[head : head + 1].to(wide)
    return Rows(logsumexp, context, blind)
