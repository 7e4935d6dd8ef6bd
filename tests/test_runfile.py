"""Run files: the same bytes again, and one clear line for what is damaged."""

import json
import struct
import xml.etree.ElementTree as ET

import pytest
import safetensors.torch
import torch

import attnscope
from attnscope.attention.engine import MaskMethod
from attnscope.errors import RunFileError
from attnscope.runfile import dump_run, load_run
from tests.conftest import CONTROL, LESSON_SENTENCE, ROOT
from tests.views import handmade

RUNS = [
    (LESSON_SENTENCE, "--causal"),
    (LESSON_SENTENCE, "--causal", "--mask-method", "renormalize", "--heads", "2"),
    ("Life is short", "--cross", "La vie est courte"),
    ("Life is short", "--variant", "cross"),
    ("--qkv", ROOT / "samples" / "qkv.json", "--causal", "--align", "bottom-right"),
    ("--qkv", ROOT / "samples" / "qkv.npz"),
    ("[red]x \x1b[0m 人生", "--tokenizer", ROOT / "samples" / "tokenizer.json"),
    ("a b c", "--dtype", "bfloat16"),
    ("a b c", "--dtype", "float64", "--heads", "3"),
    (" ".join(f"w{i}" for i in range(40)),),
]


@pytest.mark.parametrize("arguments", RUNS, ids=lambda a: " ".join(map(str, a))[:40])
def test_show_gives_the_bytes_of_the_run(cli, tmp_path, arguments):
    saved = tmp_path / "run.safetensors"
    assert cli("run", *arguments, "--save", saved).code == 0
    for options in (
        (), ("--json",), ("--format", "plain"), ("--format", "csv"), ("--query", "1"),
        ("--show", "all", "--precision", "9", "--width", "40"), ("--heatmap",),
        ("--format", "svg"), ("--format", "html"),
    ):  # fmt: skip
        first, again = cli("run", *arguments, *options), cli("show", saved, *options)
        assert (again.code, again.out, again.err) == (first.code, first.out, first.err), options
        assert again.out


@pytest.mark.parametrize("method", list(MaskMethod))
def test_nan_and_infinity_survive(tmp_path, method):
    run = handmade.run(method, heads=2)
    (tmp_path / "run").write_bytes(dump_run(run))
    again = load_run(tmp_path / "run")
    for name in ("scores", "scaled", "logits", "weights", "context", "logsumexp", "visible"):
        mine, theirs = getattr(run.layers[0].steps, name), getattr(again.layers[0].steps, name)
        assert torch.equal(mine.nan_to_num(7.5), theirs.nan_to_num(7.5)), name
        assert torch.equal(mine.isnan(), theirs.isnan())
    assert again.queries == run.queries
    assert (again.settings, again.warnings) == (run.settings, run.warnings)
    assert dump_run(again) == dump_run(run)


def test_equal_runs_give_equal_files():
    first, second = (attnscope.run_sentence(LESSON_SENTENCE) for _ in range(2))
    assert dump_run(first) == dump_run(second)


def test_every_mask_survives(tmp_path):
    run = attnscope.run_sentence("a b c", causal=True)
    (tmp_path / "run").write_bytes(dump_run(run))
    call = attnscope.load_run(tmp_path / "run").layers[0].call
    assert call.mask.name == "causal"
    assert torch.equal(attnscope.attend(call).weights, run.layers[0].weights)


def changed(data, change):
    """Return a run file whose JSON header went through `change`."""
    tensors = safetensors.torch.load(data)
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["attnscope"])
    return safetensors.torch.save(tensors, {"attnscope": json.dumps(change(header))})


def without(name):
    return lambda header: {k: v for k, v in header.items() if k != name}


