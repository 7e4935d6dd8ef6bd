import json

import pytest

from tests.conftest import ROOT

UNDERFLOW = ROOT / "samples" / "underflow.json"


def test_both_methods_of_the_lesson(cli):
    done = cli("compare", "--mask-method", "both")
    assert done.code == 0
    for words in ("neg-inf: scaled scores", "renormalize: masked weights", "row sums", "max |Δ|"):
        assert words in done.out
    wide = cli("compare", "--width", "150").out
    assert any(
        "neg-inf: attention weights" in line and "renormalize: attention weights" in line
        for line in wide.splitlines()
    )


@pytest.mark.parametrize("method", ["neg-inf", "renormalize"])
def test_one_method(cli, method):
    document = cli("compare", "--mask-method", method, "--json").json
    assert [entry["method"] for entry in document["methods"]] == [method]
    assert document["max_abs_difference"]["between"] == "method and torch"
    other = {"neg-inf": "renormalize", "renormalize": "neg-inf"}[method]
    assert f"{other}:" not in cli("compare", "--mask-method", method).out


def test_costs(cli):
    document = cli("compare", "a b", "--json").json
    first, second = document["methods"]
    assert (first["operations"], second["operations"]) == (7 * 4, 9 * 4)
    # scaled, weights and logits of 4 × 4 bytes and a mask of 4 bytes; unmasked, masked, row sums
    assert first["memory_bytes"] == 3 * 16 + 4
    assert second["memory_bytes"] == 4 * 16 + 4 + 8


@pytest.mark.parametrize(
    ("dtype", "gap", "parts"),
    [
        ("float32", 103.0, False), ("float32", 105.0, True),
        ("float16", 17.0, False), ("float16", 18.0, True),
        ("bfloat16", 92.0, False), ("bfloat16", 94.0, True),
        ("float64", 744.0, False), ("float64", 746.0, True),
    ],
)  # fmt: skip
def test_where_row_sums_underflow(cli, tmp_path, dtype, gap, parts):
    path = tmp_path / "gap.json"
    zeros_and_gap = {"key": [[0.0], [gap]], "value": [[1.0], [2.0]], "scale": 1.0}
    path.write_text(json.dumps({"query": [[1.0], [1.0]], **zeros_and_gap}))
    document = cli("compare", "--qkv", path, "--dtype", dtype, "--json").json
    (head,) = document["methods"][1]["heads"]
    assert (head["row_sums"][0] == 0) == parts
    underflow = document["underflow"]
    assert underflow["largest_gap"] == gap
    assert (underflow["largest_gap"] > underflow["limit"]) == parts


def test_fail_above(cli):
    assert cli("compare", "--fail-above", "1e-6").code == 0
    done = cli("compare", "--fail-above", "1e-12")
    assert done.code == 1
    assert "is above 1e-12" in done.err
    assert "max |Δ|" in done.out
    done = cli("compare", "--qkv", UNDERFLOW, "--fail-above", "1")
    assert done.code == 1
    assert "max |Δ| = NaN is above 1" in done.err
    assert cli("compare", "--fail-above", "-1").code == 2


def test_a_long_text_is_summarised(cli):
    done = cli("compare", " ".join(f"w{i}" for i in range(40)))
    assert "--show all" in done.out
    assert "attention weights" not in done.out


def test_nothing_hidden(cli):
    assert "cannot part" in cli("compare", "one").out
