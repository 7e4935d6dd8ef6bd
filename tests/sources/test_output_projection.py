"""The matrix W_O, found by the numbers that it is given."""

import pytest
import torch

from attnscope.sources.capture import capture
from attnscope.sources.capture.output_projection import OutputProjections
from attnscope.sources.model.cut import cut
from attnscope.sources.model.loaded import load_model
from attnscope.sources.model.place import find_model
from attnscope.sources.model.watch import run_texts
from tests.sources import tiny_models as tiny
from tests.sources.models import WIDTH, Function, handwritten, numbers


def projections_of(model, batch):
    projections = OutputProjections()
    with torch.no_grad(), projections.watching(model), capture(model, on_call=projections.heard):
        model(numbers(batch, 5, WIDTH))
    assert not any(module._forward_pre_hooks for module in model.modules())
    return projections


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("how", ["sdpa", "nanogpt", "einsum"])
def test_it_is_found_however_the_attention_is_written(how, batch):
    model = handwritten(how)
    (found,) = projections_of(model, batch).found.values()
    assert torch.equal(found, model.c_proj.weight.T)


def test_other_numbers_are_not_taken_for_it():
    model = handwritten("nanogpt")
    model.nanogpt = lambda *qkv: type(model).nanogpt(model, *qkv) + 1e-6
    assert projections_of(model, 1).found == {}
    plain = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), Function(torch.relu))
    assert projections_of(plain, 1).found == {}


@pytest.fixture(scope="module")
def bloom(tmp_path_factory):
    tokenizer = tiny.byte_level()
    config = tiny.transformers.BloomConfig(
        hidden_size=32, n_layer=4, n_head=4, vocab_size=tokenizer.get_vocab_size()
    )
    folder = tmp_path_factory.mktemp("bloom")
    tiny.save(folder, tiny.transformers.BloomForCausalLM(config), tokenizer, eos_token="</s>")
    return load_model(find_model(str(folder)))


def test_observed_attention_has_one_too(bloom):
    (run,) = run_texts(bloom, [cut(bloom, "the cat sat")], norms=True)
    assert run.notes == ()
    matrix = bloom.model.transformer.h[1].self_attention.dense.weight.T.reshape(4, 8, 32)
    result = run.layer(1).layers[0]
    expected = (result.call.value @ matrix).norm(dim=-1)
    torch.testing.assert_close(result.projected_lengths, expected)


def test_where_it_is_not_found_a_note_says_so(bloom, monkeypatch):
    place = "attnscope.sources.capture.output_projection._matrix"
    monkeypatch.setattr(place, lambda _: None)
    (run,) = run_texts(bloom, [cut(bloom, "the cat sat")], norms=True)
    (note,) = run.notes
    assert note == "no output projection was found of any call: ‖α·v·W_O‖ is left out"
    assert run_texts(bloom, [cut(bloom, "the cat sat")])[0].notes == ()
