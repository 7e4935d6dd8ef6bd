"""Capture of transformers' models, tiny and peaked, against their own eager weights."""

import threading
from functools import cache

import pytest
import torch

from attnscope.attention import engine
from attnscope.attention.masks import HIDDEN_AT_MOST
from attnscope.attention.verify import TOLERANCES, ObservedCall, verify, widened
from attnscope.sources.capture import CaptureError, capture
from tests.sources.models import FAMILIES, built, inputs, transformers_or_skip

transformers = transformers_or_skip()
from transformers.modeling_utils import AttentionInterface  # noqa: E402

TOLERANCE = 1e-5
PEAKED = 0.3
ROUTES = {"bloom": "softmax"}
CROSS = {"t5", "bart"}


@cache
def model_of(family, implementation=None):
    return built(transformers, family, implementation)


def main_output(output):
    return output.logits if "logits" in output else output.last_hidden_state


def weights_and_rows(captured):
    """Return the weights, and which rows may see a key: (heads, queries)."""
    call = captured.call
    if isinstance(call, ObservedCall):
        return call.weights, ~(call.scores <= HIDDEN_AT_MOST).all(-1)
    steps = engine.compute(widened(call))
    return steps.weights, steps.visible.expand_as(steps.weights).any(-1)


def references(family, given):
    """Return the eager weights in the order of the calls: encoder, then self and cross by layer."""
    with torch.no_grad():
        out = model_of(family, "eager")(**given, output_attentions=True)
    if family not in CROSS:
        return list(out.attentions)
    pairs = zip(out.decoder_attentions, out.cross_attentions, strict=True)
    return [*out.encoder_attentions, *(x for pair in pairs for x in pair)]


