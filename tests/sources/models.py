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


DECODER = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 64,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
ENCODER = {k: v for k, v in DECODER.items() if k not in ("num_key_value_heads", "head_dim")}
BART = {
    **{
        f"{part}_{name}": n
        for part in ("encoder", "decoder")
        for name, n in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 64))
    },
    "d_model": 32,
    "vocab_size": 64,
    "max_position_embeddings": 64,
}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 64}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 64, "n_positions": 64}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
# name: model class, configuration class, its options, gain of the draw, which side is padded
FAMILIES = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", DECODER, 0.35, "left"),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", GPT2 | TOKENS, 0.5, "left"),
    "bert": ("BertModel", "BertConfig", ENCODER, 0.35, "right"),
    "t5": (
        "T5ForConditionalGeneration",
        "T5Config",
        T5 | {"decoder_start_token_id": 0},
        0.3,
        "right",
    ),
    "gemma2": (
        "Gemma2ForCausalLM",
        "Gemma2Config",
        DECODER | {"sliding_window": 4, "query_pre_attn_scalar": 8, "attn_logit_softcapping": 5.0},
        0.35,
        "left",
    ),
    "gpt-oss": (
        "GptOssForCausalLM",
        "GptOssConfig",
        DECODER
        | {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 4}
        | {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
        0.35,
        "left",
    ),
    "bloom": (
        "BloomForCausalLM",
        "BloomConfig",
        {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 64} | TOKENS,
        0.35,
        "left",
    ),
    "mistral": (
        "MistralForCausalLM",
        "MistralConfig",
        DECODER | {"sliding_window": 4},
        0.35,
        "left",
    ),
    "bart": ("BartForConditionalGeneration", "BartConfig", BART, 0.5, "right"),
    "albert": ("AlbertModel", "AlbertConfig", ENCODER | {"embedding_size": 16}, 0.35, "right"),
}


def built(transformers, family, implementation=None):
    """Return a model of a family; implementation None is the one the model chooses."""
    model, config, options, gain, _ = FAMILIES[family]
    more = {} if implementation is None else {"attn_implementation": implementation}
    made = getattr(transformers, config)(**options)
    return redrawn(getattr(transformers, model)._from_config(made, **more), gain)


def inputs(model, side=None, tokens=12):
    """Return two texts; with a side, the second has four tokens of padding there."""
    ids = torch.randint(3, 64, (2, tokens), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    if side is not None:
        mask[1, slice(0, 4) if side == "left" else slice(tokens - 4, tokens)] = 0
    given = {"input_ids": ids, "attention_mask": mask}
    if model.config.is_encoder_decoder:
        given["decoder_input_ids"] = ids[:, :7]
    return given
