"""Capture of transformers' models beyond one forward: places, generation, threads, gradients.

That each family is recorded as it computes is in the fidelity matrix.
"""

import threading

import pytest
import torch

from attnscope.attention.verify import TOLERANCES, verify
from attnscope.sources.capture import CaptureError, capture
from tests.sources.families import FAMILIES
from tests.sources.matrix import built, given, model_of, tensors_of, weights_and_rows
from tests.sources.models import transformers_or_skip

transformers = transformers_or_skip()
from transformers.modeling_utils import AttentionInterface  # noqa: E402

TOLERANCE = 1e-5
PAIRS = ("T5", "BART")


TEXT = given(FAMILIES["BERT"])
BEGINNING = {"input_ids": TEXT["input_ids"][:, :6]}


def main_output(output):
    return next(iter(tensors_of(output)))


@pytest.mark.parametrize("family", ["Llama", "GPT-2", "BERT", "ALBERT", "BLOOM", *PAIRS])
def test_places(family):
    model = model_of(family)
    with torch.no_grad(), capture(model) as cap:
        model(**given(FAMILIES[family]))
    places = [(c.kind, c.layer) for c in cap.calls if c.text == 0]
    selves = [("self", 0), ("self", 1)]
    decoder = [("self", 0), ("cross", 0), ("self", 1), ("cross", 1)]
    assert places == (selves + decoder if family in PAIRS else selves)
    assert {(c.step, c.query_offset, c.key_offset) for c in cap.calls} == {(0, 0, 0)}
    if family == "ALBERT":
        assert [c.nth for c in cap.calls if c.text == 0] == [0, 1]


def test_heads_of_keys_are_kept_apart_from_heads_of_queries():
    model = model_of("Llama")
    with capture(model) as cap:
        model(**TEXT)
    assert {(c.call.heads, c.call.key_heads) for c in cap.calls} == {(4, 2)}


GENERATED = ("Mistral", "Llama", "GPT-2", "BLOOM", "Falcon, rotary", "Gemma 3", "gpt-oss", "OPT")


@pytest.mark.parametrize("family", [*GENERATED, "DeepSeek-V3", "LFM2", *PAIRS])
def test_generation(family):
    model = model_of(family)
    options = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
    plain = model.generate(**BEGINNING, **options)
    with capture(model) as cap:
        seen = model.generate(**BEGINNING, **options)
    assert torch.equal(plain, seen)
    assert max(verify(c) for c in cap.calls) <= TOLERANCE
    check_rows(model, family, seen, cap)


def check_rows(model, family, seen, cap):
    """Each row computed with a cache is the row of one forward over the whole text."""
    calls = [c for c in cap.calls if "encoder." not in c.module_name.split("decoder")[0]]
    whole = {"input_ids": seen[:, :-1]}
    if family in PAIRS:
        whole = BEGINNING | {"decoder_input_ids": seen[:, :-1]}
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
    if family == "Mistral":
        last = [c for c in calls if c.step == 4]
        assert {(c.query_offset, c.key_offset, c.call.keys) for c in last} == {(9, 6, 4)}


def test_a_static_cache_that_slides_does_not_overwrite_records():
    model = model_of("Mistral")
    with capture(model) as cap:
        model.generate(
            **BEGINNING,
            max_new_tokens=5,
            do_sample=False,
            pad_token_id=0,
            cache_implementation="static",
            disable_compile=True,
        )
    assert max(verify(c) for c in cap.calls) <= TOLERANCE


def test_everything_is_restored_also_after_an_exception():
    model = model_of("Llama")
    before = AttentionInterface.__dict__["get_interface"]

    def fails():
        assert AttentionInterface.__dict__["get_interface"] is not before
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), capture(model):
        fails()
    assert AttentionInterface.__dict__["get_interface"] is before


def test_nested_captures_and_captures_that_end_out_of_order():
    model, other = model_of("Llama"), model_of("Mistral")
    before = AttentionInterface.__dict__["get_interface"]
    started, ended = threading.Event(), threading.Event()
    found = []

    def elsewhere():
        with capture(other) as cap:
            started.set()
            ended.wait(30)
            other(**TEXT)
        found.append(cap)

    thread = threading.Thread(target=elsewhere)
    with capture(model) as outer, capture(model.model) as inner:
        thread.start()
        started.wait(30)
        model(**TEXT)
    ended.set()
    thread.join()
    assert [len(cap.calls) for cap in (outer, inner, *found)] == [4, 4, 4]
    assert {c.route for cap in (outer, inner, *found) for c in cap.calls} == {"interface"}
    assert outer.calls[0].module_name == "model.layers.0.self_attn"
    assert inner.calls[0].module_name == "layers.0.self_attn"
    assert AttentionInterface.__dict__["get_interface"] is before


def test_other_models_and_threads_are_not_recorded():
    model, other = model_of("Llama"), model_of("Mistral")
    with capture(model) as cap:
        other(**TEXT)
        thread = threading.Thread(target=lambda: model(**TEXT))
        thread.start()
        thread.join()
    assert cap.calls == []


def test_dropout_and_the_random_state_are_untouched():
    model = built(FAMILIES["BERT"]).train()
    torch.manual_seed(3)
    plain, state = main_output(model(**TEXT)), torch.get_rng_state()
    torch.manual_seed(3)
    with capture(model) as cap:
        seen = main_output(model(**TEXT))
    assert torch.equal(plain, seen)
    assert torch.equal(state, torch.get_rng_state())
    assert {c.dropout for c in cap.calls} == {0.1}


@pytest.mark.filterwarnings("ignore:.*deprecated.*")  # its new name is not in every version
def test_a_block_that_runs_again_in_the_backward_pass_is_one_call():
    model = built(FAMILIES["Llama"]).train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    with capture(model) as cap:
        model(**TEXT).logits.sum().backward()
    assert len(cap.calls) == 4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types(dtype):
    model = built(FAMILIES["Llama"]).to(dtype)
    with torch.no_grad(), capture(model) as cap:
        model(**TEXT)
    assert cap.calls[0].call.query.dtype == dtype
    assert 0 < max(verify(c) for c in cap.calls) <= TOLERANCES[dtype]


def test_a_model_without_attention_weights_says_so():
    config = transformers.MambaConfig(hidden_size=32, num_hidden_layers=2, vocab_size=64)
    model = transformers.MambaForCausalLM(config)
    with torch.no_grad(), capture(model) as cap:
        model(torch.ones(1, 5, dtype=torch.long))
    with pytest.raises(CaptureError, match="no softmax attention ran in MambaForCausalLM"):
        cap.require()
