"""What a mask that came as a tensor is: the rule that gives the same cells, if there is one."""

import torch
from torch import Tensor

from attnscope.attention.masks import CAUSAL, EVERYTHING, Mask, Reach, from_tensor

# Masks are compared some rows at a time, so that no second matrix of cells is made.
_ROWS = 256


def window(size: int) -> Mask:
    """Return the mask of a sliding window: each query sees itself and the size − 1 keys before."""
    reach = Reach(1 - size, 0, filled=True)
    return Mask(f"window {size}", lambda q, k: (k <= q) & (k > q - size), reach)


def band(reach: int) -> Mask:
    """Return the mask of a window to both sides: the keys at most `reach` places away."""
    known = Reach(-reach, reach, filled=True)
    return Mask(f"window ±{reach}", lambda q, k: (q - k).abs() <= reach, known)


def chunks(size: int) -> Mask:
    """Return the mask of causal chunks: a query sees its own chunk of `size` keys up to itself."""
    return Mask(
        f"causal chunks {size}",
        lambda q, k: (k <= q) & (_chunk(q, size) == _chunk(k, size)),
        Reach(1 - size, 0),
    )


def _chunk(positions: Tensor, size: int) -> Tensor:
    return positions.div(size, rounding_mode="floor")


def recognised(seen: Tensor, query_offset: int = 0) -> Mask:
    """Return the rule whose cells are exactly `seen`, or `seen` as a mask if it is no known one.

    Shapes: (heads or 1, queries, keys) bool; row 0 stands at query_offset.
    """
    if seen.shape[0] == 1 or bool((seen == seen[:1]).all()):
        one = seen[0]
        for rule in _candidates(one, query_offset):
            if _same(rule, one, query_offset):
                return rule
        seen = seen[:1]
    return from_tensor(seen, query_offset=query_offset)


def _candidates(seen: Tensor, offset: int) -> list[Mask]:
    """Return the rules that the edges of the matrix do not rule out."""
    if bool(seen[-1].all()) and bool(seen[0].all()):
        return [EVERYTHING]
    rules = [CAUSAL]
    forgets = (~seen[:, 0]).nonzero().flatten()  # rows that the first key is hidden from
    if len(forgets):
        size = int(forgets[0]) + offset
        rules += [window(size), chunks(size)] if size > 0 else []
    first = seen[0].nonzero().flatten()
    if len(first) and int(first[-1]) > offset:
        rules.append(band(int(first[-1]) - offset))
    return rules


def _same(rule: Mask, seen: Tensor, offset: int) -> bool:
    keys = torch.arange(seen.shape[1], device=seen.device)
    for start in range(0, seen.shape[0], _ROWS):
        rows = seen[start : start + _ROWS]
        positions = torch.arange(start, start + rows.shape[0], device=seen.device) + offset
        if not torch.equal(rule.visible(positions, keys).expand(rows.shape), rows):
            return False
    return True
