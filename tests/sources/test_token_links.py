"""What a token attends to and who attends to it, against the dense weights of the same run."""

from dataclasses import replace

import pytest
import torch

from attnscope.errors import OptionError
from attnscope.model_run import result_of
from attnscope.sources.model import links as module
from attnscope.sources.model.cut import cut
from attnscope.sources.model.loaded import load_model
from attnscope.sources.model.place import find_model
from attnscope.sources.model.watch import run_texts
from attnscope.survey.tokens import Direction, LinkOptions
from attnscope.text.whole_words import words_of
from tests.sources import tiny_models as tiny

TEXT = "the cat sat on the mat because Zebras ran"
EVERY = 10_000


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root = tmp_path_factory.mktemp("links")
    return {
        name: load_model(find_model(str(save(root / name))), dtype="float64")
        for name, save in tiny.FOLDERS.items()
    }


def asked(loaded, token, direction=Direction.TOP, text=TEXT, targets=None, **more):
    options = LinkOptions(direction, token, **{"limit": EVERY, **more})
    (survey,) = module.survey_tokens(loaded, [cut(loaded, text)], targets, options)
    return survey


def dense(loaded, text=TEXT, no_first=False):
    """Return {layer name: weights} of one text, without the first key if asked."""
    (run,) = run_texts(loaded, [cut(loaded, text)])
    found = {}
    for call in run.calls:
        weights = result_of(call).weights
        if no_first:
            weights = weights.clone()
            weights[..., 0] = 0.0
            weights = weights / weights.sum(-1, keepdim=True)
        found[call.site.name] = weights
    return found


def as_table(focus):
    return {(x.site.name, x.head, x.place.positions): x.weight for x in focus.links}


@pytest.mark.parametrize("no_sink", [False, True])
@pytest.mark.parametrize("direction", Direction)
def test_every_weight_of_a_row_or_a_column(models, direction, no_sink):
    loaded = models["decoder"]
    tokens = cut(loaded, TEXT)
    survey = asked(loaded, "3", direction, no_sink=no_sink)
    (focus,) = survey.focuses
    assert focus.place.positions == (3,)
    weights, plain = dense(loaded, no_first=no_sink), dense(loaded)
    expected = {}
    for name, one in weights.items():
        line = one[:, 3] if direction is Direction.TOP else one[:, :, 3]
        for head in range(4):
            for i in range(len(tokens)):
                seen = i <= 3 if direction is Direction.TOP else i >= 3
                left_out = no_sink and (i == 0 and direction is Direction.TOP)
                if seen and not left_out:
                    expected[name, head, (i,)] = float(line[head, i])
    found = as_table(focus)
    assert found.keys() == expected.keys()
    assert all(found[key] == pytest.approx(expected[key], abs=1e-10) for key in found)
    shown = [link.weight for link in focus.links]
    assert shown == sorted(shown, reverse=True)
    assert max(shown) > 0.3
    for link in focus.links:
        row = 3 if direction is Direction.TOP else link.place.positions[0]
        assert link.first == pytest.approx(float(plain[link.site.name][link.head, row, 0]))
        assert link.key_head == link.head // 2
    assert focus.heads == 8
    means = {place.positions: mean for place, mean in focus.means}
    for positions, mean in means.items():
        total = sum(w for (_, _, p), w in expected.items() if p == positions)
        assert mean == pytest.approx(total / 8, abs=1e-10)


def test_words_are_means_over_queries_and_sums_over_keys(models):
    loaded = models["decoder"]
    tokens = cut(loaded, TEXT)
    words = words_of(tokens)
    word = next(w for w in words if tokens.text[tokens.spans[w[0]][0] :].strip().startswith("Zeb"))
    assert len(word) > 1
    weights = dense(loaded)
    for direction in Direction:
        (focus,) = asked(loaded, "Zebras", direction, words=True).focuses
        assert (focus.place.positions, focus.place.label) == (word, "Zebras")
        for link in focus.links:
            rows, keys = word, link.place.positions
            if direction is Direction.WHO:
                rows, keys = keys, rows
            block = weights[link.site.name][link.head][list(rows)][:, list(keys)]
            assert link.weight == pytest.approx(float(block.sum()) / len(rows), abs=1e-10)
    top = asked(loaded, "Zebras", words=True).focuses[0]
    by_head = {}
    for link in top.links:
        by_head.setdefault((link.site.name, link.head), []).append(link.weight)
    assert all(sum(row) == pytest.approx(1.0) for row in by_head.values())


def test_every_place_of_a_word(models):
    loaded = models["decoder"]
    tokens = cut(loaded, TEXT)
    places = [i for i in range(len(tokens)) if tokens.source(i).strip() == "the"]
    assert len(places) == 2
    survey = asked(loaded, "the")
    assert [focus.place.positions for focus in survey.focuses] == [(i,) for i in places]


