"""Attention of any length: options that contradict, and what must be said of the numbers."""

import dataclasses
import json
import os
import subprocess
import sys

import jsonschema
import pytest
import torch
from safetensors.torch import save_file

from attnscope.attention.call import AttentionCall
from attnscope.attention.memory import Budget
from attnscope.attention.verify import ObservedCall
from attnscope.errors import SizeError
from attnscope.sources import measured as sources_measured
from attnscope.sources.model import measured as model_measured
from attnscope.views.schema import SCHEMA
from tests.sources import tiny_models

SIZE = 30
TEXT, TARGET = "the cat sat on the mat", "a dog ran away and the cat"


def file_of(folder, **changed):
    generator = torch.Generator().manual_seed(3)
    tensors = {n: torch.randn(2, SIZE, 4, generator=generator) for n in ("query", "key", "value")}
    path = folder / "qkv.safetensors"
    save_file(tensors | changed, path)
    return path


@pytest.fixture
def vectors(tmp_path):
    return file_of(tmp_path)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_models.save_decoder(tmp_path_factory.mktemp("mistakes") / "decoder")


@pytest.fixture(scope="module")
def two_sided(tmp_path_factory):
    return tiny_models.save_t5(tmp_path_factory.mktemp("mistakes") / "t5")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--measures", "--norms"), "--norms is about matrices"),
        (("--format", "ndjson", "--norms"), "--norms is about matrices"),
        (("--format", "ndjson", "--show", "weights"), "--show picks steps"),
        (("--format", "ndjson", "--rows", "3:5"), "--format ndjson writes measures of whole rows"),
        (("--format", "ndjson", "--grid", "4"), "--grid measures a map, and ndjson shows none"),
        (("--grid", "4"), "--grid measures a map, and table shows none"),
        (("--grid", "4", "--query", "3", "--json"), "--grid is a map of all rows, and --query"),
        (("--grid", "4", "--heatmap", "--downsample", "2"), "of all rows, and --downsample is"),
        (("--query", "3", "--top", "2", "--output", "x.svg"), "a map is of all rows"),
        (("--max-memory", "0.4b"), '--max-memory "0.4b" is no size'),
        (("--rows", "1:3", "--mask-method", "renormalize"), "a window of it is computed"),
        # measured because matrices do not fit: what they alone can show is refused before
        (("--norms", "--json", "--max-memory", "1KB"), "--norms is about matrices"),
        (("--show", "weights", "--json", "--max-memory", "1KB"), "--show picks steps"),
    ],
    ids=" ".join,
)
def test_what_would_be_ignored_is_refused(cli, vectors, monkeypatch, arguments, said):
    monkeypatch.setattr(sources_measured, "measure", lambda *_, **__: pytest.fail("was measured"))
    done = cli("run", "--qkv", vectors, *arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_a_saved_row_is_shown_again(cli, vectors, tmp_path):
    file = tmp_path / "row.safetensors"
    first = cli("run", "--qkv", vectors, "--query", "7", "--measures", "--save", file, "--json")
    assert first.json["measured"]["grid"] is None
    jsonschema.validate(first.json, SCHEMA)
    again = cli("show", file, "--json")
    assert again.code == 0, again.err
    assert again.json["rows"] == [7]


def test_rows_without_keys_and_with_nan_are_said_whatever_the_format(cli, tmp_path):
    mask = torch.ones(SIZE, SIZE, dtype=torch.bool)
    mask[4] = False
    query = torch.ones(2, SIZE, 4)
    query[1, 6, 2] = torch.nan
    path = file_of(tmp_path, query=query, mask=mask)
    blind = "1 of 30 queries may see no key, so weights and context are 0: 4 q4"
    broken = "1 of 30 queries with NaN among the weights: 6 q6"
    done = cli("run", "--qkv", path, "--measures", "--json")
    assert done.json["warnings"] == [broken, blind]
    stream = cli("run", "--qkv", path, "--format", "ndjson")
    for text in (done.err, stream.err):
        assert f"warning: {broken}\nwarning: {blind}\n" in text


@pytest.mark.parametrize("asked", [("--measures", "--json"), ("--format", "ndjson"),
                                   ("--rows", "2:4", "--json")], ids=" ".join)  # fmt: skip
def test_narrow_numbers_are_said_to_be_widened(cli, vectors, asked):
    done = cli("run", "--qkv", vectors, "--dtype", "float16", *asked)
    assert "note: float16 vectors are widened: their weights are computed in float32" in done.err


def test_no_entropy_is_below_0(cli, tmp_path):
    generator = torch.Generator().manual_seed(1)
    alone = {name: torch.randn(2, 1, 4, generator=generator) for name in ("key", "value")}
    query = torch.randn(2, SIZE, 4, generator=generator)
    path = file_of(tmp_path, query=query, **alone)
    found = cli("run", "--qkv", path, "--measures", "--json").json["layers"][0]["heads"]
    assert min(min(head["entropy"]) for head in found) == 0
    window = cli("run", "--qkv", path, "--rows", ":", "--json").json["heads"]
    assert min(min(head["entropy"]) for head in window) == 0


def test_a_row_that_sees_keys_outside_the_window_is_not_blind(cli, tmp_path):
    mask = torch.ones(SIZE, SIZE, dtype=torch.bool)
    mask[4] = False
    path = file_of(tmp_path, mask=mask)
    done = cli("run", "--qkv", path, "--causal", "--rows", "2:6", "--keys", "20", "--json")
    assert done.json["warnings"] == [
        "1 of 4 queries may see no key, so weights and context are 0: 4 q4"
    ]
    assert "queries 2–5 of 30, key 20 of 30" in done.err


def test_a_window_in_which_nothing_is_seen_is_proven_by_whole_rows(cli, model, monkeypatch):
    asked = ("run", TEXT, "--model", model, "--layer", "1", "--rows", "1:3", "--keys", "4:")
    assert cli(*asked, "--json").json["warnings"] == []
    plain = model_measured.checked_window

    def altered(*given):
        result = plain(*given)
        steps = dataclasses.replace(result.steps, context=result.context * 2)
        return dataclasses.replace(result, steps=steps)

    monkeypatch.setattr(model_measured, "checked_window", altered)
    assert not cli(*asked, "--json").json["layers"][0]["proof"]["holds"]


def test_a_layer_of_an_encoder_keeps_its_tokens(cli, two_sided):
    asked = ("run", TEXT, "--model", two_sided, "--target", TARGET, "--layer", "encoder.1")
    dense = cli(*asked, "--json").json
    done = cli(*asked, "--measures", "--json").json
    assert done["queries"]["tokens"] == dense["tokens"]
    assert done["layers"][0]["site"]["part"] == dense["layers"][0]["part"] == "encoder"
    assert cli(*asked, "--measures", "--query", "mat", "--json").json["rows"] == [5]
    window = cli(*asked, "--rows", "2:4", "--json").json
    assert window["tokens"] == dense["tokens"][2:4]


def test_layers_over_different_tokens_are_refused_before_they_are_measured(
    cli, two_sided, monkeypatch
):
    monkeypatch.setattr(model_measured, "measured", lambda *_: pytest.fail("was measured"))
    done = cli(
        "run", TEXT, "--model", two_sided, "--target", TARGET, "--layer", "all", "--top", "3"
    )
    assert done.code == 2
    assert "these are calls over different tokens" in done.err


def test_downsample_says_how_large_the_map_is(cli, vectors, tmp_path):
    asked = ("run", "--qkv", vectors, "--measures", "--heatmap", "--downsample", "6")
    done = cli(*asked)
    assert done.code == 0, done.err
    assert "a map of 30 queries × 30 keys: each cell is a block of up to 5 queries × 5 keys" in (
        done.err
    )
    assert "down-sampled" not in done.err
    file = tmp_path / "map.safetensors"
    cli("run", "--qkv", vectors, "--measures", "--grid", "15", "--save", file)
    done = cli("show", file, "--heatmap", "--downsample", "6")
    assert done.code == 2
    assert "the map has 15 × 15 cells, and --downsample 6 asks for fewer" in done.err
    assert cli("show", file, "--heatmap", "--downsample", "15").code == 0


def test_rows_of_observed_weights_stand_where_they_stood():
    weights = torch.rand(2, 12, 12).softmax(dim=-1)
    call = ObservedCall(weights, torch.rand(2, 12, 3))
    whole = sources_measured.measured(call, sources_measured.MeasureAsked(window=2)).measures
    asked = sources_measured.MeasureAsked(window=2, rows=slice(7, 9))
    part = sources_measured.measured(call, asked).measures
    for name in ("local", "distance", "entropy"):
        torch.testing.assert_close(getattr(part, name), getattr(whole, name)[:, 7:9])


def test_a_window_of_a_half_type_takes_what_float32_takes():
    half = torch.zeros(1, 64, 2, dtype=torch.float16)
    with pytest.raises(SizeError, match=r"need 213\.0 KB"):
        sources_measured.checked_window(
            AttentionCall(half, half, half), slice(0, 64), slice(0, 64), Budget(150_000)
        )


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such terminals")
@pytest.mark.parametrize("asked", [("--measures",), ("--rows", "1:2"), ("--max-memory", "1KB")])
def test_data_does_not_go_where_the_progress_bar_is(model, asked):
    import pty

    layer = () if "--max-memory" in asked else ("--layer", "0")
    terminal, bar = pty.openpty()
    command = [sys.executable, "-m", "attnscope", "run", TEXT, "--model", model, *layer, *asked]
    program = subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, stderr=bar)
    os.close(bar)
    said = b""
    while True:
        try:
            block = os.read(terminal, 65536)
        except OSError:  # closed: the program has ended
            break
        if not block:
            break
        said += block
    out, _ = program.communicate()
    os.close(terminal)
    assert program.returncode == 0
    assert b"\x1b[?25l" in said  # the cursor was hidden: there was a bar
    jsonschema.validate(json.loads(out), SCHEMA)


