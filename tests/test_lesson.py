"""The lesson's numbers come out of the command line's JSON, to 1e-5."""

import pytest

from tests.conftest import LESSON_SENTENCE, assert_close


@pytest.fixture
def run(cli):
    def go(*options):
        done = cli("run", LESSON_SENTENCE, "--json", *options)
        assert done.code == 0, done.err
        return done.json

    return go


def test_vocabulary_and_embeddings(run, lesson):
    document = run()
    assert document["vocabulary"]["entries"] == lesson["vocabulary"]
    assert [token["id"] for token in document["tokens"]] == lesson["ids"]
    assert_close(document["embeddings"], lesson["embedded_sentence"])


def test_self_attention(run, lesson):
    (head,) = run()["heads"]
    for name, golden in (
        ("w_query", lesson["W_query"]),
        ("w_key", lesson["W_key"]),
        ("w_value", lesson["W_value"]),
        ("query", lesson["queries"]),
        ("key", lesson["keys"]),
        ("value", lesson["values"]),
        ("omegas", lesson["self"]["omegas"]),
        ("weights", lesson["self"]["weights"]),
        ("context", lesson["self"]["context"]),
    ):
        assert_close(head[name], golden)


def test_walk_of_the_second_query(run, lesson):
    walk = lesson["walk_query_index_1"]
    document = run("--query", "1")
    assert document["selection"]["queries"] == [1]
    (head,) = document["heads"]
    assert_close(head["query"], [walk["query"]])
    assert_close(head["key"][1], walk["key"])
    assert_close(head["value"][1], walk["value"])
    assert head["omegas"][0][4] == pytest.approx(walk["omega_with_key_4"], abs=1e-5)
    assert_close(head["omegas"], [walk["omegas"]])
    assert_close(head["weights"], [walk["weights"]])
    assert_close(head["context"], [walk["context"]])


@pytest.mark.parametrize("flag", [("--heads", "4"), ("--variant", "multi-head")])
def test_four_heads(run, lesson, flag):
    golden = lesson["multi_head_4_heads_d_out_v_1"]
    document = run(*flag)
    assert_close(document["concatenated_context"], golden["context"])
    assert len(document["heads"]) == 4
    for mine, theirs in zip(document["heads"], golden["heads"], strict=True):
        for name in ("W_query", "W_key", "W_value", "omegas", "weights", "context"):
            assert_close(mine[name.lower()], theirs[name])


def test_cross_with_the_lessons_second_sequence(run, lesson):
    golden = lesson["cross_second_sequence_drawn_after_the_weights"]
    document = run("--variant", "cross")
    assert_close(document["key_embeddings"], golden["x_2"])
    (head,) = document["heads"]
    for name in ("omegas", "weights", "context"):
        assert_close(head[name], golden[name])


def test_causal_by_renormalising(run, lesson):
    golden = lesson["causal"]
    (head,) = run("--causal", "--mask-method", "renormalize")["heads"]
    assert [[float(cell) for cell in row] for row in head["mask"]] == golden["mask"]
    assert_close(head["masked_weights"], golden["masked_weights_before_renormalising"])
    assert_close(head["row_sums"], golden["row_sums"])
    assert_close(head["weights"], golden["renormalised_weights"])
    assert_close(head["context"], golden["context"])
    assert None not in head["scaled_scores"][0]


@pytest.mark.parametrize("flag", [("--causal",), ("--variant", "causal")])
def test_causal_by_minus_infinity(run, lesson, flag):
    golden = lesson["causal"]
    document = run(*flag)
    (head,) = document["heads"]
    scale = document["settings"]["scale"]
    unscaled = [
        [None if score is None else score / scale for score in row] for row in head["scaled_scores"]
    ]
    assert_close(unscaled, golden["masked_omegas"])
    assert_close(head["weights"], golden["softmax_of_masked_omegas"])
    assert_close(head["context"], golden["context"])
    assert head["nonfinite"] == 0


def test_the_two_methods_differ_by_no_more_than_the_lesson_says(cli, lesson):
    document = cli("compare", "--json").json
    most = lesson["causal"]["max_abs_difference_of_the_two_methods_at_most"]
    assert document["text"] == LESSON_SENTENCE
    assert document["max_abs_difference"]["weights"] <= most
    assert document["max_abs_difference"]["context"] <= most


def test_every_run_agrees_with_torch(run):
    for options in ((), ("--causal",), ("--heads", "4"), ("--variant", "cross")):
        agreement = run(*options)["agreement"]
        assert agreement["agrees"] is True
        assert agreement["max_abs_difference"] < 1e-6