def test_the_strongest_few_are_those_of_all(models):
    loaded = models["decoder"]
    every = asked(loaded, "3").focuses[0].links
    some = asked(loaded, "3", limit=3).focuses[0].links
    assert some == every[:3]


def test_layers_and_heads(models):
    loaded = models["decoder"]
    every = asked(loaded, "3").focuses[0].links
    some = asked(loaded, "3", layer="1", head=2).focuses[0]
    assert some.links == tuple(x for x in every if (x.site.name, x.head) == ("1", 2))
    assert some.heads == 1
    survey = asked(loaded, "3", layer="1")
    assert [site.name for site in survey.sites] == ["1"]


def test_without_the_first_token_it_is_not_asked_about(models):
    who = {"direction": Direction.WHO, "no_sink": True}
    with pytest.raises(OptionError, match='first token out, and --token "0" is it'):
        asked(models["decoder"], "0", **who)
    # "the" stands at 0 and 4: what is said is said of the second
    (focus,) = asked(models["decoder"], "the", **who).focuses
    assert focus.place.positions == (4,)
    with pytest.raises(OptionError, match='"0" sees nothing but the first token'):
        asked(models["decoder"], "0", no_sink=True)
    (focus,) = asked(models["encoder"], "0", no_sink=True).focuses
    assert focus.links
    with pytest.raises(OptionError, match="nothing of a text of 1 token"):
        asked(models["decoder"], "0", text="a", no_sink=True)


@pytest.mark.parametrize("kind", ["t5", "bart"])
def test_encoder_decoders_ask_each_part_that_has_the_token(models, kind):
    loaded = models[kind]
    target = cut(loaded, "a dog ran", target=True)
    text = "the cat sat"
    top = asked(loaded, "cat", text=text, targets=[target], words=True)
    assert {focus.part for focus in top.focuses} == {"encoder"}
    who = asked(loaded, "cat", Direction.WHO, text=text, targets=[target], words=True)
    assert {focus.part for focus in who.focuses} == {"encoder", "cross"}
    dog = asked(loaded, "dog", text=text, targets=[target], words=True)
    assert {focus.part for focus in dog.focuses} == {"decoder", "cross"}
    (run,) = run_texts(loaded, [cut(loaded, text)], [target])
    cross = next(focus for focus in dog.focuses if focus.part == "cross")
    for link in cross.links:
        weights = result_of(run.find(link.site.name)[0]).weights[link.head]
        block = weights[list(cross.place.positions)][:, list(link.place.positions)]
        expected = float(block.sum()) / len(cross.place.positions)
        assert link.weight == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize(
    ("token", "more", "words"),
    [
        ("zebu\x1b", {}, ["zebu␛", "is not a token", "cat"]),
        ("99", {}, ["99", "out of range"]),
        ("-1", {}, ["-1", "out of range"]),
        ("cat", {"layer": "9"}, ["9", "no layer"]),
        ("cat", {"head": 4}, ["4", "0 to 3"]),
    ],
)
def test_mistakes_are_said_before_the_text_runs(models, monkeypatch, token, more, words):
    monkeypatch.setattr(module, "measure", None)
    with pytest.raises(OptionError) as error:
        asked(models["decoder"], token, **more)
    assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize("more", [{"limit": 0}, {"head": -1}])
def test_options_out_of_range(more):
    with pytest.raises(OptionError):
        LinkOptions(Direction.TOP, "a", **more)


def test_a_token_that_chosen_layers_do_not_read(models):
    loaded = models["bart"]
    target = cut(loaded, "a dog ran", target=True)
    with pytest.raises(OptionError, match="in no text that these layers read"):
        asked(loaded, "dog", targets=[target], layer="encoder", words=True)


def test_a_nan_comes_first(models, monkeypatch):
    plain = module.strip

    def spoiled(*arguments):
        weights, seen = plain(*arguments)
        weights[1, 0, 2] = torch.nan
        return weights, seen

    monkeypatch.setattr(module, "strip", spoiled)
    links = asked(models["decoder"], "3", limit=5).focuses[0].links
    assert [link.weight != link.weight for link in links] == [True, True, False, False, False]


def test_several_texts_are_several_documents(models):
    loaded = models["decoder"]
    texts = [cut(loaded, text) for text in (TEXT, "a cat ran")]
    options = LinkOptions(Direction.TOP, "cat")
    surveys = module.survey_tokens(loaded, texts, None, options)
    assert [survey.text for survey in surveys] == [TEXT, "a cat ran"]
    with pytest.raises(OptionError, match="is not a token"):
        module.survey_tokens(loaded, texts, None, replace(options, token="Zebras", words=True))
