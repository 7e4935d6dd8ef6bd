"""`attnscope run` through main([...])."""

import csv
import io
import json
import math

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.conftest import LESSON_SENTENCE, ROOT, assert_close

QKV = ROOT / "samples" / "qkv.json"


def test_main_job(cli):
    done = cli("run", LESSON_SENTENCE, "--causal")
    assert done.code == 0
    assert done.err == ""
    for words in ("tokens and ids", "shapes", "omegas", "attention weights", "context vectors"):
        assert words in done.out
    assert "0.9468" in done.out
    assert "agrees with torch: max |Δ| = " in done.out


def test_query_by_position_and_by_word(cli):
    by_position = cli("run", LESSON_SENTENCE, "--query", "1")
    assert by_position.out == cli("run", LESSON_SENTENCE, "--query", "is").out
    for number in ("1.2903", "0.6870", "0.5313", "1.3607", "0.7891", "1.3110"):
        assert number in by_position.out


def test_a_repeated_word_is_every_place_of_it(cli):
    document = cli("run", "to be or not to be", "--query", "be", "--json").json
    assert document["selection"]["queries"] == [1, 5]
    assert len(document["heads"][0]["weights"]) == 2


@pytest.mark.parametrize("query", ["6", "-1", "nothing", "[red]x"])
def test_a_query_that_is_not_there(cli, query):
    done = cli("run", LESSON_SENTENCE, f"--query={query}")
    assert done.code == 2
    assert done.out == ""
    assert query in done.err
    assert done.err.count("\n") == 1


def test_one_head(cli):
    document = cli("run", LESSON_SENTENCE, "--heads", "4", "--head", "2", "--json").json
    assert [head["head"] for head in document["heads"]] == [2]
    assert document["concatenated_context"] is None
    assert cli("run", "a b", "--head", "1").code == 2


def test_cross_attention(cli):
    document = cli("run", "Life is short", "--cross", "La vie est courte", "--json").json
    (head,) = document["heads"]
    assert (len(head["weights"]), len(head["weights"][0])) == (3, 4)
    assert [token["piece"] for token in document["key_tokens"]] == ["La", "vie", "est", "courte"]
    assert document["key_text"] == "La vie est courte"
    assert document["vocabulary"]["size"] == 7


def test_cross_with_the_same_text_is_self(cli):
    crossed = cli("run", "a b c", "--cross", "a b c", "--json").json
    itself = cli("run", "a b c", "--json").json
    assert crossed["heads"] == itself["heads"]


def test_causal_cross_needs_an_alignment(cli):
    words = ("run", "a b", "--cross", "a b c", "--causal")
    done = cli(*words)
    assert done.code == 2
    assert "2 queries and 3 keys" in done.err
    rows = cli(*words, "--align", "bottom-right", "--json").json["heads"][0]["mask"]
    assert rows == [[True, True, False], [True, True, True]]
    assert cli("run", "a b", "--align", "top-left").code == 2


@pytest.mark.parametrize(
    "options",
    [
        ("--variant", "self", "--causal"),
        ("--variant", "self", "--heads", "2"),
        ("--variant", "self", "--cross", "a"),
        ("--variant", "multi-head", "--heads", "1"),
        ("--tokenizer", "x", "--vocabulary", "y"),
        ("--tokenizer", "x", "--keep-punctuation"),
        ("--json", "--format", "csv"),
        ("--qkv", str(QKV)),
        ("--file", str(QKV)),
        ("--force",),
    ],
)
def test_contradictions(cli, options):
    done = cli("run", "a b", *options)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert done.out == ""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--heads", "0"), "--heads 0"),
        (("--d-model", "-1"), "--d-model -1"),
        (("--vocabulary-size", "1"), "--vocabulary-size 1 is too small"),
        (("--seed", str(2**64)), f"--seed {2**64}"),
        (("--device", "tpu"), '"tpu"'),
        (("--device", "cuda:99"), "cuda:99"),
        (("--show", "wheights"), '"wheights"'),
        (("--precision", "99"), "99"),
        (("--variant", "sideways"), "sideways"),
        (("--d-model", str(10**9)), "GB"),
        (("--nonsense",), "--nonsense"),
    ],
)
def test_values_out_of_range_are_named(cli, options, said):
    done = cli("run", "a b", *options)
    assert done.code == 2
    assert said in done.err
    assert done.err.count("\n") == 1


