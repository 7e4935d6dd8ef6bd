"""What is said of each layer of many families, and nothing that cannot be known."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from attnscope.attention.call import AttentionCall
from attnscope.attention.masks import CAUSAL, from_tensor
from attnscope.attention.verify import ObservedCall
from attnscope.sources.capture import CaptureError, capture
from attnscope.sources.model import layers as module
from attnscope.sources.model.architecture import Kind
from attnscope.sources.model.cut import cut
from attnscope.sources.model.layers import survey_layers, visible_share
from attnscope.sources.model.loaded import LoadedModel, load_model
from attnscope.sources.model.place import find_model
from attnscope.sources.model.positions import positions_of
from attnscope.text.tokens import Tokens, Vocabulary
from tests.sources import tiny_models as tiny
from tests.sources.families import WITHOUT
from tests.sources.matrix import built, model_of

LENGTH = 12


def tokens(length=LENGTH):
    ids = torch.randint(3, 64, (length,), generator=torch.Generator().manual_seed(1)).tolist()
    labels = tuple(str(i) for i in ids)
    nothing = (False,) * length
    vocabulary = Vocabulary("file", "", 64, 64, {}, True)
    return Tokens("", labels, labels, tuple(ids), ((0, 0),) * length, nothing, nothing, vocabulary)


def surveyed(model, length=LENGTH, kind=Kind.DECODER):
    tokenizer = SimpleNamespace(pad_token_id=0, bos_token_id=1)
    loaded = LoadedModel(
        model, tokenizer, None, kind, "m", None, torch.float32, torch.device("cpu")
    )
    return survey_layers(loaded, tokens(length))


def facts(name, **more):
    return surveyed(model_of(name), **more).layers


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("GPT-2", [("causal", None, "learned")] * 2),
        ("Llama", [("causal", None, "rope θ 10000")] * 2),
        ("GPT-NeoX", [("causal", None, "rope θ 10000, 25 % of the width")] * 2),
        ("Mistral", [("window 4", None, "rope θ 10000")] * 2),
        ("Gemma 2", [("window 4", None, "rope θ 10000"), ("causal", None, "rope θ 10000")]),
        ("BLOOM", [("causal", None, "unknown")] * 2),  # observed: its bias is inside the scores
        ("Llama 4, text", [("causal chunks 8", None, "rope θ 500000"), ("causal", None, "none")]),
        ("XGLM", [("causal", None, "sinusoidal")] * 2),
    ],
)
def test_masks_and_positions(name, expected):
    found = [(one.sees, one.limit, one.positions) for one in facts(name)]
    assert found == expected


def test_a_window_that_the_text_does_not_fill_is_said_of_the_configuration():
    found = [(one.sees, one.limit) for one in facts("Mistral", length=4)]
    assert found == [("causal", "window 4")] * 2
    found = [(one.sees, one.limit) for one in facts("Gemma 2", length=4)]
    assert found == [("causal", "window 4"), ("causal", None)]
    found = [(one.sees, one.limit) for one in facts("Llama 4, text", length=4)]
    assert found == [("causal", "chunks 8"), ("causal", None)]


def test_what_an_encoder_sees():
    (first, _) = surveyed(model_of("BERT"), kind=Kind.ENCODER).layers
    assert (first.sees, first.positions, first.share) == ("full", "learned", 1.0)
    assert first.module_class == "BertSelfAttention"


def test_numbers_of_a_layer():
    (first, second) = facts("Gemma 2")
    config = model_of("Gemma 2").config
    assert (first.heads, first.key_heads) == (4, 2)
    assert first.d_key == first.d_value == config.head_dim
    assert first.scale == pytest.approx(config.query_pre_attn_scalar**-0.5)
    assert first.softcap == config.attn_logit_softcapping
    assert (first.sinks, first.bias) == (False, False)
    assert second.share == pytest.approx((LENGTH + 1) / 2 / LENGTH)
    assert first.share == pytest.approx((1 + 2 + 3 + 4 * (LENGTH - 3)) / LENGTH**2)
    assert (first.site.name, first.site.module_name) == ("0", "model.layers.0.self_attn")
    assert first.site.proven


def test_learned_sinks():
    assert all(one.sinks for one in facts("gpt-oss"))
    assert not any(one.sinks for one in facts("Llama"))


def test_keys_wider_than_values():
    first = facts("DeepSeek-V3")[0]
    assert first.d_key != first.d_value


def test_one_token_shows_no_mask():
    assert {one.sees for one in facts("Llama", length=1)} == {"unknown: one token"}


@pytest.mark.parametrize(
    ("name", "mixer", "kind"),
    [
        ("Jamba", "JambaMambaMixer", "none"),
        ("Qwen3-Next", "Qwen3NextGatedDeltaNet", "linear"),
        ("LFM2", "Lfm2ShortConv", "none"),
    ],
)
def test_blocks_without_attention(name, mixer, kind):
    survey = surveyed(model_of(name))
    (block,) = survey.without
    assert (block.name, block.layer, block.mixer, block.kind) == (
        "model.layers.0", 0, mixer, kind,
    )  # fmt: skip
    assert survey.in_order() == [block, *survey.layers]
    assert survey.layers[0].site.layer == 1


def test_a_model_without_attention_is_an_error():
    with pytest.raises(CaptureError, match="no softmax attention"):
        surveyed(built(WITHOUT["Mamba"]))


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_encoder_decoders(tmp_path, name):
    loaded = load_model(find_model(str(tiny.FOLDERS[name](tmp_path / name))))
    text = cut(loaded, "the cat sat on the mat")
    target = cut(loaded, "a dog ran home", target=True)
    survey = survey_layers(loaded, text, target)
    sees = {one.site.part: one.sees for one in survey.layers}
    assert sees == {"encoder": "full", "decoder": "causal", "cross": "cross"}
    assert len(survey.in_order()) == 6
    positions = {one.site.part: one.positions for one in survey.layers}
    if name == "t5":
        assert positions == {"encoder": "bias", "decoder": "bias", "cross": "none"}
    else:
        assert set(positions.values()) == {"learned"}
    assert survey.source_tokens == len(text)


def test_share_of_visible_cells():
    zeros = torch.zeros(2, 5, 4)
    call = AttentionCall(zeros, torch.zeros(1, 5, 4), torch.zeros(1, 5, 4), mask=CAUSAL)
    assert visible_share(call) == pytest.approx(15 / 25)
    seen = torch.rand(2, 5, 5, generator=torch.Generator().manual_seed(0)) > 0.5
    by_head = AttentionCall(zeros, zeros, zeros, mask=from_tensor(seen))
    assert visible_share(by_head) == pytest.approx(float(seen.double().mean()))
    weights = torch.ones(2, 5, 5) / 5
    assert torch.isnan(torch.tensor(visible_share(ObservedCall(weights, zeros))))
    scores = torch.zeros(2, 5, 5).masked_fill(~seen, -torch.inf)
    assert visible_share(ObservedCall(weights, zeros, scores)) == pytest.approx(
        float(seen.double().mean())
    )


def test_shares_are_counted_in_blocks(monkeypatch):
    monkeypatch.setattr(module, "_ROWS", 2)
    zeros = torch.zeros(1, 5, 4)
    assert visible_share(AttentionCall(zeros, zeros, zeros, mask=CAUSAL)) == pytest.approx(0.6)


def test_rotary_angles_are_not_said_of_cross_attention():
    model = model_of("Llama")
    with capture(model) as cap, torch.no_grad():
        model(torch.tensor([[3, 4, 5]]))
    assert positions_of(model, cap.calls[0], bias=False) == "rope θ 10000"
    crossed = replace(cap.calls[0], kind="cross")
    assert positions_of(model, crossed, bias=False) == "unknown"
