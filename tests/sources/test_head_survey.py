"""What a survey says of the heads of tiny models, against the dense weights of the same runs."""

import math
from dataclasses import replace

import pytest
import torch

from attnscope.attention.gathered import uniform_like
from attnscope.errors import OptionError
from attnscope.model_run import result_of
from attnscope.sources.model import survey as module
from attnscope.sources.model.control import Draws, ordinary_ids
from attnscope.sources.model.cut import cut
from attnscope.sources.model.loaded import load_model
from attnscope.sources.model.place import find_model
from attnscope.sources.model.survey import survey_heads
from attnscope.sources.model.watch import run_texts
from attnscope.survey.heads import MEASURES, HeadOptions
from tests.attention.test_head_scores import naive
from tests.sources import tiny_models as tiny

TEXT = "the cat sat on the mat because the cat was tired and the dog ran"
OPTIONS = HeadOptions(window=3, seed=5)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root = tmp_path_factory.mktemp("surveys")
    return {
        name: load_model(find_model(str(save(root / name))), dtype="float64")
        for name, save in tiny.FOLDERS.items()
    }


def dense(loaded, tokens, target=None, named=None, no_first=False):
    """Return the naive means of each head, by the tokens of `named`."""
    (run,) = run_texts(loaded, [tokens], None if target is None else [target])
    found = {}
    for call in run.calls:
        result = result_of(call)
        axis = (named or tokens) if target is None else None
        length = result.weights.shape[2]
        ids = range(length) if axis is None else axis.ids
        special = [False] * length if axis is None else axis.special
        found[call.site.name] = naive(result.weights, result.visible, ids, special, no_first)
    return found


def naive_as(name, found):
    numbers = found[name]
    return sum(numbers) / len(numbers) if numbers else None


@pytest.mark.parametrize("no_sink", [False, True])
@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_values_and_controls_are_means_of_dense_weights(models, monkeypatch, kind, no_sink):
    monkeypatch.setattr("tests.attention.test_head_scores.LOCAL", 3)
    loaded = models[kind]
    tokens = cut(loaded, TEXT)
    survey = survey_heads(loaded, [tokens], None, replace(OPTIONS, no_sink=no_sink))
    control = Draws(loaded, 5).control(tokens)
    mine = dense(loaded, tokens, no_first=no_sink)
    random = dense(loaded, control, named=tokens, no_first=no_sink)
    heads = loaded.model.config.num_attention_heads
    assert len(survey.heads) == 2 * heads
    any_special = any(tokens.special[1:] if no_sink else tokens.special)
    for head in survey.heads:
        for name in MEASURES:
            score = head.scores[name]
            expected = naive_as(name, mine[head.site.name][head.head])
            beside = naive_as(name, random[head.site.name][head.head])
            if name == "special" and not any_special:
                expected = beside = None
            assert score.value == pytest.approx(expected, abs=1e-9), name
            assert score.control == pytest.approx(beside, abs=1e-9), name
        assert head.most.value == pytest.approx(max(mine[head.site.name][head.head]["largest"]))
    assert survey.warnings == ()
    assert all(site.proven for site in survey.sites)


def test_what_is_measured_is_peaked(models):
    survey = survey_heads(models["decoder"], [cut(models["decoder"], TEXT)], None, OPTIONS)
    largest = [head.scores["largest"].value for head in survey.heads]
    assert sum(largest) / len(largest) > 0.3


def test_uniform_is_what_even_rows_give(models):
    loaded = models["decoder"]
    tokens = cut(loaded, TEXT)
    survey = survey_heads(loaded, [tokens], None, OPTIONS)
    n = len(tokens)
    for head in survey.heads:
        first, previous = head.scores["first"].uniform, head.scores["previous"].uniform
        assert first == pytest.approx(sum(1 / i for i in range(1, n + 1)) / n)
        assert previous == pytest.approx(sum(1 / i for i in range(2, n + 1)) / (n - 1))
        entropy = sum(math.log(i) for i in range(1, n + 1)) / n
        assert head.scores["entropy"].uniform == pytest.approx(entropy)


