"""`heads`, `top`, `who` and `layers` on real models, whose heads are known."""

import pytest

from tests import real_models
from tests.sources.models import transformers_or_skip

transformers_or_skip()

FOX = "The quick brown fox jumps over the lazy dog. The quick brown fox"
CAT = "The cat sat on the mat because it was tired"


@pytest.fixture(autouse=True)
def _no_hub(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def heads_of(document):
    return {(head["layer"], head["head"]): head for head in document["heads"]}


def test_smollm2_has_previous_token_and_induction_heads(cli):
    model = real_models.smollm2()
    done = cli("heads", FOX, "--model", model, "--layer", "16-18", "--probe", "--json", "--strict")
    assert done.code == 0, done.err
    heads = heads_of(done.json)
    previous = heads["16", 0]
    assert previous["previous"]["value"] == pytest.approx(0.85, abs=0.01)
    assert previous["name"] == "previous-token 0.85"
    assert previous["previous"]["uniform"] < 0.2
    induction = heads["18", 6]
    assert induction["probe"]["induction"]["value"] == pytest.approx(0.80, abs=0.06)
    assert induction["probe"]["induction"]["uniform"] < 0.03
    assert induction["name"].startswith("induction 0.8")
    assert induction["name"].endswith("(probe)")
    # on this text it rests on the first token most of the time
    assert [name["kind"] for name in induction["names"]] == ["induction", "first token"]
    for head in (3, 4, 5):
        assert heads["17", head]["key_head"] == 1
        assert heads["17", head]["probe"]["induction"]["value"] > 0.3
    # without the first token, what is left of the row goes to what followed
    rest = cli("heads", FOX, "--model", model, "--layer", "17", "--no-sink", "--json")
    induction = heads_of(rest.json)["17", 4]
    assert induction["induction"]["value"] > 0.9
    assert induction["induction"]["control"] < 0.2


def test_minilm_has_a_perfect_previous_token_head(cli):
    done = cli("heads", FOX, "--model", real_models.minilm(), "--layer", "0", "--json", "--strict")
    assert done.code == 0, done.err
    head = heads_of(done.json)["0", 2]
    assert head["previous"]["value"] == pytest.approx(1.0, abs=1e-3)
    assert head["previous"]["control"] == pytest.approx(1.0, abs=1e-3)
    assert done.json["heads"][0] == head
    assert head["special"]["value"] < 0.2


def test_who_and_top_ask_one_weight_from_both_ends(cli):
    model = real_models.smollm2()
    top = cli("top", CAT, "--model", model, "--token", "it", "--no-sink", "--json", "--layer", "18")
    assert top.code == 0, top.err
    (focus,) = top.json["tokens"]
    assert focus["label"] == "␠it"
    cat = next(link for link in focus["links"] if link["label"] == "␠cat")
    assert cat["head"] == 8
    assert cat["weight"] > 0.9
    assert cat["first_token"] > 0.99
    who = cli("who", CAT, "--model", model, "--token", "cat", "--no-sink", "--json",
              "--layer", "18", "--limit", "500")  # fmt: skip
    same = [link for link in who.json["tokens"][0]["links"]
            if link["label"] == "␠it" and link["head"] == 8]  # fmt: skip
    assert same[0]["weight"] == pytest.approx(cat["weight"], abs=1e-6)


def test_the_truth_about_layers(cli):
    done = cli("layers", "--model", real_models.smollm2(), "--json", "--strict")
    assert done.code == 0, done.err
    layers = done.json["layers"]
    assert len(layers) == 30
    for layer in layers:
        assert (layer["heads"], layer["key_heads"], layer["d_key"]) == (9, 3, 64)
        assert (layer["sees"], layer["positions"]) == ("causal", "rope θ 100000")
        assert layer["scale"] == pytest.approx(0.125)
        assert layer["proof"]["holds"]
    encoder = cli("layers", "--model", real_models.minilm(), "--json").json["layers"]
    assert [(x["sees"], x["positions"], x["visible_share"]) for x in encoder] == [
        ("full", "learned", 1.0)
    ] * 6