def test_no_text(cli):
    assert "there is no text" in cli("run").err
    assert cli("run").code == 2
    for text in ("", "?!"):
        done = cli("run", text)
        assert done.code == 2
        assert "no tokens" in done.err


def test_text_from_a_file_and_its_last_line_end(cli, tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(b"to be\r\n")
    assert cli("run", "--file", path, "--json").json["text"] == "to be"
    path.write_bytes(b"to \xff be")
    done = cli("run", "--file", path)
    assert done.code == 2
    assert "byte 0xFF at offset 3" in done.err
    assert cli("run", "--file", tmp_path / "none").code == 2


def test_standard_input(cli, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("人生\n".encode())))
    assert cli("run", "-", "--json").json["text"] == "人生"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\xc3")))
    done = cli("run", "-")
    assert done.code == 2
    assert "standard input is not UTF-8: byte 0xC3 at offset 1" in done.err


def test_invalid_bytes_in_an_argument(cli):
    done = cli("run", "ab\udcff")
    assert done.code == 2
    assert "byte 0xFF at offset 2" in done.err


@pytest.mark.parametrize(("dtype", "size"), [("float16", 300.0), ("bfloat16", 2e19)])
def test_overflow_is_seen_and_named(cli, tmp_path, dtype, size):
    path = tmp_path / "qkv.json"
    path.write_text(json.dumps({"q": [[size]], "k": [[size], [1.0]], "v": [[1.0], [2.0]]}))
    done = cli("run", "--qkv", path, "--dtype", dtype, "--json")
    assert done.code == 0
    assert f"1 of the omegas overflows {dtype}" in done.err
    (head,) = done.json["heads"]
    assert head["omegas"] == [[None, pytest.approx(size, rel=0.01)]]
    assert head["nonfinite"] > 0


def test_dtypes_come_out(cli):
    exact = cli("run", "a b c", "--dtype", "float64", "--json").json["heads"][0]["weights"]
    assert_close(cli("run", "a b c", "--json").json["heads"][0]["weights"], exact, 1e-6)
    half = cli("run", "a b c", "--dtype", "float16", "--json").json["heads"][0]["weights"]
    assert_close(half, exact, 2e-3)
    assert all(np.float32(weight) == np.float16(weight) for row in half for weight in row)


def test_float32_numbers_come_back_exactly(cli):
    import attnscope

    run = attnscope.run_sentence(LESSON_SENTENCE)
    (head,) = cli("run", LESSON_SENTENCE, "--json").json["heads"]
    for name, tensor in (("omegas", run.layers[0].scores[0]), ("key", run.layers[0].call.key[0])):
        assert torch.equal(torch.tensor(head[name], dtype=torch.float32), tensor)


def test_uneven_heads_get_a_note(cli):
    done = cli("run", "a b", "--heads", "3", "--json")
    assert done.code == 0
    assert "3 heads do not divide 4" in done.err
    assert done.json["settings"]["d_value"] == 4
    assert cli("run", "a b", "--heads", "2", "--json").json["settings"]["d_value"] == 2


def test_qkv_in_three_formats_is_one_thing(cli, tmp_path):
    arrays = {
        "query": np.array([[[1.5, 2.0]], [[0.25, -1.0]]], dtype=np.float32),
        "key": np.array([[[1.0, 0.5], [2.0, 0.0]]], dtype=np.float32),
        "value": np.array([[[1.0], [3.0]]], dtype=np.float32),
    }
    (tmp_path / "a.json").write_text(json.dumps({k: v.tolist() for k, v in arrays.items()}))
    np.savez(tmp_path / "a.npz", **arrays)
    save_file({k: torch.from_numpy(v) for k, v in arrays.items()}, tmp_path / "a.safetensors")
    documents = [
        cli("run", "--qkv", tmp_path / f"a.{ending}", "--json").json
        for ending in ("json", "npz", "safetensors")
    ]
    heads = [document["heads"] for document in documents]
    assert heads[0] == heads[1] == heads[2]
    assert [head["key_head"] for head in heads[0]] == [0, 0]
    assert documents[0]["settings"]["key_heads"] == 1


