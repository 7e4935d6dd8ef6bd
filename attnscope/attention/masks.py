"""A mask is a rule on positions; True means "this query may see this key".

Other conventions (True = hidden, additive 0/−inf) are converted where they come in.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Rule = Callable[[Tensor, Tensor], Tensor]

# An additive mask hides a key with −inf or with a huge finite number: the smallest of float16
# (−65504), of bfloat16 and float32 (about −3.4e38), or −1e9. exp of anything at or below the
# first is 0 in every floating type, so nothing that was used can be lost by calling it hidden.
HIDDEN_AT_MOST = torch.finfo(torch.float16).min


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a mask reaches: no key is seen outside query + first … query + last.

    `filled`: every key inside is seen, so that whole blocks are known without asking the rule.
    """

    first: float = -math.inf
    last: float = math.inf
    filled: bool = False

    def __and__(self, other: "Reach") -> "Reach":
        return Reach(
            max(self.first, other.first),
            min(self.last, other.last),
            self.filled and other.filled,
        )

    def __or__(self, other: "Reach") -> "Reach":
        first, last = min(self.first, other.first), max(self.last, other.last)
        one_is_both = any(r.filled and (r.first, r.last) == (first, last) for r in (self, other))
        return Reach(first, last, one_is_both)


@dataclass(frozen=True, slots=True)
class Mask:
    """A rule with a name; `&` and `|` combine two. What is not known about its reach may be left.

    A reach is a promise about the rule, for speed: it hides nothing and shows nothing by itself.
    """

    name: str
    rule: Rule
    reach: Reach = Reach()

    def visible(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Return which of these queries may see which of these keys.

        Shapes: (queries,), (keys,) -> (queries, keys) bool, or (heads, queries, keys) if the
        mask differs by head.
        """
        return self.rule(query_positions[:, None], key_positions[None, :])

    def __and__(self, other: "Mask") -> "Mask":
        if self is EVERYTHING:
            return other
        if other is EVERYTHING:
            return self
        return Mask(
            f"{self.name} and {other.name}",
            lambda q, k: self.rule(q, k) & other.rule(q, k),
            self.reach & other.reach,
        )

    def __or__(self, other: "Mask") -> "Mask":
        return Mask(
            f"{self.name} or {other.name}",
            lambda q, k: self.rule(q, k) | other.rule(q, k),
            self.reach | other.reach,
        )


def _everything(query: Tensor, key: Tensor) -> Tensor:
    return torch.ones((), dtype=torch.bool, device=key.device).expand(len(query), key.shape[-1])


def _causal(query: Tensor, key: Tensor) -> Tensor:
    return key <= query


EVERYTHING = Mask("none", _everything, Reach(filled=True))
CAUSAL = Mask("causal", _causal, Reach(last=0, filled=True))


def from_tensor(visible: Tensor, *, query_offset: int = 0, name: str = "given") -> Mask:
    """Turn a bool tensor (True = may see) into a mask.

    Shapes: (queries, keys) or (heads, queries, keys); row 0 is the query at `query_offset`.
    """

    def rule(query: Tensor, key: Tensor) -> Tensor:
        return visible[..., query - query_offset, key]

    return Mask(name, rule)


def split_additive(additive: Tensor) -> tuple[Tensor, Tensor | None]:
    """Split an additive mask into which keys may be seen and the bias on those.

    The bias is None if every number that is not hidden is 0.
    """
    visible = ~(additive <= HIDDEN_AT_MOST)  # a NaN stays visible, so that it reaches the screen
    bias = additive.masked_fill(~visible, 0.0)
    return visible, (bias if bool((bias != 0).any()) else None)
