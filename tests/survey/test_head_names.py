"""When a head gets a name, and in which order heads are shown."""

import math
from dataclasses import replace

import pytest

from attnscope.attention.head_scores import MEASURES as MEASURED
from attnscope.errors import OptionError
from attnscope.run import Site
from attnscope.survey.heads import (
    LEAST,
    MEASURES,
    Head,
    HeadOptions,
    HeadSurvey,
    Kind,
    Ranking,
    Score,
    check_measured,
    counts_of,
    names_of,
    nonfinite,
    ranked,
)
from attnscope.views.heads_parts import parts_of_heads
from attnscope.views.look import Look

SITE = Site("3", 3, "", "layers.3", 0, "sdpa", 0.0, 1e-5)


def scores(**values):
    """Return scores of 0 against a chance of 0.1, but for those that are given."""
    found = {name: Score(0.0, 0.1, 0.1, 9) for name in MEASURES}
    return found | {
        name: value if isinstance(value, Score) else Score(value, 0.1, 0.1, 9)
        for name, value in values.items()
    }


def head(number, probe=None, **values):
    mine = scores(**values)
    return Head(SITE, number, number, mine, Score(1.0), probe or {}, names_of(mine, probe or {}))


def survey(*heads):
    return HeadSurvey("m", (), HeadOptions(), heads, (SITE,))


def kinds(**values):
    return [name.kind for name in names_of(scores(**values), {})]


def test_measures_are_those_that_are_computed():
    assert tuple(MEASURES) == MEASURED


@pytest.mark.parametrize("kind", Kind)
def test_a_head_is_named_from_so_far_above_chance_on(kind):
    enough = 0.1 + LEAST[kind] * 0.9
    assert kinds(**{kind: enough + 1e-9}) == [kind]
    assert kinds(**{kind: enough - 1e-6}) == []


def test_random_tokens_are_chance_only_for_what_depends_on_tokens():
    assert kinds(same=Score(0.8, 0.8, 0.1)) == []
    assert kinds(induction=Score(0.8, 0.75, 0.1)) == []
    assert kinds(previous=Score(0.8, 0.8, 0.1)) == ["previous"]
    assert kinds(same=Score(0.8, None, None)) == ["same"]
    assert kinds(same=Score(0.8, math.nan, 0.1)) == ["same"]


def test_no_name_without_a_number():
    assert kinds(previous=Score()) == []
    assert kinds(previous=Score(math.nan, 0.1, 0.1)) == []
    assert kinds(first=Score(1.0, 1.0, 1.0)) == []  # a row of one key has no choice


def test_the_farthest_from_chance_comes_first():
    assert kinds(previous=0.5, first=0.9) == ["first", "previous"]
    assert kinds(previous=Score(0.8, 0.1, 0.7), same=0.7) == ["same", "previous"]


def test_special_and_local_are_names_of_last_resort():
    assert kinds(special=0.9, first=0.8) == ["first"]
    assert kinds(special=0.9, previous=0.5) == ["special", "previous"]
    assert kinds(local=0.9, previous=0.5) == ["previous"]


def test_the_probe_speaks_where_it_shows_more():
    probe = {"induction": Score(0.8, None, 0.02), "previous": Score(0.0)}
    (name,) = names_of(scores(induction=0.6), probe)
    assert (name.kind, name.value, name.probed) == ("induction", 0.8, True)
    (name,) = names_of(scores(induction=0.9), probe)
    assert (name.value, name.probed) == (0.9, False)


def test_order_by_name():
    heads = (
        head(0),
        head(1, first=0.99),
        head(2, local=0.95),
        head(3, previous=0.5),
        head(4, same=0.8),
    )
    shown = ranked(survey(*heads), Ranking())
    assert [one.head for one in shown.heads] == [4, 3, 2, 1, 0]
    assert counts_of(heads) == {"previous": 1, "same": 1, "first": 1, "local": 1, "none": 1}
    assert [one.head for one in ranked(survey(*heads), Ranking("layer")).heads] == [0, 1, 2, 3, 4]


def test_order_by_a_measure_and_what_is_left_out():
    heads = (head(0, entropy=0.3), head(1, entropy=2.0), head(2, entropy=Score()))
    assert [one.head for one in ranked(survey(*heads), Ranking("entropy")).heads] == [1, 0, 2]
    some = ranked(survey(*heads), Ranking("entropy", least=0.5))
    assert [one.head for one in some.heads] == [1]
    nan = ranked(survey(*heads, head(3, entropy=math.nan)), Ranking("entropy", least=9.0))
    assert [one.head for one in nan.heads] == [3]


def test_only_one_kind():
    heads = (head(0, first=0.9, previous=0.5), head(1, first=0.9), head(2))
    for only, expected in (("previous", [0]), ("first", [0, 1]), ("none", [2])):
        found = ranked(survey(*heads), Ranking(only=only)).heads
        assert [one.head for one in found] == expected


def test_least_is_about_the_name_unless_sorted_otherwise():
    heads = (head(0, previous=0.5), head(1, previous=0.9))
    for sort in ("name", "layer"):
        assert [h.head for h in ranked(survey(*heads), Ranking(sort, least=0.8)).heads] == [1]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Ranking("size\x1b"), ["size␛", "entropy"]),
        (lambda: Ranking(only="sink\x1b"), ["sink␛", "previous"]),
        (lambda: Ranking(limit=0), ["0", "1 or more"]),
        (lambda: HeadOptions(seed=2**64), [str(2**64), "64 bits"]),
        (lambda: Ranking(least=math.nan), ["--min nan", "finite"]),
        (lambda: Ranking(least=-math.inf), ["--min -inf", "finite"]),
        (lambda: check_measured(Ranking("probe"), HeadOptions()), ["probe", "--probe"]),
        (
            lambda: check_measured(Ranking("first"), HeadOptions(no_sink=True)),
            ["--no-sink", "--sort first"],
        ),
        (
            lambda: check_measured(Ranking(only="first"), HeadOptions(no_sink=True)),
            ["--no-sink", "--only first"],
        ),
    ],
)
def test_mistakes_name_the_value(make, words):
    with pytest.raises(OptionError) as error:
        make()
    assert all(word in str(error.value) for word in words)


def test_numbers_that_are_none_are_counted():
    assert nonfinite(head(0)) == 0
    odd = head(0, probe={"induction": Score(math.inf)}, previous=math.nan)
    assert nonfinite(odd) == 2
    assert head(0, entropy=0.0).effective_keys == 1.0
    assert head(0, entropy=Score()).effective_keys is None


def test_a_hybrid_says_how_many_layers_have_attention():
    hybrid = replace(survey(head(0)), without=("layers.0", "layers.1", "layers.2"))
    title = next(iter(parts_of_heads(hybrid, Look()))).text
    assert "1 of 4 layers have attention" in title
    chosen = replace(hybrid, options=HeadOptions("3"))
    assert "· 1 layer ·" in next(iter(parts_of_heads(chosen, Look()))).text
