"""The small cases with known right answers, and what known mistakes give."""

import json
import math

import pytest
import torch

from attnscope.attention.call import AttentionCall
from attnscope.attention.engine import MaskMethod
from attnscope.attention.masks import CAUSAL, EVERYTHING, from_tensor
from attnscope.attention.result import attend
from attnscope.sources.options import SentenceOptions
from attnscope.sources.sentence import run_tokens
from attnscope.text.tokenizer_file import load_tokenizer
from attnscope.text.words import build_tokenizer
from tests.conftest import assert_close


def number(value):
    return float(value) if isinstance(value, str) else value


def numbers(value):
    return [numbers(v) for v in value] if isinstance(value, list) else number(value)


def tensor(value):
    return torch.tensor(numbers(value), dtype=torch.float64)


def scale_of(inputs):
    scale = inputs.get("scale")
    return float(scale) if isinstance(scale, int | float) else 1 / math.sqrt(len(inputs["Q"][0]))


def call_of(inputs):
    mask = EVERYTHING
    if inputs.get("mask") == "causal":
        mask = CAUSAL
    elif "keep" in inputs:
        mask = from_tensor(torch.tensor(inputs["keep"]))
    q, k, v = (tensor(inputs[name])[None] for name in "QKV")
    return AttentionCall(q, k, v, scale=scale_of(inputs), mask=mask)


def near(mine, theirs):
    theirs = torch.tensor(numbers(theirs), dtype=torch.float64)
    return torch.allclose(mine.double(), theirs, atol=1e-6, rtol=0, equal_nan=True)


@pytest.mark.parametrize("name", ["BL-00", "BL-01", "BL-07", "BL-23", "BL-24", "BL-26b"])
def test_attention(cases, name):
    case = cases[name]
    result = attend(call_of(case["inputs"]))
    expected = case["expected"]
    for key, mine in (
        ("omegas", result.scores),
        ("scores_scaled", result.logits),
        ("weights", result.weights),
        ("context", result.context),
    ):
        if key in expected:
            assert near(mine[0], expected[key]), key
    for key, wrong in (case["wrong"] or {}).items():
        if key.startswith("weights"):
            assert not near(result.weights[0], wrong), key
    assert result.reference_gap < 1e-12


def test_both_mask_methods(cases):
    case = cases["BL-00c"]
    expected = case["expected"]
    first = attend(call_of(case["inputs"]))
    second = attend(call_of(case["inputs"]), MaskMethod.RENORMALIZE)
    assert near(first.logits[0], expected["scores_scaled"])
    assert near(first.weights[0], expected["weights_neginf"])
    assert near(second.mask_steps.masked[0], expected["weights_multiplied_before_renorm"])
    assert near(second.mask_steps.row_sums[0], expected["row_sums_before_renorm"])
    assert near(second.weights[0], expected["weights_renorm"])
    assert near(second.context[0], expected["context"])


def test_row_sums_that_underflow_are_named(cases, cli, tmp_path):
    case = cases["BL-00d"]
    scores = case["inputs"]["scores"]
    data = {  # q·kᵀ is the identity times the wanted scores
        "query": [[float(i == j) for j in range(3)] for i in range(3)],
        "key": [[row[j] for row in scores] for j in range(3)],
        "value": [[1.0], [2.0], [3.0]],
        "mask": case["inputs"]["keep"],
        "scale": 1.0,
    }
    path = tmp_path / "underflow.json"
    path.write_text(json.dumps(data))
    done = cli("run", "--qkv", path, "--json", "--mask-method", "renormalize")
    (head,) = done.json["heads"]
    assert_close(head["row_sums"], case["wrong"]["multiply_row_sums"], 1e-6)
    assert head["weights"][1] == [None, None, None]
    assert head["nonfinite"] == 5  # three weights, the context and the entropy
    assert "underflows to 0 in float32" in done.err
    (head,) = cli("run", "--qkv", path, "--json").json["heads"]
    assert_close(head["weights"], case["expected"]["weights_neginf"], 1e-6)


@pytest.mark.parametrize("fill", [torch.finfo(torch.float32).min, -1e9])
def test_a_row_hidden_by_a_huge_finite_number_is_seen_as_hidden(cases, cli, tmp_path, fill):
    case = cases["BL-02"]["inputs"]
    additive = [[0.0 if keep else fill for keep in row] for row in case["keep"]]
    path = tmp_path / "qkv.json"
    data = {"q": case["Q"], "k": case["K"], "v": case["V"], "mask": additive}
    path.write_text(json.dumps(data))
    done = cli("run", "--qkv", path, "--json")
    (head,) = done.json["heads"]
    assert head["weights"][1] == [0, 0, 0]
    assert head["mask"][1] == [False, False, False]
    assert "1 query may see no key" in done.err


