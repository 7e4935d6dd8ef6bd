"""Captured calls as documents: steps put together, padding left out, calls named and proven."""

import dataclasses

import pytest
import torch

import attnscope
from attnscope.attention.masks import CAUSAL
from attnscope.attention.verify import verify
from attnscope.errors import OptionError
from attnscope.sources.capture.assemble import Assembly, narrowed

transformers = pytest.importorskip("transformers")
SIZES = {"vocab_size": 100, "hidden_size": 48, "num_attention_heads": 6, "num_hidden_layers": 2}
GENERATE = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "pad_token_id": 0}


def decoder(family="Llama", **more):
    torch.manual_seed(3)
    config = getattr(transformers, f"{family}Config")(
        **SIZES, intermediate_size=64, num_key_value_heads=2, **more
    )
    return peaked(getattr(transformers, f"{family}ForCausalLM")(config))


def peaked(model):
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.3)
    return model.eval()


def ids(count, batch=1):
    return torch.randint(3, 100, (batch, count), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("family", "more", "mask"),
    [("Llama", {}, "causal"), ("Mistral", {"sliding_window": 4}, "window 4")],
)
def test_steps_of_generate_equal_one_forward(family, more, mask):
    model = decoder(family, **more)
    with attnscope.capture(model) as cap:
        out = model.generate(ids(10), **GENERATE)
    run = cap.run
    assert [call.site.name for call in run.calls] == ["0", "1"]
    assert {call.mask_name for call in run.calls} == {mask}
    with attnscope.capture(model) as whole, torch.no_grad():
        model(out[:, :-1])
    for number in (0, 1):
        stitched = run.layer(number).layers[0].weights
        assert stitched.amax(-1).mean() > 0.3
        torch.testing.assert_close(
            stitched, whole.run.layer(number).layers[0].weights, atol=1e-6, rtol=1e-5
        )


def test_a_record_altered_in_one_step_is_not_proven():
    model = decoder()
    with attnscope.capture(model) as cap:
        model.generate(ids(10), **GENERATE)
    assert all(call.site.proven for call in cap.run.calls)
    last = cap.calls[-1]
    cap.calls[-1] = dataclasses.replace(last, output=last.output + 0.1)
    run = cap.run
    assert [call.site.proven for call in run.calls] == [True, False]
    assert "layer 1: the record does not reproduce" in run.warnings[0]