def test_rules_are_asked_for_even_rows_once(models, monkeypatch):
    asked = []
    monkeypatch.setattr(
        module, "uniform_like", lambda call: asked.append(call) or uniform_like(call)
    )
    survey_heads(models["decoder"], [cut(models["decoder"], TEXT)], None, OPTIONS)
    assert len(asked) == 1


def test_heads_name_the_key_head_they_share(models):
    loaded = models["decoder"]
    survey = survey_heads(loaded, [cut(loaded, TEXT)], None, OPTIONS)
    heads, key_heads = (
        loaded.model.config.num_attention_heads,
        loaded.model.config.num_key_value_heads,
    )
    assert key_heads < heads
    for head in survey.heads:
        assert head.key_head == head.head // (heads // key_heads)


def test_several_texts_are_means_over_all_rows(models):
    loaded = models["decoder"]
    texts = [cut(loaded, text) for text in (TEXT, "a dog ran home")]
    both = survey_heads(loaded, texts, None, OPTIONS)
    one, two = (survey_heads(loaded, [text], None, OPTIONS) for text in texts)
    assert [text.tokens for text in both.texts] == [len(text) for text in texts]
    for a, b, c in zip(both.heads, one.heads, two.heads, strict=True):
        for name in ("entropy", "previous", "induction"):
            x, y = b.scores[name], c.scores[name]
            expected = (x.value or 0.0) * x.rows + (y.value or 0.0) * y.rows
            assert a.scores[name].rows == x.rows + y.rows
            assert a.scores[name].value == pytest.approx(expected / (x.rows + y.rows))


def test_the_probe_repeats_random_tokens_once(models):
    loaded = models["decoder"]
    tokens = Draws(loaded, 5).probe()
    assert tokens.ids[0] == loaded.tokenizer.bos_token_id
    half = (len(tokens) - 1) // 2
    assert tokens.ids[1 : half + 1] == tokens.ids[half + 1 :]
    assert len(set(tokens.ids[1 : half + 1])) == half == 25
    survey = survey_heads(loaded, [cut(loaded, TEXT)], None, replace(OPTIONS, probe=True))
    (run,) = run_texts(loaded, [tokens])
    for head in survey.heads:
        weights = result_of(run.find(head.site.name)[0]).weights[head.head]
        places = [float(weights[i, i - half + 1]) for i in range(half + 1, 2 * half + 1)]
        assert head.probe["induction"].rows == half
        assert head.probe["induction"].value == pytest.approx(sum(places) / half, abs=1e-9)
        before = [float(weights[i, i - 1]) for i in range(1, 2 * half + 1)]
        assert head.probe["previous"].value == pytest.approx(sum(before) / len(before), abs=1e-9)
        assert 0.0 < head.probe["induction"].uniform < 0.04


def test_a_probe_is_no_longer_than_the_model_reads(models):
    short = replace(models["decoder"], context_length=9)
    assert len(Draws(short, 0).probe()) == 9
    assert Draws(models["encoder"], 0).probe().ids[0] in ordinary_ids(models["encoder"])


