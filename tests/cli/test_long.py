"""`attnscope run` on attention of any length: measures, rows, windows, maps, streams."""

import json
import subprocess
import sys

import jsonschema
import pytest
import torch
from safetensors.torch import save_file

from attnscope.views.schema import SCHEMA
from tests.sources import tiny_models

SIZE = 75


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    """A file of 4 heads of queries, 2 of keys."""
    generator = torch.Generator().manual_seed(5)
    path = tmp_path_factory.mktemp("vectors") / "qkv.safetensors"
    shapes = {"query": (4, SIZE, 8), "key": (2, SIZE, 8), "value": (2, SIZE, 6)}
    save_file({n: torch.randn(*s, generator=generator) * 2 for n, s in shapes.items()}, path)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_models.save_decoder(tmp_path_factory.mktemp("long") / "decoder")


def weights_of(document):
    return torch.tensor([head["weights"] for head in document["heads"]])


def heads_of(document):
    return [head for layer in document["layers"] for head in layer["heads"]]


def test_measures_equal_those_of_the_matrices(cli, vectors):
    done = cli("run", "--qkv", vectors, "--causal", "--measures", "--json")
    assert done.code == 0, done.err
    jsonschema.validate(done.json, SCHEMA)
    dense = cli("run", "--qkv", vectors, "--causal", "--json").json
    weights = weights_of(dense)
    heads = heads_of(done.json)
    assert [head["head"] for head in heads] == [0, 1, 2, 3]
    assert [head["key_head"] for head in heads] == [0, 0, 1, 1]
    for number, head in enumerate(heads):
        own = weights[number]
        assert head["entropy"] == pytest.approx(dense["heads"][number]["entropy"], abs=1e-5)
        assert head["largest"] == pytest.approx(own.amax(1).tolist(), abs=1e-5)
        assert head["largest_key"] == own.argmax(1).tolist()
        assert head["first"] == pytest.approx(own[:, 0].tolist(), abs=1e-6)
        assert head["received"] == pytest.approx(own.sum(0).tolist(), rel=1e-6, abs=1e-6)
        assert head["strongest_keys"][-1] == own[-1].topk(10).indices.tolist()


def test_matrices_above_the_budget_become_measures(cli, tmp_path):
    path = tmp_path / "longer.safetensors"
    save_file({name: torch.ones(4, 600, 4) for name in ("query", "key", "value")}, path)
    asked = ("run", "--qkv", path, "--json", "--show", "shapes", "--max-memory")
    assert cli(*asked, "100MB").json["schema"] == "attnscope.run"
    done = cli("run", "--qkv", path, "--max-memory", "30 mb", "--json")  # matrices take 58 MB
    assert done.json["schema"] == "attnscope.measures"
    assert "measured without their matrices" in done.err
    refused = cli("run", "--qkv", path, "--max-memory", "1KB")
    assert refused.code == 2
    assert "the measures need" in refused.err
    assert "--max-memory is 1.0 KB" in refused.err


def test_one_row_is_exact(cli, vectors):
    done = cli("run", "--qkv", vectors, "--causal", "--query", "50", "--top", "20", "--json")
    jsonschema.validate(done.json, SCHEMA)
    dense = weights_of(cli("run", "--qkv", vectors, "--causal", "--json").json)
    for number, head in enumerate(heads_of(done.json)):
        row = dense[number, 50]
        (strongest,) = head["strongest_keys"]
        assert strongest == row.topk(20).indices.tolist()
        assert head["weights"] == pytest.approx(row.tolist(), abs=1e-6)
    table = cli("run", "--qkv", vectors, "--causal", "--query", "50", "--top", "20").out
    assert "query 50 q50" in table


def test_a_window_holds_the_numbers_of_the_whole(cli, vectors):
    done = cli("run", "--qkv", vectors, "--causal", "--rows", "40:45", "--keys", "10:50", "--json")
    assert done.code == 0, done.err
    jsonschema.validate(done.json, SCHEMA)
    assert "queries 40–44 of 75, keys 10–49 of 75" in done.err
    dense = cli("run", "--qkv", vectors, "--causal", "--json").json
    torch.testing.assert_close(
        weights_of(done.json), weights_of(dense)[:, 40:45, 10:50], atol=1e-6, rtol=0
    )
    for mine, theirs in zip(done.json["heads"], dense["heads"], strict=True):
        assert mine["entropy"] == pytest.approx(theirs["entropy"][40:45], abs=1e-5)
        assert mine["logsumexp"] == pytest.approx(theirs["logsumexp"][40:45], abs=1e-5)
        assert mine["context"][2] == pytest.approx(theirs["context"][42], abs=1e-5)
    assert done.json["agreement"]["agrees"] is True
    assert done.json["selection"]["queries"] == [40, 41, 42, 43, 44]
    table = cli("run", "--qkv", vectors, "--causal", "--rows", "40:45", "--keys", "44")
    assert "40 q40" in table.out
    assert "44 k44" in table.out