@pytest.mark.parametrize("name", ["BL-04-1x4", "BL-04-2x4", "BL-04-4x2"])
@pytest.mark.parametrize("align", ["top-left", "bottom-right"])
def test_alignment(cases, cli, tmp_path, name, align):
    inputs = cases[name]["inputs"]
    expected = cases[name]["expected"][align.replace("-", "_")]
    path = tmp_path / "qkv.json"
    zeros = {"query": [[0.0]] * inputs["T_q"], "key": [[0.0]] * inputs["T_k"]}
    path.write_text(json.dumps({**zeros, "value": [[1.0]] * inputs["T_k"]}))
    (head,) = cli("run", "--qkv", path, "--causal", "--align", align, "--json").json["heads"]
    assert head["mask"] == expected["keep"]
    assert_close(head["weights"], expected["weights"], 1e-6)


@pytest.mark.parametrize("name", ["BL-14", "BL-08", "BL-12"])
def test_heads_of_a_projected_model(cases, name):
    case = cases[name]
    inputs, heads = case["inputs"], case["inputs"]["heads"]
    x = tensor(inputs["x"])

    def split(weight):
        return (x @ tensor(inputs[weight]).T).unflatten(-1, (heads, -1)).transpose(0, 1)

    mask = CAUSAL if inputs.get("mask") else EVERYTHING
    result = attend(AttentionCall(split("W_q"), split("W_k"), split("W_v"), mask=mask))
    assert near(result.weights, case["expected"]["weights_per_head"])
    if "output" in case["expected"]:
        joined = result.context.transpose(0, 1).flatten(1) @ tensor(inputs["W_o"]).T
        assert near(joined, case["expected"]["output"])
    wrong = (case["wrong"] or {}).get("weights_per_head_if_inverted")
    assert wrong is None or not near(result.weights, wrong)


def test_a_given_mask_and_causal_both_apply(cases, cli, tmp_path):
    inputs = cases["BL-10"]["inputs"]
    path = tmp_path / "qkv.json"
    everything = [[True] * 3] * 3
    data = {"q": inputs["Q"], "k": inputs["K"], "v": inputs["V"], "mask": everything}
    path.write_text(json.dumps(data))
    (head,) = cli("run", "--qkv", path, "--causal", "--json").json["heads"]
    assert head["mask"] == [[True, False, False], [True, True, False], [True, True, True]]


def test_two_runs_give_equal_bytes(cli):
    assert cli("run", "a b c", "--json").out == cli("run", "a b c", "--json").out


def test_a_single_key_gets_all_the_weight(cli):
    (head,) = cli("run", "one", "--json").json["heads"]
    assert head["weights"] == [[1.0]]


def test_draws_are_those_of_the_cpu(cases):
    seed = torch.Generator().manual_seed(cases["BL-18"]["inputs"]["seed"])
    drawn = torch.randn(3, generator=seed)
    assert near(drawn, cases["BL-18"]["expected"]["cpu"])
    tokens = build_tokenizer("a b c d e f").tokens("a b c d e f")
    run = run_tokens(tokens, SentenceOptions(vocabulary_size=6))
    assert near(run.inputs.query_inputs, cases["BL-18b"]["expected"]["weight"])


def test_heads_that_do_not_divide(cli, tmp_path):
    path = tmp_path / "qkv.json"
    data = {"query": [[[1.0]]] * 3, "key": [[[1.0]]] * 2, "value": [[[1.0]]] * 2}
    path.write_text(json.dumps(data))
    done = cli("run", "--qkv", path)
    assert done.code == 2
    assert "query has 3 heads, which 2 key heads do not divide" in done.err


def test_sink(cases, cli, tmp_path):
    case = cases["BL-37"]
    path = tmp_path / "qkv.json"
    scores = case["inputs"]["scores_scaled"]
    data = {
        "query": [[1.0]],
        "key": [[float(s)] for s in scores],
        "value": [[1.0], [0.0]],
        "sinks": [case["inputs"]["sink_logit"]],
    }
    path.write_text(json.dumps(data))
    document = cli("run", "--qkv", path, "--json").json
    (head,) = document["heads"]
    assert_close(head["weights"][0], case["expected"]["weights"], 1e-6)
    assert sum(head["weights"][0]) == pytest.approx(case["expected"]["row_sum"], abs=1e-6)
    assert document["agreement"]["agrees"] is True
    total = math.exp(head["logsumexp"][0])
    sink = math.exp(case["inputs"]["sink_logit"]) / total
    assert sink == pytest.approx(case["expected"]["sink_weight"], abs=1e-6)


