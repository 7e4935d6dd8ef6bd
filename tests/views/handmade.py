"""A Run written by hand: numbers that show every kind of cell, and words that attack."""

import torch

from attnscope.attention.call import AttentionCall
from attnscope.attention.engine import MaskMethod, MaskSteps, Steps
from attnscope.attention.masks import CAUSAL
from attnscope.attention.projections import Projections
from attnscope.attention.result import AttentionResult
from attnscope.run import Inputs, Run, Settings, axis_of_tokens
from attnscope.text.display import label
from attnscope.text.tokens import Tokens, Vocabulary

PIECES = ("[red]x", "人生", "\x1b[0m", "a b")
NAN, INF = float("nan"), float("inf")


def tokens(pieces=PIECES):
    text = " ".join(pieces)
    spans, place = [], 0
    for piece in pieces:
        spans.append((place, place + len(piece)))
        place += len(piece) + 1
    entries = {piece: i for i, piece in enumerate(pieces)}
    return Tokens(
        text,
        tuple(pieces),
        tuple(label(piece) for piece in pieces),
        tuple(range(len(pieces))),
        tuple(spans),
        (True, *[False] * (len(pieces) - 1)),
        (*[False] * (len(pieces) - 1), True),
        Vocabulary("text", "", len(pieces), len(pieces), entries, True),
    )


def run(method=MaskMethod.NEG_INF, pieces=PIECES, heads=1):
    """Return a causal run whose matrices hold NaN, infinities, zeros, tiny and huge numbers."""
    size = len(pieces)
    generator = torch.Generator().manual_seed(7)
    scores = torch.randn(heads, size, size, generator=generator).mul(1000).round() / 1000
    if size > 3:
        scores[0, 0, 0], scores[0, 1, 0], scores[0, 2, 1] = NAN, INF, -1234567.25
    seen = torch.ones(1, size, size).tril().bool()
    weights = (1 / torch.arange(1, size + 1.0))[None, :, None].expand(heads, size, size) * seen
    weights = weights.clone()
    if size > 3:
        weights[0, 0, 0], weights[0, 3, 1], weights[0, 3, 2] = NAN, 0.0, 3.25e-9
    context = torch.arange(heads * size * 2.0).view(heads, size, 2) / 8
    call = AttentionCall(
        torch.ones(heads, size, 2),
        torch.full((heads, size, 2), 2.0),
        torch.zeros(heads, size, 2),
        scale=0.5,
        mask=CAUSAL,
    )
    steps = Steps(
        visible=seen,
        scores=scores,
        scaled=scores / 2,
        logits=(scores / 2).masked_fill(~seen, -INF),
        weights=weights,
        context=context,
        logsumexp=torch.zeros(heads, size),
        mask_steps=MaskSteps(weights / 2, weights / 4, weights.sum(-1))
        if method is MaskMethod.RENORMALIZE
        else None,
    )
    result = AttentionResult(
        call,
        method,
        steps,
        entropy=torch.full((heads, size), 0.5),
        strongest_weights=weights[..., :2],
        strongest_keys=torch.arange(min(2, size)).expand(heads, size, -1),
        reference_gap=1.25e-7,
    )
    settings = Settings(
        "sentence", "causal", heads, heads, 2, 2, True, None, str(method), 0.5, "float32", "cpu",
        1, size, 123,
    )  # fmt: skip
    axis = axis_of_tokens(tokens(pieces))
    inputs = Inputs(
        torch.ones(size, 1),
        torch.ones(size, 1),
        Projections(*(torch.ones(heads, 1, 2) for _ in range(3))),
    )
    return Run(settings, axis, axis, (result,), inputs, ("a warning",), (), {"torch": "0"})
