"""Small models whose attention is peaked: with flat attention every mistake is a small one."""

import math
import os

import pytest
import torch
from torch import nn
from torch.nn import functional

WIDTH, HEADS = 16, 4


def transformers_or_skip():
    """Return transformers, or skip the module; under CI nothing may be skipped."""
    try:
        import transformers
    except ImportError:
        if os.environ.get("CI"):
            raise
        pytest.skip("transformers is not installed", allow_module_level=True)
    return transformers


def redrawn(model, gain=0.5):
    """Draw every parameter anew, so that attention is peaked and no bias is 0."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            numbers = torch.randn(parameter.shape, generator=generator)
            scale = 1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0
            parameter.copy_(numbers * (gain if parameter.dim() > 1 else 0.5) + scale)
    return model.eval()


def numbers(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Handwritten(nn.Module):
    """Attention as it is written by hand; `forward` is told how."""

    def __init__(self, how, heads=HEADS, dropout=0.0):
        super().__init__()
        self.how, self.n_head = how, heads
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH)
        self.c_proj = nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        parts = self.c_attn(x).split(WIDTH, dim=2)
        split = (*x.shape[:2], self.n_head, WIDTH // self.n_head)
        q, k, v = (part.view(split) for part in parts)
        return self.c_proj(getattr(self, self.how)(q, k, v).reshape(x.shape))

    def scores(self, q, k):
        scores = q.transpose(1, 2) @ k.permute(0, 2, 3, 1) / math.sqrt(q.shape[-1])
        hidden = torch.ones(scores.shape[-2:]).tril() == 0
        return scores.masked_fill(hidden, -math.inf)

    def nanogpt(self, q, k, v):
        weights = self.dropout(functional.softmax(self.scores(q, k), dim=-1))
        return (weights @ v.transpose(1, 2)).transpose(1, 2)

    def einsum(self, q, k, v):
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / 2
        return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)

    def einsum_with_ellipsis(self, q, k, v):
        weights = self.scores(q, k).softmax(-1)
        return torch.einsum("...qk,...kd->...qd", weights, v.transpose(1, 2)).transpose(1, 2)

    def one_axis(self, q, k, v):
        weights = torch.softmax(self.scores(q, k).flatten(0, 1), -1)
        context = torch.bmm(weights, v.transpose(1, 2).flatten(0, 1))
        return context.view(-1, self.n_head, *context.shape[1:]).transpose(1, 2)

    def transposed(self, q, k, v):
        weights = torch.softmax(self.scores(q, k), -1)
        context = v.permute(0, 2, 3, 1) @ weights.permute(0, 1, 3, 2)
        return context.permute(0, 3, 1, 2)

    def sdpa(self, q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        p = self.dropout.p if self.training else 0.0
        return functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, dropout_p=p
        ).transpose(1, 2)


class Function(nn.Module):
    """A function of tensors, called as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def handwritten(how, **more):
    return redrawn(Handwritten(how, **more), 1.0)