def test_a_part_that_was_saved_is_asked_by_position(cli, vectors, tmp_path):
    file = tmp_path / "part.safetensors"
    saved = cli("run", "--qkv", vectors, "--rows", "40:45", "--save", file)
    assert saved.code == 0, saved.err
    assert "41 q41" in cli("show", file, "--query", "41", "--show", "weights").out
    refused = cli("show", file, "--query", "5")
    assert refused.code == 2
    assert "give 40 to 44" in refused.err
    wide = cli("run", "--qkv", vectors, "--rows", "40:43", "--show", "summary").out
    assert "41 q41" in wide


def test_lines_stream_row_by_row(cli, vectors, tmp_path, monkeypatch):
    monkeypatch.setattr("attnscope.cli.long._BLOCK", 16)  # several blocks, the last one short
    done = cli("run", "--qkv", vectors, "--causal", "--format", "ndjson")
    header, *lines = [json.loads(line) for line in done.out.splitlines()]
    assert header["schema"] == "attnscope.measured-rows"
    assert len(lines) == 4 * SIZE
    whole = heads_of(cli("run", "--qkv", vectors, "--causal", "--measures", "--json").json)
    for line in lines:
        head, row = whole[line["head"]], line["query"]
        assert line["label"] == f"q{row}"
        for name in ("entropy", "largest", "logsumexp", "distance"):
            assert line[name] == pytest.approx(head[name][row], rel=1e-4, abs=1e-6)
        assert line["largest_key"] == head["largest_key"][row]
    file = tmp_path / "rows.ndjson"
    assert cli("run", "--qkv", vectors, "--causal", "-o", file).code == 0
    assert file.read_text(encoding="utf-8") == done.out


