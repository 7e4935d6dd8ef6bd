"""AttentionResult: a call and everything computed from it."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from attnscope.attention import engine, measures, reference
from attnscope.attention.call import AttentionCall
from attnscope.attention.engine import MaskMethod, MaskSteps, Steps
from attnscope.attention.masks import HIDDEN_AT_MOST, from_tensor
from attnscope.attention.norms import value_lengths
from attnscope.attention.verify import ObservedCall

STRONGEST = 5


@dataclass(frozen=True, slots=True, eq=False)
class AttentionResult:
    """One attention call with its weights, context and numbers.

    Shapes: entropy (heads, queries), in nats; strongest_weights and strongest_keys (heads,
    queries, up to 5). `reference_gap` is max |Δ| between `context` and torch's own kernel, or
    None where torch has no such kernel. `observed`: the weights are those that were seen in a
    model whose queries and keys were not; the call holds zeros in their places, and the omegas
    are NaN.
    """

    call: AttentionCall
    method: MaskMethod
    steps: Steps
    entropy: Tensor
    strongest_weights: Tensor
    strongest_keys: Tensor
    reference_gap: float | None
    observed: bool = False
    projected_lengths: Tensor | None = None  # ‖v·W_O‖ of each key: (heads, keys)

    def head(self, number: int) -> "HeadResult":
        """Return the numbers of one head."""
        return HeadResult(self, number)

    @property
    def sink_weights(self) -> Tensor | None:
        """What each row gives to the head's sink, (heads, queries), or None without sinks.

        A row that may see no key gives all of it to nothing: 0.
        """
        if self.call.sinks is None:
            return None
        sums = self.steps.logsumexp
        weights = torch.exp(self.call.sinks.to(sums.dtype)[:, None] - sums)
        return weights.masked_fill(~self.steps.visible.any(dim=-1), 0.0)

    @property
    def norms(self) -> Tensor:
        """‖α·v‖, how much each key moves the context: (heads, queries, keys)."""
        lengths: Tensor = value_lengths(self.call)
        return self.steps.weights * lengths[:, None]

    @property
    def output_norms(self) -> Tensor | None:
        """‖α·v·W_O‖, how much each key moves the layer's output, if W_O is known."""
        lengths = self.projected_lengths
        return None if lengths is None else self.steps.weights * lengths[:, None]

    @property
    def scores(self) -> Tensor:
        """q·kᵀ, the omegas: (heads, queries, keys)."""
        return self.steps.scores

    @property
    def logits(self) -> Tensor:
        """What softmax receives, −inf where hidden: (heads, queries, keys)."""
        return self.steps.logits

    @property
    def visible(self) -> Tensor:
        """True where a query may see a key: (heads, queries, keys)."""
        return self.steps.visible.expand(self.steps.scores.shape)

    @property
    def weights(self) -> Tensor:
        """The attention weights: (heads, queries, keys)."""
        return self.steps.weights

    @property
    def context(self) -> Tensor:
        """The context vectors: (heads, queries, d_value)."""
        return self.steps.context

    @property
    def mask_steps(self) -> MaskSteps | None:
        """The steps of the renormalize method, if that was used."""
        return self.steps.mask_steps

    @property
    def reference_name(self) -> str | None:
        """What `reference_gap` compares with; None if there is nothing."""
        return None if self.reference_gap is None else reference.NAME

    @property
    def agrees(self) -> bool | None:
        """Whether torch's own kernel gives the same context, within the dtype's tolerance."""
        gap = self.reference_gap
        return None if gap is None else reference.agrees(gap, self.context, self.steps.scaled)


@dataclass(frozen=True, slots=True, eq=False)
class HeadResult:
    """One query head of a result; shapes as there, without the axis of heads."""

    result: AttentionResult
    number: int

    @property
    def key_head(self) -> int:
        """The head of keys and values that this head reads."""
        return self.result.call.key_head(self.number)

    @property
    def query(self) -> Tensor:
        """The queries: (queries, d_key)."""
        return self.result.call.query[self.number]

    @property
    def key(self) -> Tensor:
        """The keys: (keys, d_key)."""
        return self.result.call.key[self.key_head]

    @property
    def value(self) -> Tensor:
        """The values: (keys, d_value)."""
        return self.result.call.value[self.key_head]

    @property
    def scores(self) -> Tensor:
        """q·kᵀ, the omegas: (queries, keys)."""
        return self.result.scores[self.number]

    @property
    def logits(self) -> Tensor:
        """What softmax receives, −inf where hidden: (queries, keys)."""
        return self.result.logits[self.number]

    @property
    def weights(self) -> Tensor:
        """The attention weights: (queries, keys)."""
        return self.result.weights[self.number]

    @property
    def context(self) -> Tensor:
        """The context vectors: (queries, d_value)."""
        return self.result.context[self.number]

    @property
    def entropy(self) -> Tensor:
        """The entropy of each row's weights, in nats: (queries,)."""
        return self.result.entropy[self.number]


def attend(call: AttentionCall, method: MaskMethod = MaskMethod.NEG_INF) -> AttentionResult:
    """Compute a call: every step, its measures, and the check against torch's own kernel."""
    method = engine.find_method(method)
    steps = engine.compute(call, method)
    with torch.no_grad():
        theirs = reference.reference_context(call)
    values, keys = measures.strongest(steps.weights, steps.visible, STRONGEST)
    return AttentionResult(
        call,
        method,
        steps,
        measures.entropy(steps.weights),
        values,
        keys,
        None if theirs is None else reference.difference(steps.context, theirs),
    )


def observe(call: ObservedCall) -> AttentionResult:
    """Return a result whose weights are those that a model was seen to use, taken as they are.

    Where the softmax received scores, they are its logits; else its logits are NaN.
    """
    weights = call.weights.float() if call.weights.dtype.itemsize < 4 else call.weights
    value = call.value.to(weights.dtype)
    logits = torch.full_like(weights, math.nan)
    seen = torch.ones_like(weights, dtype=torch.bool)
    if call.scores is not None:
        seen = ~(call.scores <= HIDDEN_AT_MOST)
        logits = call.scores.to(weights.dtype).masked_fill(~seen, -torch.inf)
    stand_in = AttentionCall(
        weights.new_zeros(call.heads, call.queries, 1),
        weights.new_zeros(call.heads, call.keys, 1),
        value,
        mask=from_tensor(seen, name="observed"),
    )
    values, keys = measures.strongest(weights, seen, STRONGEST)
    return AttentionResult(
        stand_in,
        MaskMethod.NEG_INF,
        Steps(
            visible=seen,
            scores=torch.full_like(weights, math.nan),
            scaled=logits,
            logits=logits,
            weights=weights,
            context=weights @ value,
            logsumexp=engine.row_logsumexp(logits),
            mask_steps=None,
        ),
        measures.entropy(weights),
        values,
        keys,
        None,
        observed=True,
    )