@pytest.mark.parametrize("name", ["BL-65-0"])
def test_vocabulary(cases, name):
    case = cases[name]
    tokens = build_tokenizer(case["inputs"]["sentence"]).tokens(case["inputs"]["sentence"])
    assert list(tokens.pieces) == case["expected"]["tokens"]
    assert list(tokens.ids) == case["expected"]["ids"]
    assert tokens.vocabulary.entries == case["expected"]["vocab"]
    assert tokens.vocabulary.size == case["expected"]["vocab_size"]


def test_a_repeated_word_leaves_no_gap(cli):
    document = cli("run", "to be or not to be", "--json").json
    assert document["vocabulary"]["entries"] == {"be": 0, "not": 1, "or": 2, "to": 3}
    assert [token["id"] for token in document["tokens"]] == [3, 0, 2, 1, 3, 0]


def test_equal_tokens_have_equal_rows_and_columns(cases):
    sentence = "e a d c e b"  # ids 4 0 3 2 4 1
    tokens = build_tokenizer(sentence).tokens(sentence)
    assert list(tokens.ids) == cases["BL-65-eq"]["inputs"]["ids"]
    weights = run_tokens(tokens, SentenceOptions()).layers[0].weights[0]
    assert torch.equal(weights[0], weights[4])
    assert torch.equal(weights[:, 0], weights[:, 4])


def test_tutorial(cases, cli):
    expected = cases["BL-66b"]["expected"]
    document = cli("run", "Life is short, eat dessert first", "--json").json
    (head,) = document["heads"]
    assert_close(head["omegas"][1], expected["omegas_row_1"], 1e-4)
    assert_close(head["weights"][1], expected["weights_row_1"], 1e-4)
    assert_close(head["context"][1], expected["context_row_1"], 1e-4)


def test_non_finite_numbers_are_null(cli, tmp_path):
    path = tmp_path / "qkv.json"
    path.write_text('{"q": [[1.0], [NaN]], "k": [[1.0], [2.0]], "v": [[1.0], [Infinity]]}')
    done = cli("run", "--qkv", path, "--json")
    (head,) = done.json["heads"]  # refuses NaN and Infinity
    assert head["query"] == [[1.0], [None]]
    assert head["weights"][1] == [None, None]
    assert "query holds 1 number that is not finite" in done.err
    assert "value holds 1 number that is not finite" in done.err


@pytest.mark.parametrize("name", ["BL-38", "BL-41"])
def test_loaded_tokenizer(cases, tmp_path, name):
    case = cases[name]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(case["inputs"]["tokenizer_json"]))
    tokens = load_tokenizer(path).tokens(case["inputs"]["text"])
    expected = case["expected"]
    assert list(tokens.pieces) == expected["tokens"]
    assert [list(span) for span in tokens.spans] == expected["offsets"]
    if "display" in expected:
        assert list(tokens.labels) == expected["display"]
    if "source_text" in expected:
        assert [tokens.source(i) for i in range(len(tokens))] == expected["source_text"]
        assert tokens.unknown == (False, False, True, True)


def test_adjacent_unknown_emoji_keep_their_span(cases, tmp_path):
    case = cases["BL-39"]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(case["inputs"]["tokenizer_json"]))
    tokenizer = load_tokenizer(path)
    for text, expected in case["expected"].items():
        tokens = tokenizer.tokens(text)
        assert list(tokens.pieces) == expected["tokens"]
        assert [list(span) for span in tokens.spans] == expected["offsets"]
    assert tokenizer.tokens("💩💩").labels == ("[UNK] 💩💩",)


def test_vocabulary_without_its_unknown_token(cases, cli, tmp_path):
    inputs = cases["BL-41b"]["inputs"]
    model = {"type": "WordLevel", "vocab": inputs["vocab"], "unk_token": inputs["unk_token"]}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"version": "1.0", "model": model, "pre_tokenizer": None}))
    done = cli("tokenize", inputs["text"], "--tokenizer", path)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "[UNK]" in done.err


def test_unreadable_tokenizers(cases, cli, tmp_path):
    path = tmp_path / "tokenizer.json"
    for text in cases["BL-45"]["inputs"]["files"].values():
        path.write_text(text)
        done = cli("tokenize", "a", "--tokenizer", path)
        assert done.code == 2
        assert done.err.count("\n") == 1
        assert "tokenizer.json" in done.err


def test_softmax_is_over_the_keys(cases):
    case = cases["BL-24"]
    result = attend(call_of(case["inputs"]))
    assert near(result.weights[0].sum(-1), case["expected"]["row_sums"])
    assert not near(result.weights[0].sum(-1), case["wrong"]["row_sums_if_wrong"])