def test_a_stream_is_written_while_it_is_computed(vectors):
    program = (
        "import sys, attnscope.cli.long as long, attnscope.sources.measured as measured\n"
        "long._BLOCK = 16\n"
        "plain, calls = measured.measured_run, []\n"
        "def stops(*given, **more):\n"
        "    calls.append(1)\n"
        "    if len(calls) == 3:\n"
        "        raise KeyboardInterrupt\n"
        "    return plain(*given, **more)\n"
        "measured.measured_run = stops\n"
        "from attnscope.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "run", "--qkv", vectors, "--format", "ndjson"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 130
    assert len(done.stdout.splitlines()) == 1 + 2 * 16 * 4


def test_an_interrupted_file_is_not_there(cli, vectors, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("attnscope.sources.measured.measure", interrupted)
    file = tmp_path / "rows.ndjson"
    assert cli("run", "--qkv", vectors, "--format", "ndjson", "-o", file).code == 130
    assert list(tmp_path.iterdir()) == []


def test_a_map_as_a_page_and_a_picture(cli, vectors, tmp_path):
    page, picture = tmp_path / "map.html", tmp_path / "map.svg"
    asked = ("run", "--qkv", vectors, "--causal", "--measures", "--grid", "25")
    assert cli(*asked, "-o", page).code == 0
    assert "largest" in page.read_text(encoding="utf-8")
    assert cli(*asked, "--head", "1", "-o", picture).code == 0
    assert picture.read_text(encoding="utf-8").count("<rect") > 25
    document = cli(*asked, "--json").json
    shape = torch.tensor(heads_of(document)[0]["map"]["max"]).shape
    assert shape == (25, 25)


def test_saved_measures_are_shown_again(cli, vectors, tmp_path):
    file = tmp_path / "measures.safetensors"
    first = cli("run", "--qkv", vectors, "--causal", "--measures", "--save", file, "--json")
    assert first.code == 0, first.err
    assert cli("show", file, "--json").out == first.out
    plain = file.stat().st_size
    assert cli("show", file, "--head", "2", "--query", "5").code == 0
    kept = tmp_path / "kept.safetensors"
    cli("run", "--qkv", vectors, "--causal", "--measures", "--save", kept, "--keep-qkv")
    assert kept.stat().st_size > plain + 4 * SIZE * 8 * 4
    refused = cli("show", file, "--layer", "0")
    assert refused.code == 2
    assert "--layer is for a record" in refused.err


def test_a_long_sentence_is_summarised_and_special_tokens_count(cli, monkeypatch):
    monkeypatch.setattr("attnscope.cli.long.LONG", 20)
    done = cli("run", " ".join(["a", "b", "c"] * 20), "--causal")
    assert done.code == 0
    assert "measured" in done.out
    assert "60 queries × 60 keys: measured without their matrices" in done.err


def test_a_model_is_measured_layer_by_layer(cli, model):
    text = "the cat sat on the mat because it was tired"
    asked = ("run", text, "--model", model, "--layer", "1")
    done = cli(*asked, "--measures", "--json")
    assert done.code == 0, done.err
    jsonschema.validate(done.json, SCHEMA)
    weights = weights_of(cli(*asked, "--json").json)
    for number, head in enumerate(heads_of(done.json)):
        assert head["largest"] == pytest.approx(weights[number].amax(1).tolist(), abs=1e-5)
    (layer,) = done.json["layers"]
    assert layer["name"] == "1"
    assert layer["site"]["proof"]["holds"]
    one = cli(*asked, "--measures", "--head", "2", "--json").json
    assert [head["head"] for head in heads_of(one)] == [2]
    assert heads_of(one)[0]["entropy"] == pytest.approx(heads_of(done.json)[2]["entropy"])


def test_a_window_of_a_model(cli, model):
    asked = ("run", "the cat sat on the mat", "--model", model, "--layer", "0")
    done = cli(*asked, "--rows", "2:5", "--keys", ":4", "--json")
    assert done.code == 0, done.err
    jsonschema.validate(done.json, SCHEMA)
    whole = weights_of(cli(*asked, "--json").json)
    torch.testing.assert_close(weights_of(done.json), whole[:, 2:5, :4], atol=1e-6, rtol=0)
    assert done.json["layers"][0]["proof"]["holds"]
    assert [token["position"] for token in done.json["tokens"]] == [2, 3, 4]


def test_a_model_over_the_budget_is_measured_or_proven(cli, model):
    asked = ("run", "the cat sat on the mat", "--model", model, "--max-memory", "1KB")
    overview = cli(*asked)
    assert overview.code == 0, overview.err
    assert "proven: every record gives the model's own output" in overview.out
    assert "4 : 2  causal" in overview.out
    refused = cli(*asked, "--layer", "1")
    assert refused.code == 2
    assert "the measures need" in refused.err


def test_an_altered_output_is_not_proven(cli, model, monkeypatch):
    monkeypatch.setattr("attnscope.sources.model.measured.prove", lambda *_: 0.25)
    done = cli("run", "the cat", "--model", model, "--layer", "0", "--measures", "--strict")
    assert done.code == 1
    assert "layer 0 has relative error 0.25" in done.err
    assert "NOT proven" in done.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--rows", "9:3"), '--rows "9:3" is empty'),
        (("--rows", "x"), '--rows "x" is no range'),
        (("--rows", "70:80"), '--rows "70:80" is out of range: there are 75 queries'),
        (("--keys", "75"), '--keys "75" is out of range: there are 75 keys'),
        (("--rows", "1:2", "--top", "3"), "Give one of them"),
        (("--rows", "1:2", "--query", "3"), "--rows and --query both choose queries"),
        (("--top", "-1"), "--top -1 is too small"),
        (("--grid", "0"), "--grid 0 is too small"),
        (("--max-memory", "much"), '--max-memory "much" is no size'),
        (("--measures", "--show", "weights"), "--show picks steps, and a measured run has no"),
        (("--measures", "--head", "7"), "--head 7 is out of range: there are 4 heads"),
        (("--measures", "--mask-method", "renormalize"), "the renormalize method needs whole"),
        (("--keep-qkv",), "--keep-qkv without --save"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_is_one_line(cli, vectors, arguments, said):
    done = cli("run", "--qkv", vectors, *arguments)
    assert done.code == 2
    assert said in done.err
    assert done.out == ""


def test_measures_of_a_model_need_a_layer_and_one_text(cli, model):
    done = cli("run", "the cat", "--model", model, "--measures")
    assert "Choose with --layer N" in done.err
    done = cli("run", "the cat", "--text", "a", "--model", model, "--measures", "--layer", "0")
    assert "measures one text as it is" in done.err