GOOD = dump_run(handmade.run())
FOREIGN = safetensors.torch.save({"query": torch.zeros(1, 2, 3)})
DAMAGED = {
    "empty": (b"", "not a readable run file"),
    "garbage": (b"\x80\x04garbage" * 50, "not a readable run file"),
    "truncated": (GOOD[:-40], "not a readable run file"),
    "cut in the header": (GOOD[:200], "not a readable run file"),
    "a huge header": (b"\xff" * 8 + GOOD[8:], "not a readable run file"),
    "foreign": (FOREIGN, "no run that attnscope saved"),
    "future": (changed(GOOD, lambda h: {**h, "format": 99}), "has format 99"),
    "no version": (changed(GOOD, without("format")), "damaged header"),
    "no settings": (changed(GOOD, without("settings")), "is damaged"),
    "no labels": (changed(GOOD, lambda h: {**h, "queries": {}}), "is damaged"),
    "too few labels": (
        changed(GOOD, lambda h: {**h, "queries": {"labels": ["a"], "tokens": None, "first": 0}}),
        "4 × 4 vectors for 1 × 1 labels",
    ),
    "missing tensor": (
        changed(GOOD, lambda h: {**h, "layers": [*h["layers"], h["layers"][0]]}), "is damaged"
    ),
    "a header that is no object": (changed(GOOD, lambda _: [1]), "damaged header"),
    "other method": (
        changed(GOOD, lambda h: {**h, "layers": [{**h["layers"][0], "method": "\x1b[31m"}]}),
        "unknown mask method",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files(cli, tmp_path, name):
    data, said = DAMAGED[name]
    path = tmp_path / "run.safetensors"
    path.write_bytes(data)
    done = cli("show", path)
    assert done.code == 2
    assert said in done.err
    assert done.err.count("\n") == 1
    assert "run.safetensors" in done.err
    assert not CONTROL.search(done.err)


def test_a_file_that_is_not_there(cli, tmp_path):
    assert "there is no run file" in cli("show", tmp_path / "none").err
    with pytest.raises(RunFileError):
        load_run(tmp_path / "none")


def test_forged_labels_are_made_visible(cli, tmp_path):
    def forge(header):
        queries = {"labels": ["\x1b[31m", "b", "c", "d"], "tokens": None, "first": 0}
        return {**header, "queries": queries}

    path = tmp_path / "run.safetensors"
    path.write_bytes(changed(GOOD, forge))
    done = cli("show", path, "--show", "weights")
    assert done.code == 0
    assert "␛[31m" in done.out
    assert not CONTROL.search(done.out)


def test_save_does_not_overwrite_and_leaves_nothing_behind(cli, tmp_path):
    path = tmp_path / "run.safetensors"
    path.write_text("precious")
    assert cli("run", "a b", "--save", path).code == 2
    assert path.read_text() == "precious"
    assert cli("run", "a b", "--save", path, "--force").code == 0
    assert cli("run", "a b", "--save", tmp_path / "x", "--query", "9").code == 2
    assert not (tmp_path / "x").exists()


def setting(**change):
    return lambda header: {**header, "settings": {**header["settings"], **change}}


def layer(**change):
    return lambda header: {**header, "layers": [{**header["layers"][0], **change}]}


def token(**change):
    def forge(header):
        tokens = {**header["queries"]["tokens"], **change}
        return {**header, "queries": {**header["queries"], "tokens": tokens}}

    return forge


FORGED = {
    "heads": setting(heads="two"),
    "more heads": setting(heads=99),
    "dtype": setting(dtype=5),
    "method": setting(mask_method="\x1b[31m"),
    "seed": setting(seed=1.5),
    "scale": setting(scale=True),
    "other scale": setting(scale=0.25),
    "softcap": layer(softcap="x"),
    "offset": layer(query_offset=1.7),
    "huge offset": layer(query_offset=10**30),
    "other mask": layer(mask="none"),
    "other steps": layer(method="renormalize"),
    "no layers": lambda header: {**header, "layers": []},
    "ids": token(ids=["a", "b", "c", "d"]),
    "text": token(text=None),
    "spans": token(spans=[[0, "x"]] * 4),
    "spans outside": token(spans=[[0, 9999]] * 4),
    "special": token(special=[]),
    "pieces": token(pieces=[1, 2, 3, 4]),
    "vocabulary": token(vocabulary={"a": "b"}),
    "warnings": lambda header: {**header, "warnings": "abc"},
    "notes": lambda header: {**header, "notes": [None]},
    "provenance": lambda header: {**header, "provenance": {"torch": 5}},
    "has_inputs": lambda header: {**header, "has_inputs": "no"},
    "format 0": lambda header: {**header, "format": 0},
    "format true": lambda header: {**header, "format": True},
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_headers_are_refused(cli, tmp_path, name):
    path = tmp_path / "run.safetensors"
    path.write_bytes(changed(GOOD, FORGED[name]))
    done = cli("show", path)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert not CONTROL.search(done.err)


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("layer.0.visible", torch.ones(3, 4, 4, dtype=torch.bool)),
        ("layer.0.visible", torch.ones(1, 4, 4)),
        ("layer.0.weights", torch.zeros(1, 4, 4, dtype=torch.int64)),
        ("layer.0.scores", torch.zeros(1, 4, 4, dtype=torch.complex64)),
        ("layer.0.context", torch.zeros(1, 3, 2)),
        ("layer.0.strongest_keys", torch.full((1, 4, 2), 99)),
        ("layer.0.strongest_keys", torch.full((1, 4, 2), -99)),
        ("layer.0.strongest_weights", torch.zeros(1, 4)),
        ("layer.0.entropy", torch.zeros(2, 4)),
        ("layer.0.query", torch.zeros(())),
        ("inputs.query_inputs", torch.zeros(2, 2)),
        ("inputs.w_query", torch.zeros(1, 1, 1)),
    ],
)
def test_forged_tensors_are_refused(cli, tmp_path, name, tensor):
    (size,) = struct.unpack("<Q", GOOD[:8])
    text = json.loads(GOOD[8 : 8 + size])["__metadata__"]["attnscope"]
    tensors = {**safetensors.torch.load(GOOD), name: tensor}
    path = tmp_path / "run.safetensors"
    path.write_bytes(safetensors.torch.save(tensors, {"attnscope": text}))
    done = cli("show", path)
    assert done.code == 2
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("format_", ["table", "plain", "json", "csv", "svg", "html"])
def test_forged_texts_reach_no_terminal(cli, tmp_path, format_):
    path = tmp_path / "run.safetensors"
    path.write_bytes(changed(GOOD, setting(variant="x\x1b]0;t\x07", device="\x9b31m")))
    done = cli("show", path, "--format", format_)
    assert done.code == 0, done.err
    assert not CONTROL.search(done.out)
    if format_ == "svg":
        ET.fromstring(done.out)