def test_half_tensors_are_widened_and_said(cli, tmp_path):
    half = {name: torch.rand(3, 2).to(torch.bfloat16) for name in ("q", "k", "v")}
    save_file(half, tmp_path / "half.safetensors")
    done = cli("run", "--qkv", tmp_path / "half.safetensors", "--json")
    assert "bfloat16: widened to float32" in done.err
    assert done.json["settings"]["dtype"] == "float32"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"q": [[1]], "k": [[1, 2]], "v": [[1]]}, "query has width 1 and key has width 2"),
        ({"q": [[1]], "k": [[1], [2]], "v": [[1]]}, "there are 2 keys and 1 values"),
        ({"q": [[1]], "k": [[1]]}, "has no value"),
        ({"q": [[1]], "query": [[1]], "k": [[1]], "v": [[1]]}, "holds query twice"),
        ({"q": [[1], [1, 2]], "k": [[1]], "v": [[1]]}, "not a rectangular array"),
        ({"q": "x", "k": [[1]], "v": [[1]]}, "q in"),
        ({"q": [1], "k": [[1]], "v": [[1]]}, "query has shape (1,)"),
        ({"q": [[1]], "k": [[1]], "v": [[1]], "\x1b[31m": 1}, "unknown entry ␛[31m"),
        ({"q": [[1]], "k": [[1]], "v": [[1]], "mask": [[1, 1]]}, "mask has shape (1, 2)"),
        ({"q": [[1]], "k": [[1]], "v": [[1]], "mask": [[1.0]]}, "zeros and ones"),
        ({"q": [[1]], "k": [[1]], "v": [[1]], "mask": [[2]]}, "whole numbers other than 0 and 1"),
        ({"q": [[1]], "k": [[1]], "v": [[1]], "scale": [1, 2]}, "scale has shape (2,)"),
        ({"q": [[1]], "k": [[1]], "v": [[1]], "softcap": 0}, "softcap is 0.0"),
        ({"q": [[1]], "k": [[1]], "v": [[1]], "sinks": [1, 2]}, "sinks has shape (2,)"),
        ([1], "holds list, not an object"),
    ],
)
def test_tensor_files_that_do_not_fit(cli, tmp_path, data, said):
    path = tmp_path / "qkv.json"
    path.write_text(json.dumps(data))
    done = cli("run", "--qkv", path)
    assert done.code == 2
    assert said in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("ending", ["json", "npz", "safetensors", "pt"])
@pytest.mark.parametrize("damage", ["garbage", "truncated", "empty", "missing"])
def test_damaged_tensor_files(cli, tmp_path, ending, damage):
    path = tmp_path / f"qkv.{ending}"
    sample = ROOT / "samples" / f"qkv.{ending}"
    if damage == "garbage":
        path.write_bytes(b"\x80\x04\x95\x00garbage\xff" * 20)
    elif damage == "truncated" and sample.exists():
        path.write_bytes(sample.read_bytes()[:-100])
    elif damage == "empty":
        path.write_bytes(b"")
    done = cli("run", "--qkv", path)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert f"qkv.{ending}" in done.err


def test_pickled_arrays_are_refused(cli, tmp_path):
    np.savez(tmp_path / "p.npz", query=np.array([{"a": 1}], dtype=object))
    done = cli("run", "--qkv", tmp_path / "p.npz")
    assert done.code == 2
    assert "p.npz" in done.err