def test_measures_that_do_not_fit_are_refused_before_the_text_is_run(cli, model, monkeypatch):
    asked = ("run", TEXT, "--model", model, "--layer", "all", "--measures")
    with monkeypatch.context() as patch:
        patch.setattr(model_measured, "forward", lambda *_: pytest.fail("the text was run"))
        done = cli(*asked, "--max-memory", "10KB")
    assert done.code == 2
    assert "the measures need" in done.err
    # a layer alone fits, and what is kept of all layers does not
    monkeypatch.setattr(model_measured, "_bytes_of", lambda _: 10**12)
    done = cli(*asked, "--max-memory", "1GB")
    assert done.code == 2
    assert "the measures need 1" in done.err
    assert cli(*asked[:5], "0", "--measures", "--max-memory", "1GB").code == 0


def test_a_window_that_does_not_fit_is_refused_before_the_text_is_run(cli, model, monkeypatch):
    monkeypatch.setattr(model_measured, "forward", lambda *_: pytest.fail("the text was run"))
    asked = ("run", TEXT, "--model", model, "--layer", "0", "--rows", "0:4", "--keys", "0:4")
    done = cli(*asked, "--max-memory", "1KB")
    assert done.code == 2
    assert "4 × 4 cells" in done.err
    assert "Give a smaller window" in done.err


def test_a_large_window_names_what_makes_it_smaller(cli, tmp_path):
    path = tmp_path / "vectors.safetensors"
    save_file({name: torch.ones(1, 90, 4) for name in ("query", "key", "value")}, path)
    done = cli("run", "--qkv", path, "--rows", "0:60", "--keys", "0:50")
    assert "--rows and --keys a smaller window" in " ".join(done.out.split())
    assert "--query" not in done.out
    assert "--query N one row" in " ".join(cli("run", "--qkv", path).out.split())


def test_a_map_is_explained_by_notes(cli, tmp_path):
    path = tmp_path / "vectors.safetensors"
    save_file({name: torch.ones(1, 90, 4) for name in ("query", "key", "value")}, path)
    done = cli("run", "--qkv", path, "--measures", "--grid", "9", "-o", tmp_path / "map.svg")
    assert done.code == 0
    assert "note: a map of 90 queries × 90 keys" in done.err
    assert "warning" not in done.err


def test_one_row_is_one_query_in_words(cli, model, monkeypatch):
    monkeypatch.setattr("attnscope.cli.long_model.LONG", 2)
    done = cli("run", TEXT, "--model", model, "--layer", "0", "--query", "2")
    assert "note: 1 query × 6 keys: measured" in done.err
