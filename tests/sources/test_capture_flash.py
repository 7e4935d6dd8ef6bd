"""Capture of flash attention, which is told causal, a window and padding instead of a mask.

Its kernels need a GPU: here a function computes what they compute, text by text without padding.
"""

import pytest
import torch
from torch.nn import functional

from attnscope.attention.verify import verify
from attnscope.sources.capture import capture
from tests.sources.families import FAMILIES
from tests.sources.matrix import (
    built,
    eager_gap,
    given,
    grouped,
    model_of,
    returned_weights,
    rows_of_tokens,
    run,
    sides,
)
from tests.sources.models import transformers_or_skip

transformers_or_skip()
from transformers import AttentionInterface, AttentionMaskInterface  # noqa: E402
from transformers.masking_utils import flash_attention_mask  # noqa: E402

NAME = "unpadded"  # transformers looks for kernels behind names with "flash"
TOLERANCE = 1e-5
FAMILIES_WITH_FLASH = ("Llama", "Mistral", "GPT-2", "Gemma 3", "BERT", "ModernBERT")


def flash_by_hand(
    module,
    query,
    key,
    value,
    attention_mask,
    scaling=None,
    sliding_window=None,
    is_causal=None,
    **_,
):
    causal = module.is_causal if is_causal is None else is_causal
    groups = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(groups, 1) for x in (key, value))
    output = torch.zeros(*query.shape[:-1], value.shape[-1])
    for text in range(len(query)):
        real = torch.ones(key.shape[2], dtype=torch.bool)
        if attention_mask is not None:
            real = attention_mask[text].bool()
        k, v = (x[text][:, : len(real)][:, real] for x in (key, value))
        rows = real[-query.shape[2] :] if query.shape[2] > 1 else torch.ones(1, dtype=torch.bool)
        q = query[text][:, rows]
        behind = k.shape[1] - q.shape[1]
        visible = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool)
        if causal:
            visible = visible.tril(behind)
        if sliding_window is not None:
            ahead = sliding_window - 1
            visible = visible.tril(behind + ahead).triu(behind - ahead)
        output[text][:, rows] = functional.scaled_dot_product_attention(
            q, k, v, attn_mask=visible, scale=scaling
        )
    return output.transpose(1, 2), None


@pytest.fixture(autouse=True)
def _registered():
    AttentionInterface.register(NAME, flash_by_hand)
    AttentionMaskInterface.register(NAME, flash_attention_mask)
    yield
    for interface in (AttentionInterface, AttentionMaskInterface):
        del interface._global_mapping[NAME]


CASES = [(name, side) for name in FAMILIES_WITH_FLASH for side in sides(name)]


@pytest.mark.parametrize(("name", "side"), CASES, ids=str)
def test_weights_are_the_eager_ones(name, side):
    family, model = FAMILIES[name], built(FAMILIES[name], NAME)
    inputs = given(family, side)
    with torch.no_grad(), capture(model) as cap:
        model(**inputs)
    assert cap.skipped == []
    assert max(map(verify, cap.calls)) <= TOLERANCE
    eager = run(model_of(name, "eager"), inputs, output_attentions=True)
    groups = grouped(cap.calls)
    gap, compared = eager_gap(family, inputs, groups, returned_weights(family, eager))
    assert compared == family.calls
    assert gap <= TOLERANCE
    assert all(rows_of_tokens(c, inputs)[1].any(0).sum() > 4 for c in cap.calls)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", ["Llama", "Mistral"])
def test_generation(name, cache):
    model, inputs = built(FAMILIES[name], NAME), given(FAMILIES[name], "left")
    options = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
    if cache == "static":
        options |= {"cache_implementation": "static", "disable_compile": True}
    plain = model.generate(**inputs, **options)
    with capture(model) as cap:
        seen = model.generate(**inputs, **options)
    assert torch.equal(plain, seen)
    assert cap.skipped == []
    assert len(cap.calls) == 2 * 2 * 4
    assert max(map(verify, cap.calls)) <= TOLERANCE