def test_additive_bias_softcap_and_scale(cli, tmp_path):
    data = {
        "q": [[1.0, 2.0]], "k": [[0.5, 1.0], [2.0, -1.0]], "v": [[1.0], [2.0]],
        "scale": 2.0, "softcap": 3.0, "bias": [[0.0, 1.0]],
    }  # fmt: skip
    path = tmp_path / "qkv.json"
    path.write_text(json.dumps(data))
    done = cli("run", "--qkv", path, "--json")
    expected = [3 * math.tanh(2 * 2.5 / 3), 3 * math.tanh(2 * 0.0 / 3) + 1]
    assert_close(done.json["heads"][0]["scaled_scores"], [expected], 1e-6)
    assert done.json["agreement"] == {
        "reference": None, "max_abs_difference": None, "agrees": None
    }  # fmt: skip


def test_plain_is_a_sentence_per_row(cli):
    done = cli("run", "a b c", "--format", "plain")
    weights = [line for line in done.out.splitlines() if line.startswith("attention weights")]
    assert weights[1].startswith("attention weights α, query 1 b: 0 a 0.2777, 1 b 0.3880, 2 c ")
    assert "\x1b" not in done.out


def test_csv_has_every_number_of_the_json(cli):
    rows = list(csv.DictReader(io.StringIO(cli("run", "a b c", "--format", "csv", "--causal").out)))
    (head,) = cli("run", "a b c", "--json", "--causal").json["heads"]
    for step, name in (("omegas", "omegas"), ("context", "context")):
        flat = [float(row["value"]) for row in rows if row["step"] == step]
        assert_close(flat, [float(np.float32(x)) for line in head[name] for x in line], 0)
    weights = [row for row in rows if row["step"] == "weights"]
    assert weights[1]["value"] == ""
    assert (weights[3]["row_label"], weights[3]["column_label"]) == ("b", "a")


def test_a_long_text_starts_with_a_summary(cli):
    text = " ".join(f"w{i}" for i in range(40))
    done = cli("run", text, "--width", "200")
    assert "strongest keys and their weights" in done.out
    assert "omegas ω" not in done.out
    assert "--show all" in done.out
    assert "omegas ω" in cli("run", text, "--show", "all", "--width", "200").out
    assert "omegas ω" in cli("run", " ".join(text.split()[:32]), "--width", "200").out


def test_every_step_can_be_shown(cli):
    done = cli("run", "a b", "--causal", "--mask-method", "renormalize", "--show", "all")
    for words in (
        "embeddings x", "W_query", "queries q", "keys k", "values v", "mask, 1", "scaled scores",
        "softmax over all keys", "masked weights", "row sums", "strongest keys",
    ):  # fmt: skip
        assert words in done.out


def test_show_selects_in_json(cli):
    document = cli("run", "a b", "--show", "weights,context", "--json").json
    assert set(document["heads"][0]) == {
        "layer", "head", "key_head", "sink", "weights", "context", "nonfinite"
    }  # fmt: skip
    assert "embeddings" not in document


@pytest.mark.parametrize(
    ("data", "dtype", "said"),
    [
        ({"bias": [[1e5]]}, "float16", "bias holds 100000, which overflows float16"),
        ({"q": [[1e5]]}, "float16", "query holds 100000, which overflows float16"),
        ({"q": [[1e39]]}, "float32", "query holds 1e+39, which overflows float32"),
        ({"sinks": [1e5]}, "float16", "sinks holds 100000, which overflows float16"),
    ],
)
def test_numbers_that_a_dtype_cannot_hold(cli, tmp_path, data, dtype, said):
    path = tmp_path / "qkv.json"
    path.write_text(json.dumps({"q": [[1.0]], "k": [[1.0]], "v": [[1.0]], **data}))
    done = cli("run", "--qkv", path, "--dtype", dtype)
    assert done.code == 2
    assert said in done.err


def test_scaled_scores_that_overflow_are_named(cli, tmp_path):
    path = tmp_path / "qkv.json"
    path.write_text(json.dumps({"q": [[40.0]], "k": [[25.0]], "v": [[1.0]], "scale": 500.0}))
    done = cli("run", "--qkv", path, "--dtype", "float16")
    assert "1 of the scaled scores overflows float16" in done.err