def test_control_tokens(models):
    loaded = models["encoder"]
    tokens = cut(loaded, "the cat sat on the mat")
    drawn = [Draws(loaded, seed).control(tokens) for seed in (1, 1, 2)]
    assert drawn[0].ids == drawn[1].ids != drawn[2].ids
    ordinary = ordinary_ids(loaded)
    for control in drawn:
        for old, new, special in zip(tokens.ids, control.ids, tokens.special, strict=True):
            assert new == old if special else new in ordinary
    names = loaded.tokenizer.convert_ids_to_tokens(ordinary)
    assert not {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"} & set(names)


@pytest.mark.parametrize("kind", ["t5", "bart"])
def test_encoder_decoders_have_three_parts(models, kind):
    loaded = models[kind]
    text, target = cut(loaded, TEXT), cut(loaded, "a dog was happy", target=True)
    survey = survey_heads(loaded, [text], [target], replace(OPTIONS, probe=True))
    (run,) = run_texts(loaded, [text], [target])
    parts = {head.site.part for head in survey.heads}
    assert parts == {"encoder", "decoder", "cross"}
    for head in survey.heads:
        weights = result_of(run.find(head.site.name)[0]).weights[head.head]
        assert head.scores["first"].value == pytest.approx(float(weights[:, 0].mean()), abs=1e-9)
        crossed = head.site.part == "cross"
        assert (head.scores["previous"].value is None) == crossed
        assert (head.scores["distance"].value is None) == crossed
        assert (head.scores["next"].value is not None) == (head.site.part == "encoder")
        special = [i for i, mark in enumerate(text.special) if mark]
        if crossed:
            mass = float(weights[:, special].sum(dim=1).mean())
            assert head.scores["special"].value == pytest.approx(mass, abs=1e-9)
            assert head.probe == {}
        else:
            assert head.probe["induction"].rows > 0


def test_some_layers_only(models, monkeypatch):
    loaded = models["decoder"]
    measured = []
    plain = module.score_and_prove
    monkeypatch.setattr(
        module,
        "score_and_prove",
        lambda captured, *a, **k: measured.append(captured.layer) or plain(captured, *a, **k),
    )
    tokens = cut(loaded, TEXT)
    some = survey_heads(loaded, [tokens], None, replace(OPTIONS, layer="1"))
    assert measured == [1]
    monkeypatch.undo()
    every = survey_heads(loaded, [tokens], None, OPTIONS)
    assert some.heads == tuple(head for head in every.heads if head.site.layer == 1)
    cross = replace(OPTIONS, layer="cross.1")
    bart = survey_heads(models["bart"], [cut(models["bart"], TEXT)], None, cross)
    assert {site.name for site in bart.sites} == {"cross.1"}


def test_a_layer_that_is_not_there_is_said_before_the_text_runs(models, monkeypatch):
    monkeypatch.setattr(module, "score_and_prove", None)
    with pytest.raises(OptionError, match='--layer "9" is no layer'):
        survey_heads(
            models["decoder"], [cut(models["decoder"], TEXT)], None, replace(OPTIONS, layer="9")
        )


def test_a_layer_that_is_not_proven_is_said(models, monkeypatch):
    plain = module.score_and_prove

    def wrong(captured, *arguments, **more):
        scores, error = plain(captured, *arguments, **more)
        return scores, 0.5 if captured.layer == 1 else error

    monkeypatch.setattr(module, "score_and_prove", wrong)
    survey = survey_heads(models["decoder"], [cut(models["decoder"], TEXT)], None, OPTIONS)
    assert [site.proven for site in survey.sites] == [True, False]
    assert len(survey.warnings) == 1
    assert "layer 1" in survey.warnings[0]


def test_nothing_of_a_call_is_kept(models, monkeypatch):
    kept = []
    plain = module._Survey.text

    def spy(self, captured, sides):
        plain(self, captured, sides)
        kept.extend(self.found.values())

    monkeypatch.setattr(module._Survey, "text", spy)
    survey_heads(models["decoder"], [cut(models["decoder"], TEXT)], None, OPTIONS)
    for one in kept:
        call = one.captured.call
        for tensor in (call.query, call.key, call.value, one.captured.output):
            assert tensor.untyped_storage().nbytes() <= 8


def test_one_token_alone(models):
    loaded = models["decoder"]
    tokens = cut(loaded, "a")
    assert len(tokens) == 1
    survey = survey_heads(loaded, [tokens], None, OPTIONS)
    assert survey.heads[0].scores["entropy"].value == pytest.approx(0.0, abs=1e-12)
    assert survey.heads[0].scores["previous"].value is None
    alone = replace(OPTIONS, no_sink=True)
    with pytest.raises(OptionError, match="nothing of a text of 1 token"):
        survey_heads(loaded, [tokens], None, alone)
    beside = survey_heads(loaded, [tokens, cut(loaded, TEXT)], None, alone)
    assert beside.heads[0].scores["entropy"].value is not None


def test_draws_leave_the_random_state_alone(models):
    before = torch.get_rng_state()
    survey_heads(models["decoder"], [cut(models["decoder"], TEXT)], None, OPTIONS)
    assert torch.equal(torch.get_rng_state(), before)