@pytest.mark.parametrize("padded", [False, True], ids=["plain", "padded"])
@pytest.mark.parametrize("implementation", [None, "eager"], ids=["default", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_family(family, implementation, padded):
    model = model_of(family, implementation)
    given = inputs(model, FAMILIES[family][4] if padded else None)
    with torch.no_grad():
        plain = main_output(model(**given))
        with capture(model) as cap:
            seen = main_output(model(**given))
    assert torch.equal(plain, seen)
    assert cap.skipped == []
    assert {c.route for c in cap.calls} == {ROUTES.get(family, "interface")}
    assert {u for c in cap.calls for u in c.unknown} == set()
    assert max(verify(c) for c in cap.calls) <= TOLERANCE
    expected = references(family, given)
    assert len(cap.calls) == 2 * len(expected)
    peaks = []
    for number, captured in enumerate(cap.calls):
        weights, rows = weights_and_rows(captured)
        theirs = expected[number // 2][captured.text]
        assert (weights - theirs)[rows].abs().max() <= TOLERANCE
        peaks.append(weights[rows].max(-1).values.mean())
    assert sum(peaks) / len(peaks) > PEAKED


@pytest.mark.parametrize("family", FAMILIES)
def test_places(family):
    model = model_of(family)
    with torch.no_grad(), capture(model) as cap:
        model(**inputs(model))
    places = [(c.kind, c.layer) for c in cap.calls if c.text == 0]
    selves = [("self", 0), ("self", 1)]
    decoder = [("self", 0), ("cross", 0), ("self", 1), ("cross", 1)]
    assert places == (selves + decoder if family in CROSS else selves)
    assert {(c.step, c.query_offset, c.key_offset) for c in cap.calls} == {(0, 0, 0)}
    if family == "albert":
        assert [c.nth for c in cap.calls if c.text == 0] == [0, 1]


def test_heads_of_keys_are_kept_apart_from_heads_of_queries():
    model = model_of("llama")
    with capture(model) as cap:
        model(**inputs(model))
    assert {(c.call.heads, c.call.key_heads) for c in cap.calls} == {(4, 2)}


@pytest.mark.parametrize("family", ["mistral", "llama", "gpt2", "t5", "bart", "bloom"])
def test_generation(family):
    model = model_of(family)
    given = {"input_ids": inputs(model)["input_ids"][:, :6]}
    options = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
    plain = model.generate(**given, **options)
    with capture(model) as cap:
        seen = model.generate(**given, **options)
    assert torch.equal(plain, seen)
    assert max(verify(c) for c in cap.calls) <= TOLERANCE
    check_rows(model, family, given, seen, cap)


def check_rows(model, family, given, seen, cap):
    """Each row computed with a cache is the row of one forward over the whole text."""
    calls = [c for c in cap.calls if "encoder." not in c.module_name.split("decoder")[0]]
    whole = {"input_ids": seen[:, :-1]}
    if family in CROSS:
        whole = given | {"decoder_input_ids": seen[:, :-1]}
    with torch.no_grad(), capture(model) as full:
        model(**whole)
    rows = {(c.module_name, c.text): weights_and_rows(c)[0] for c in full.calls}
    assert max(c.step for c in calls) == 4
    for captured in calls:
        weights, _ = weights_and_rows(captured)
        q, k = captured.query_offset, captured.key_offset
        expected = rows[captured.module_name, captured.text]
        expected = expected[:, q : q + weights.shape[1], k : k + weights.shape[2]]
        assert torch.allclose(weights, expected, atol=2e-5)
    if family == "mistral":
        last = [c for c in calls if c.step == 4]
        assert {(c.query_offset, c.key_offset, c.call.keys) for c in last} == {(9, 6, 4)}


def test_a_static_cache_that_slides_does_not_overwrite_records():
    model = model_of("mistral")
    given = {"input_ids": inputs(model)["input_ids"][:, :6]}
    with capture(model) as cap:
        model.generate(
            **given,
            max_new_tokens=5,
            do_sample=False,
            pad_token_id=0,
            cache_implementation="static",
            disable_compile=True,
        )
    assert max(verify(c) for c in cap.calls) <= TOLERANCE


def test_everything_is_restored_also_after_an_exception():
    model = model_of("llama")
    before = AttentionInterface.__dict__["get_interface"]

    def fails():
        assert AttentionInterface.__dict__["get_interface"] is not before
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), capture(model):
        fails()
    assert AttentionInterface.__dict__["get_interface"] is before


def test_nested_captures_and_captures_that_end_out_of_order():
    model, other = model_of("llama"), model_of("mistral")
    before = AttentionInterface.__dict__["get_interface"]
    started, ended = threading.Event(), threading.Event()
    found = []

    def elsewhere():
        with capture(other) as cap:
            started.set()
            ended.wait(30)
            other(**inputs(other))
        found.append(cap)

    thread = threading.Thread(target=elsewhere)
    with capture(model) as outer, capture(model.model) as inner:
        thread.start()
        started.wait(30)
        model(**inputs(model))
    ended.set()
    thread.join()
    assert [len(cap.calls) for cap in (outer, inner, *found)] == [4, 4, 4]
    assert {c.route for cap in (outer, inner, *found) for c in cap.calls} == {"interface"}
    assert outer.calls[0].module_name == "model.layers.0.self_attn"
    assert inner.calls[0].module_name == "layers.0.self_attn"
    assert AttentionInterface.__dict__["get_interface"] is before


def test_other_models_and_threads_are_not_recorded():
    model, other = model_of("llama"), model_of("mistral")
    with capture(model) as cap:
        other(**inputs(other))
        thread = threading.Thread(target=lambda: model(**inputs(model)))
        thread.start()
        thread.join()
    assert cap.calls == []


def test_dropout_and_the_random_state_are_untouched():
    model = built(transformers, "bert").train()
    given = inputs(model)
    torch.manual_seed(3)
    plain, state = main_output(model(**given)), torch.get_rng_state()
    torch.manual_seed(3)
    with capture(model) as cap:
        seen = main_output(model(**given))
    assert torch.equal(plain, seen)
    assert torch.equal(state, torch.get_rng_state())
    assert {c.dropout for c in cap.calls} == {0.1}


@pytest.mark.filterwarnings("ignore:.*deprecated.*")  # its new name is not in every version
def test_a_block_that_runs_again_in_the_backward_pass_is_one_call():
    model = built(transformers, "llama").train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    with capture(model) as cap:
        model(**inputs(model)).logits.sum().backward()
    assert len(cap.calls) == 4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types(dtype):
    model = built(transformers, "llama").to(dtype)
    with torch.no_grad(), capture(model) as cap:
        model(**inputs(model))
    assert cap.calls[0].call.query.dtype == dtype
    assert 0 < max(verify(c) for c in cap.calls) <= TOLERANCES[dtype]


def test_a_model_without_attention_weights_says_so():
    config = transformers.MambaConfig(hidden_size=32, num_hidden_layers=2, vocab_size=64)
    model = transformers.MambaForCausalLM(config)
    with torch.no_grad(), capture(model) as cap:
        model(torch.ones(1, 5, dtype=torch.long))
    with pytest.raises(CaptureError, match="no softmax attention ran in MambaForCausalLM"):
        cap.require()