def test_minus_infinity_in_a_bias_hides(cli, tmp_path):
    base = {"q": [[1.0], [1.0]], "k": [[1.0], [2.0]], "v": [[1.0], [2.0]]}
    text = json.dumps(base)[:-1]
    path = tmp_path / "qkv.json"
    path.write_text(text + ', "bias": [[-Infinity, -Infinity], [0.5, -Infinity]]}')
    done = cli("run", "--qkv", path, "--json")
    (head,) = done.json["heads"]
    assert head["mask"] == [[False, False], [True, False]]
    assert head["weights"] == [[0, 0], [1, 0]]
    assert head["bias"] == [[0, 0], [0.5, 0]]
    assert "1 query may see no key" in done.err


def test_a_blind_row_reads_no_value(cli, tmp_path):
    path = tmp_path / "qkv.json"
    path.write_text('{"q": [[1.0]], "k": [[1.0]], "v": [[Infinity]], "mask": [[false]]}')
    assert cli("run", "--qkv", path, "--json").json["heads"][0]["context"] == [[0]]


def test_the_formula_names_bias_and_softcap(cli, tmp_path):
    path = tmp_path / "qkv.json"
    data = {"q": [[1.0]], "k": [[1.0]], "v": [[1.0]], "softcap": 5.0, "bias": [[1.0]]}
    path.write_text(json.dumps({**data, "sinks": [0.5]}))
    out = cli("run", "--qkv", path, "--show", "scaled,weights").out
    assert "5.0000·tanh(1.0000·ω / 5.0000) + bias" in out
    assert "1 sink" in out
    head = cli("run", "--qkv", path, "--json").json["heads"][0]
    assert head["weights"][0][0] + head["sink_weights"][0] == pytest.approx(1.0)
    assert "5.0000·tanh" in cli("run", "--qkv", path, "--query", "0").out


def test_steps_that_show_nothing_are_said(cli):
    done = cli("run", "a b", "--show", "row-sums,weights,concatenation")
    assert "--show row-sums shows nothing: it is a step of --mask-method renormalize" in done.err
    assert "--show concatenation shows nothing: there is one head" in done.err
    assert cli("run", "a b", "--show", "all").err == ""
    assert "--show tokens: a comparison" in cli("compare", "--show", "tokens,weights").err


def test_csv_of_a_long_text_has_every_number(cli):
    text = " ".join(f"w{i}" for i in range(40))
    rows = list(csv.DictReader(io.StringIO(cli("run", text, "--format", "csv").out)))
    assert sum(row["step"] == "weights" for row in rows) == 1600
    assert cli("run", "a b", "--format", "csv", "--show", "tokens,shapes").code == 2
    assert cli("run", "a b", "--format", "csv", "--show", "tokens").out.startswith("position,")


def test_a_value_that_is_no_number_is_named(cli):
    done = cli("run", "a", "--heads", "many")
    assert "--heads" in done.err
    assert '"many"' in done.err


def test_a_text_that_begins_with_a_dash(cli):
    assert "put -- before a text" in cli("run", "-5 degrees").err
    assert cli("run", "--", "-5 degrees").code == 0


def test_multi_head_with_no_heads(cli):
    assert (
        "--heads 0 is not positive"
        in cli("run", "a", "--variant", "multi-head", "--heads", "0").err
    )


def test_rounding_in_half_precision_is_no_alarm(cli):
    words = "one two three four five six seven eight nine ten"
    done = cli("run", words, "--dtype", "bfloat16", "--d-model", "1000", "--d-key", "100", "--json")
    assert done.json["agreement"]["agrees"] is True


def test_heads_read_their_own_key_head(cli):
    path = ROOT / "samples" / "qkv.safetensors"
    document = cli("run", "--qkv", path, "--json").json
    assert [head["key_head"] for head in document["heads"]] == [0, 0, 1, 1]
    for head in document["heads"]:
        for q, omegas in zip(head["query"], head["omegas"], strict=True):
            by_hand = [sum(a * b for a, b in zip(q, k, strict=True)) for k in head["key"]]
            assert_close(omegas, by_hand, 1e-5)
