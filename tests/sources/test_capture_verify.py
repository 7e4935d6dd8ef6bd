"""The proof fails for every field of a record that is altered."""

from dataclasses import fields, replace

import pytest
import torch
from torch.nn import functional

from attnscope.attention import engine
from attnscope.attention.call import AttentionCall
from attnscope.attention.masks import CAUSAL, EVERYTHING, from_tensor
from attnscope.attention.verify import TOLERANCES, CapturedCall, ObservedCall, verify, widened
from attnscope.sources.capture import capture
from tests.sources.families import FAMILIES
from tests.sources.matrix import given, model_of
from tests.sources.models import numbers, transformers_or_skip


def captured(dtype=torch.float32, **changes):
    call = AttentionCall(
        (numbers(4, 6, 8) * 2).to(dtype),
        numbers(2, 7, 8, seed=2).to(dtype),
        numbers(2, 7, 5, seed=3).to(dtype),
        mask=from_tensor(numbers(4, 7, 7, seed=4) > -0.8) & CAUSAL,
        bias=numbers(4, 6, 7, seed=5).to(dtype),
        softcap=3.0,
        sinks=numbers(4, seed=6).to(dtype),
        query_offset=1,
    )
    output = engine.compute(widened(call)).context.to(dtype)
    return CapturedCall(replace(call, **changes), output, "attn", 0, 0, 0, 0, "self", "interface")


ALTERED = {
    "query": (numbers(4, 6, 8) * 2).flip(1),
    "key": numbers(2, 7, 8, seed=2) * 1.05,
    "value": numbers(2, 7, 5, seed=3).roll(1, dims=1),
    "scale": 1.05 / 8**0.5,
    "mask": EVERYTHING,
    "bias": None,
    "softcap": None,
    "sinks": None,
    "query_offset": 0,
}


def test_every_field_is_altered():
    assert {field.name for field in fields(AttentionCall)} == {*ALTERED}


def test_the_right_record_is_proven():
    assert verify(captured()) <= 1e-6


@pytest.mark.parametrize("name", ALTERED)
def test_an_altered_field_is_found(name):
    assert verify(captured(**{name: ALTERED[name]})) > 1e-3


def test_another_mask_and_another_output_are_found():
    right = captured()
    assert verify(replace(right, call=replace(right.call, mask=CAUSAL))) > 1e-3
    assert verify(replace(right, output=right.output * 1.01)) > 1e-3
    output = right.output.clone()
    output[0, 0, 0] = torch.nan
    assert not verify(replace(right, output=output)) <= 1.0


def test_another_grouping_of_heads_is_found():
    key, value = (captured().call.key, captured().call.value)
    for grouped in (
        {"key": key.repeat(2, 1, 1), "value": value.repeat(2, 1, 1)},  # head h reads h % 2
        {"key": key.flip(0), "value": value.flip(0)},
        {"key": key[:1], "value": value[:1]},
    ):
        assert verify(captured(**grouped)) > 1e-3
    apart = {"key": key.repeat_interleave(2, 0), "value": value.repeat_interleave(2, 0)}
    assert verify(captured(**apart)) <= 1e-6


def test_the_weights_are_those_of_values_that_are_the_identity():
    call = captured().call
    identity = torch.eye(7).expand(4, 7, 7)
    seen = engine.visible(call, slice(None))
    added = call.bias.masked_fill(~seen, -torch.inf)
    plain = replace(call, softcap=None, sinks=None)
    key = call.key.repeat_interleave(2, 0)
    oracle = functional.scaled_dot_product_attention(call.query, key, identity, attn_mask=added)
    assert torch.allclose(engine.compute(plain).weights, oracle, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_kept_and_widened_for_the_proof(dtype):
    record = captured(dtype)
    assert record.call.query.dtype == dtype
    assert widened(record.call).query.dtype == torch.float32
    assert 0 < verify(record) <= TOLERANCES[dtype]


def test_rows_that_see_nothing_are_left_out():
    visible = torch.ones(6, 7, dtype=torch.bool)
    visible[2] = False
    record = captured()
    call = replace(record.call, mask=from_tensor(visible), query_offset=0)
    output = engine.compute(call).context
    output[:, 2] = torch.nan
    assert verify(replace(record, call=call, output=output)) <= 1e-6
    assert verify(replace(record, call=replace(call, mask=from_tensor(~visible)))) > 1e-3


@pytest.mark.parametrize("block", [1, 50, 10_000])
def test_blocks_change_nothing(monkeypatch, block):
    whole = verify(captured(value=ALTERED["value"]))
    monkeypatch.setattr("attnscope.attention.verify.BLOCK", block)
    assert verify(captured(value=ALTERED["value"])) == pytest.approx(whole, rel=1e-5)


def test_observed_weights_and_values_belong_together():
    weights, value = numbers(4, 6, 7).softmax(-1), numbers(4, 7, 5)
    place = ("attn", 0, 0, 0, 0, "self", "softmax")
    right = CapturedCall(ObservedCall(weights, value), weights @ value, *place)
    assert verify(right) <= 1e-6
    for call in (ObservedCall(weights.flip(0), value), ObservedCall(weights, value.flip(1))):
        assert verify(replace(right, call=call)) > 1e-3


# Fields of records that were captured, each in a model that has it.
IN_MODELS = {
    "query": ("Llama", lambda call: {"query": call.query.flip(1)}),
    "key": ("Llama", lambda call: {"key": call.key * 1.05}),
    "value": ("Llama", lambda call: {"value": call.value.roll(1, 1)}),
    "scale": ("Granite", lambda call: {"scale": call.scale * 1.05}),
    "window": ("Mistral", lambda _: {"mask": CAUSAL}),
    "padding": ("BERT", lambda _: {"mask": EVERYTHING}),
    "causal": ("GPT-2", lambda _: {"mask": EVERYTHING}),
    "bias": ("T5", lambda _: {"bias": None}),
    "softcap": ("Gemma 2", lambda _: {"softcap": None}),
    "sinks": ("gpt-oss", lambda _: {"sinks": None}),
    "key heads": (
        "Llama",
        lambda c: {"key": c.key.repeat(2, 1, 1), "value": c.value.repeat(2, 1, 1)},
    ),
    "best keys": ("DeepSeek-V3.2", lambda _: {"mask": CAUSAL}),
}


@pytest.mark.parametrize("name", IN_MODELS)
def test_an_altered_record_of_a_model_is_found(name):
    transformers_or_skip()
    family, alter = IN_MODELS[name]
    model = model_of(family)
    with torch.no_grad(), capture(model) as cap:
        model(**given(FAMILIES[family], "right" if name == "padding" else None))
    assert max(map(verify, cap.calls)) <= 1e-5
    found = [verify(replace(c, call=replace(c.call, **alter(c.call)))) for c in cap.calls]
    # a window is in some layers only, and padding in one of the texts
    assert max(found) > 1e-3
