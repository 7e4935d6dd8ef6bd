"""AttentionResult: a call and everything computed from it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from attnscope.attention import engine, measures, reference
from attnscope.attention.call import AttentionCall
from attnscope.attention.engine import MaskMethod, MaskSteps, Steps

STRONGEST = 5


@dataclass(frozen=True, slots=True, eq=False)
class AttentionResult:
    """One attention call with its weights, context and numbers.

    Shapes: entropy (heads, queries), in nats; strongest_weights and strongest_keys (heads,
    queries, up to 5). `reference_gap` is max |Δ| between `context` and torch's own kernel, or
    None where torch has no such kernel.
    """

    call: AttentionCall
    method: MaskMethod
    steps: Steps
    entropy: Tensor
    strongest_weights: Tensor
    strongest_keys: Tensor
    reference_gap: float | None

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