def test_the_biases_of_steps_are_put_together():
    config = transformers.T5Config(
        d_model=32, d_kv=8, d_ff=32, num_layers=2, num_heads=4, vocab_size=100,
        decoder_start_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = peaked(transformers.T5ForConditionalGeneration(config))
    with attnscope.capture(model) as cap:
        model.generate(ids(9), max_new_tokens=5, min_new_tokens=5, do_sample=False)
    run = cap.run
    names = {call.site.name for call in run.calls}
    assert names == {f"{part}.{n}" for part in ("encoder", "decoder", "cross") for n in (0, 1)}
    for call in run.calls:
        assert call.site.proven, call.site
        assert verify(call.captured) < 1e-5
    cross = run.layer(1, "cross")
    assert cross.layers[0].weights.shape == (4, 5, 9)
    assert cross.crossed
    with pytest.raises(OptionError, match=r"encoder\.0, decoder\.0, cross\.0"):
        run.layer(0)


def test_observed_calls_are_put_together_too():
    config = transformers.BloomConfig(hidden_size=32, n_head=4, n_layer=2, vocab_size=100)
    torch.manual_seed(0)
    model = peaked(transformers.BloomForCausalLM(config))
    with attnscope.capture(model) as cap:
        out = model.generate(ids(9), **GENERATE)
    with attnscope.capture(model) as whole, torch.no_grad():
        model(out[:, :-1])
    result = cap.run.layer(1).layers[0]
    assert result.observed
    assert result.scores.isnan().all()
    torch.testing.assert_close(
        result.weights, whole.run.layer(1).layers[0].weights, atol=1e-6, rtol=1e-5
    )


@pytest.mark.parametrize("side", ["left", "right"])
def test_without_its_padding_a_text_is_as_if_alone(side):
    model = decoder()
    lengths, texts = (10, 6), ids(10, batch=2)
    mask = torch.ones(2, 10, dtype=torch.long)
    hidden = slice(0, 4) if side == "left" else slice(6, 10)
    mask[1, hidden] = 0
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    assembly = Assembly(
        lambda call: (
            ((10 - lengths[call.text], 10), (10 - lengths[call.text], 10))
            if side == "left"
            else ((0, lengths[call.text]), (0, lengths[call.text]))
        )
    )
    with attnscope.capture(model, on_call=assembly.take) as cap, torch.no_grad():
        model(texts, attention_mask=mask, position_ids=positions)
    assert cap.calls == []
    assert cap.captured == 4
    for text, records in assembly.texts():
        own = texts[text : text + 1]
        own = own[:, 10 - lengths[text] :] if side == "left" else own[:, : lengths[text]]
        with attnscope.capture(model) as alone, torch.no_grad():
            model(own)
        for (record, error), call in zip(records, alone.calls, strict=True):
            assert error < 1e-5
            assert record.call.mask.name == "causal"
            torch.testing.assert_close(record.call.query, call.call.query, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(record.output, call.output, atol=1e-5, rtol=1e-5)


def test_nothing_is_left_of_a_call_outside_the_text():
    model = decoder()
    with attnscope.capture(model) as cap, torch.no_grad():
        model(ids(6))
    assert narrowed(cap.calls[0], (6, 9), (6, 9)) is None
    assert narrowed(cap.calls[0], (0, 6), (0, 6)) is cap.calls[0]


def test_layers_are_found_by_number_range_name_and_all():
    model = decoder()
    with attnscope.capture(model) as cap, torch.no_grad():
        model(ids(6))
    run = cap.run
    assert [call.site.layer for call in run.find("1, 0")] == [0, 1]
    assert [call.site.layer for call in run.find("0-5")] == [0, 1]
    assert run.find("model.layers.1.self_attn") == run.find("1")
    assert run.find("all") == run.calls
    for wrong in ("2", "x", "", "cross", "-1", "encoder.0"):
        with pytest.raises(OptionError, match="There are: 0, 1; or all"):
            run.find(wrong)


def test_one_head_by_its_number():
    model = decoder()
    with attnscope.capture(model) as cap, torch.no_grad():
        model(ids(6))
    run = cap.run.layer(1)
    head = run.head(4)
    assert head.key_head == 1
    assert torch.equal(head.weights, run.layers[0].weights[4])
    assert torch.equal(head.key, cap.calls[1].call.key[1])
    assert torch.equal(head.value, cap.calls[1].call.value[1])
    torch.testing.assert_close(head.scores, head.query @ head.key.T)
    assert head.context.shape == (6, 8)
    assert head.entropy.shape == (6,)
    with pytest.raises(OptionError, match="--head 6"):
        run.head(6)
    with pytest.raises(OptionError, match="2 layers"):
        cap.run.run_of(cap.run.calls).head(0)


def test_each_forward_is_a_document_of_its_own():
    model = decoder()
    with attnscope.capture(model) as cap, torch.no_grad():
        model(ids(6))
        model(ids(7))
    assert [len(run.queries) for run in cap.runs] == [6, 7]
    with pytest.raises(OptionError, match="2 texts or forwards"):
        _ = cap.run


def test_calls_of_one_module_are_told_apart():
    config = transformers.DiffLlamaConfig(**SIZES, intermediate_size=64, num_key_value_heads=2)
    torch.manual_seed(0)
    model = peaked(transformers.DiffLlamaForCausalLM(config))
    with attnscope.capture(model) as cap, torch.no_grad():
        model(ids(6))
    names = [call.site.name for call in cap.run.calls]
    assert names == ["0#0", "0#1", "1#0", "1#1"]


def test_dropout_is_named_as_the_reason():
    model = decoder(attention_dropout=0.5).train()
    with attnscope.capture(model) as cap, torch.no_grad():
        model(ids(6))
    assert any("dropout 0.5 was on" in line for line in cap.run.warnings)


def test_keys_that_are_no_tokens_are_numbered():
    attention = torch.nn.MultiheadAttention(16, 4, add_bias_kv=True, batch_first=True).eval()
    x = torch.randn(1, 5, 16, generator=torch.Generator().manual_seed(0))
    with attnscope.capture(attention) as cap, torch.no_grad():
        attention(x, x, x, need_weights=False)
    run = cap.run.layer(0)
    assert run.crossed
    assert run.keys.labels == ("k0", "k1", "k2", "k3", "k4", "k5")


def test_masks_keep_their_rule():
    model = decoder()
    with attnscope.capture(model) as cap, torch.no_grad():
        model(ids(6))
    assert cap.run.calls[0].captured.call.mask is CAUSAL
