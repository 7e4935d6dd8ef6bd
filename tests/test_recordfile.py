"""Record files: the same calls again, and one clear line for what is damaged or forged."""

import dataclasses
import json
import struct

import pytest
import safetensors.torch
import torch

import attnscope
from attnscope.attention.call import AttentionCall
from attnscope.attention.engine import visible as engine_visible
from attnscope.attention.mask_kinds import band, chunks, window
from attnscope.attention.masks import CAUSAL, EVERYTHING, Mask, from_tensor
from attnscope.attention.verify import TOLERANCES, CapturedCall, ObservedCall
from attnscope.errors import RunFileError
from attnscope.model_run import ModelCall, ModelRun
from attnscope.recordfile import dump_record, is_record, load_record, save_record
from attnscope.run import Axis, Site, axis_of_positions, axis_of_tokens
from attnscope.runfile import dump_run, load_run
from attnscope.text.tokens import Tokens, Vocabulary
from tests.conftest import CONTROL
from tests.sources.models import numbers
from tests.views import handmade

HEADS, KEY_HEADS, TOKENS, WIDTH = 4, 2, 6, 8
ODD = torch.tensor([[True] * 3 + [False, True, True]] * TOKENS)[None]
WORDS = Tokens(
    "a b a b a b", ("a", "b") * 3, ("a", "b") * 3, (0, 1) * 3,
    tuple((i, i + 1) for i in range(0, 11, 2)), (True,) + (False,) * 5, (False,) * 6,
    Vocabulary("model", "tiny", 2, 2, {"a": 0, "b": 1}, True),
)  # fmt: skip


def scored(mask=CAUSAL, dtype=torch.float32, **more):
    query = numbers(HEADS, TOKENS, WIDTH, seed=1).to(dtype)
    key, value = (numbers(KEY_HEADS, TOKENS, WIDTH, seed=s).to(dtype) for s in (2, 3))
    return AttentionCall(query, key, value, mask=mask, **more)


def observed(scores=True):
    weights = numbers(HEADS, TOKENS, TOKENS).softmax(-1)
    return ObservedCall(weights, numbers(HEADS, TOKENS, 3), weights.log() if scores else None)


def call(record, name="0", layer=0, queries=None, keys=None, error=1e-7, **more):
    output = torch.zeros(record.heads, record.queries, record.value.shape[2]).to(record.value.dtype)
    given = {"step": 0, "text": 0, "kind": "self", **more}
    captured = CapturedCall(record, output + layer, f"layers.{layer}", layer, 0, given.pop("step"),
                            given.pop("text"), given.pop("kind"), "sdpa", **given)  # fmt: skip
    site = Site(name, layer, "", f"layers.{layer}", 0, "sdpa", error, TOLERANCES[output.dtype])
    queries = queries or axis_of_positions("q", record.queries)
    return ModelCall(site, captured, queries, keys or queries)


def run(*calls, **more):
    return ModelRun("Tiny", calls[-1].queries, calls, provenance={"torch": "2"}, **more)


def again(tmp_path, *runs):
    path = tmp_path / "record.safetensors"
    path.write_bytes(dump_record(runs))
    return load_record(path)


MASKS = [
    EVERYTHING, CAUSAL, window(3), band(2), chunks(4), from_tensor(ODD), CAUSAL & from_tensor(ODD),
    from_tensor(numbers(HEADS, TOKENS, TOKENS) > 0, name="by head"),
]  # fmt: skip


@pytest.mark.parametrize("dtype", list(TOLERANCES), ids=str)
@pytest.mark.parametrize("mask", MASKS, ids=lambda m: m.name)
def test_a_call_comes_back(tmp_path, mask, dtype):
    record = scored(
        mask,
        dtype,
        scale=0.25,
        softcap=30.0,
        bias=numbers(1, TOKENS, TOKENS).to(dtype).expand(HEADS, -1, -1),
        sinks=numbers(HEADS).to(dtype),
    )
    tokens = axis_of_tokens(WORDS)
    old = run(call(record, queries=tokens, step=2, text=1, dropout=0.5, unknown=("cu_seqlens",)))
    (new,) = again(tmp_path, old)
    mine, theirs = old.calls[0], new.calls[0]
    assert theirs.site == mine.site
    assert theirs.queries == tokens
    assert theirs.keys is theirs.queries
    assert theirs.mask_name == mask.name
    for name in ("query", "key", "value", "bias", "sinks"):
        a, b = getattr(record, name), getattr(theirs.captured.call, name)
        assert torch.equal(b.expand(a.shape), a), name
        assert b.dtype == dtype
    assert torch.equal(engine_visible(theirs.captured.call), engine_visible(record))
    for field in dataclasses.fields(CapturedCall):
        if field.name not in ("call", "output"):
            assert getattr(theirs.captured, field.name) == getattr(mine.captured, field.name)
    assert torch.equal(theirs.captured.output, mine.captured.output)
    assert (theirs.captured.call.scale, theirs.captured.call.softcap) == (0.25, 30.0)
    assert torch.equal(new.layer(0).layers[0].weights, old.layer(0).layers[0].weights)


@pytest.mark.parametrize("scores", [True, False])
def test_an_observed_call_comes_back(tmp_path, scores):
    (new,) = again(tmp_path, run(call(observed(scores), error=float("nan"))))
    record = new.calls[0].captured.call
    assert torch.equal(record.weights, observed().weights)
    assert torch.equal(record.value, observed().value)
    assert (record.scores is not None) is scores
    assert new.calls[0].mask_name == "observed"
    assert not new.calls[0].site.proven


def test_offsets_come_back(tmp_path):
    late = scored(window(3), query_offset=2)
    (new,) = again(tmp_path, run(call(late, query_offset=7, key_offset=5)))
    captured = new.calls[0].captured
    assert (captured.query_offset, captured.key_offset, captured.call.query_offset) == (7, 5, 2)
    assert torch.equal(engine_visible(captured.call), engine_visible(late))


def test_the_lengths_of_projected_values_come_back(tmp_path):
    plain = call(scored())
    lengths = numbers(HEADS, TOKENS)
    (new,) = again(tmp_path, run(dataclasses.replace(plain, projected_lengths=lengths)))
    assert torch.equal(new.calls[0].projected_lengths, lengths)


def test_what_a_run_says_comes_back(tmp_path):
    source = Axis(axis_of_positions("s", 4).labels, None, 3)
    old = run(call(scored()), source=source, without=("layers.1",), skipped=("x: why",),
              notes=("a note",), warnings=("a warning",))  # fmt: skip
    first, second = again(tmp_path, old, run(call(scored())))
    for name in ("model", "without", "skipped", "notes", "warnings", "provenance", "source"):
        assert getattr(first, name) == getattr(old, name), name
    assert second.source is None
    assert second.queries is first.queries  # equal axes of several runs are kept once


def test_keys_that_have_the_words_of_the_queries_stay_another_text(tmp_path):
    queries, keys = axis_of_positions("q", TOKENS), Axis(axis_of_positions("q", TOKENS).labels)
    (new,) = again(tmp_path, run(call(scored(EVERYTHING), queries=queries, keys=keys)))
    assert new.calls[0].keys is not new.calls[0].queries
    assert new.calls[0].keys == new.calls[0].queries


def tensors_of(data):
    return safetensors.torch.load(data)


def test_masks_and_biases_are_kept_once():
    bias = numbers(HEADS, TOKENS, TOKENS)
    calls = [call(scored(from_tensor(ODD.clone()), bias=bias.clone()), str(i), i) for i in range(3)]
    names = set(tensors_of(dump_record([run(*calls), run(*calls)])))
    assert sum(name.startswith("visible") for name in names) == 1
    assert sum(name.startswith("bias") for name in names) == 1
    assert not any(name.startswith("visible") for name in tensors_of(dump_record([run(call(
        scored(window(3))))])))  # fmt: skip


def test_a_mask_that_is_not_what_its_name_says_keeps_its_cells(tmp_path):
    liar = Mask("causal", lambda q, k: k >= q)
    (new,) = again(tmp_path, run(call(scored(liar))))
    record = new.calls[0].captured.call
    assert record.mask.name == "given"
    assert torch.equal(engine_visible(record), engine_visible(scored(liar)))


def test_equal_runs_give_equal_bytes(tmp_path):
    def make():
        return run(call(scored(from_tensor(ODD), torch.bfloat16)), call(observed(), "1", 1))

    data = dump_record([make(), make()])
    assert data == dump_record([make(), make()])
    assert dump_record(again(tmp_path, make(), make())) == data


def test_nan_and_infinity_come_back(tmp_path):
    record = scored(EVERYTHING)
    record.value[0, 0, 0], record.query[0, 1, 0] = float("nan"), float("-inf")
    (new,) = again(tmp_path, run(call(record)))
    assert new.calls[0].captured.call.value[0, 0, 0].isnan()
    assert new.calls[0].captured.call.query[0, 1, 0] == float("-inf")


def test_one_tensor_as_query_key_and_value(tmp_path):
    x = numbers(HEADS, TOKENS, WIDTH)
    (new,) = again(tmp_path, run(call(AttentionCall(x, x, x))))
    assert torch.equal(new.calls[0].captured.call.key, x)


def test_a_captured_model_comes_back(tmp_path):
    model = torch.nn.MultiheadAttention(16, 4, batch_first=True).eval()
    x = numbers(2, 5, 16)
    with attnscope.capture(model) as cap, torch.no_grad():
        model(x, x, x, need_weights=False)
    save_record(cap.runs, tmp_path / "x")
    for old, new in zip(cap.runs, load_record(tmp_path / "x"), strict=True):
        assert torch.equal(old.layer(0).layers[0].weights, new.layer(0).layers[0].weights)
    with pytest.raises(RunFileError, match="cannot be written"):
        save_record(cap.runs, tmp_path / "x")
    with pytest.raises(RunFileError, match="no attention call"):
        dump_record([])


AXIS = axis_of_positions("q", TOKENS)
GOOD = dump_record(
    [run(call(scored(from_tensor(ODD)), queries=AXIS), call(observed(), "1", 1, AXIS))]
)


def header_of(data):
    (size,) = struct.unpack("<Q", data[:8])
    return json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["attnscope-record"])


def changed(change=lambda header: header, **tensors):
    """Return a good file whose header went through `change`, some tensors exchanged."""
    text = json.dumps(change(header_of(GOOD)))
    return safetensors.torch.save({**tensors_of(GOOD), **tensors}, {"attnscope-record": text})


def top(**change):
    return lambda header: {**header, **change}


def in_run(**change):
    return lambda header: {**header, "runs": [{**header["runs"][0], **change}]}


def in_call(number=0, **change):
    def forge(header):
        calls = [dict(one) for one in header["runs"][0]["calls"]]
        calls[number] |= change
        return in_run(calls=calls)(header)

    return forge


DAMAGED = {
    "empty": (b"", "not a readable run file"),
    "truncated": (GOOD[:-40], "not a readable run file"),
    "future": (changed(top(format=99)), "has format 99"),
    "format true": (changed(top(format=True)), "damaged header"),
    "a header that is no object": (changed(lambda _: [1]), "damaged header"),
    "no runs": (changed(top(runs=[])), "it holds no runs"),
    "no calls": (changed(in_run(calls=[])), "run 0 holds no calls"),
    "no axes": (changed(top(axes=[])), "there is no axis 0"),
    "a field too many": (changed(in_run(extra=1)), "does not have the fields"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files(cli, tmp_path, name):
    data, said = DAMAGED[name]
    refused(cli, tmp_path, data, said)


def refused(cli, tmp_path, data, said=""):
    path = tmp_path / "record.safetensors"
    path.write_bytes(data)
    done = cli("show", path)
    assert done.code == 2
    assert said in done.err
    assert done.err.count("\n") == 1
    assert "record.safetensors" in done.err
    assert not CONTROL.search(done.err)


FORGED = {
    "model": in_run(model=5),
    "queries": in_run(queries=7),
    "source": in_run(source=-1),
    "warnings": in_run(warnings="abc"),
    "provenance": in_run(provenance={"torch": 5}),
    "labels": top(axes=[{"labels": ["a"], "tokens": None, "first": 0}]),
    "first": top(axes=[{"labels": ["a"] * 6, "tokens": None, "first": -1}]),
    "label types": top(axes=[{"labels": [1] * 6, "tokens": None, "first": 0}]),
    "tokens": top(axes=[{"labels": ["a"] * 6, "tokens": {}, "first": 0}]),
    "layer": in_call(layer=-1),
    "part": in_call(part="\x1b[31m"),
    "route": in_call(route="guess"),
    "kind": in_call(kind="sideways"),
    "error": in_call(error="small"),
    "negative error": in_call(error="-1.0"),
    "tolerance": in_call(tolerance=1e9),
    "nth": in_call(nth=1.5),
    "offset": in_call(key_offset=-3),
    "dropout": in_call(dropout=2.0),
    "huge": in_call(step=10**30),
    "scale": in_call(scale=None),
    "scale of an observed call": in_call(1, scale=1.0),
    "softcap": in_call(softcap=-1.0),
    "observed": in_call(observed=True, scale=None),
    "keys": in_call(keys=3),
    "mask without cells": in_call(visible=None),
    "rule with cells": in_call(mask="causal"),
    "missing tensor": in_call(visible="visible.9"),
    "missing bias": in_call(bias="bias.0"),
    "sinks of another call": in_call(sinks="run.0.call.0.query"),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_headers_are_refused(cli, tmp_path, name):
    refused(cli, tmp_path, changed(FORGED[name]), "is damaged")


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("run.0.call.0.query", torch.zeros(4, 6, 8, dtype=torch.int64)),
        ("run.0.call.0.query", torch.zeros(4, 5, 8)),
        ("run.0.call.0.key", torch.zeros(3, 6, 8)),
        ("run.0.call.0.value", torch.zeros(())),
        ("run.0.call.0.output", torch.zeros(4, 6, 7)),
        ("run.0.call.0.output", torch.zeros(4, 6, 8, dtype=torch.float64)),
        ("visible.0", torch.ones(1, 6, 6)),
        ("visible.0", torch.ones(3, 6, 6, dtype=torch.bool)),
        ("run.0.call.1.weights", torch.zeros(4, 6)),
        ("run.0.call.1.weights", torch.zeros(4, 6, 0)),
        ("run.0.call.1.value", torch.zeros(4, 5, 3)),
        ("run.0.call.1.scores", torch.zeros(4, 6, 5)),
        ("run.0.call.1.projected_lengths", torch.zeros(4, 5)),
    ],
)
def test_forged_tensors_are_refused(cli, tmp_path, name, tensor):
    refused(cli, tmp_path, changed(**{name: tensor}), "is damaged")


@pytest.mark.parametrize("rule", ["window 0", "window -3", "causal chunks 0", "window 99999999999"])
def test_rules_that_are_none(cli, tmp_path, rule):
    refused(cli, tmp_path, changed(in_call(mask=rule, visible=None)), "is damaged")


def test_forged_texts_reach_no_terminal(cli, tmp_path):
    evil = "x\x1b]0;t\x07"
    for change in (
        in_run(model=evil, warnings=[evil], notes=[evil], skipped=[evil]),
        in_call(name=evil, module_name=evil, mask=evil, unknown=[evil]),
        top(axes=[{"labels": [evil] * 6, "tokens": None, "first": 0}]),
    ):
        path = tmp_path / "record"
        path.write_bytes(changed(change))
        for options in ((), ("--format", "plain"), ("--layer", "all", "--show", "weights")):
            done = cli("show", path, *options)
            assert done.code == 0, done.err
            assert not CONTROL.search(done.out + done.err)


def test_run_files_and_record_files_are_told_apart(tmp_path):
    path, record = tmp_path / "run", tmp_path / "record"
    path.write_bytes(dump_run(handmade.run()))
    record.write_bytes(GOOD)
    assert (is_record(path), is_record(record), is_record(tmp_path / "none")) == (
        False,
        True,
        False,
    )
    with pytest.raises(RunFileError, match="is a run file, and no record file"):
        load_record(path)
    with pytest.raises(RunFileError, match="is a record of a program, and no run file"):
        load_run(record)
    with pytest.raises(RunFileError, match="there is no record file"):
        load_record(tmp_path / "none")


def test_show_lists_several_runs(cli, tmp_path):
    path = tmp_path / "record"
    path.write_bytes(
        dump_record([run(call(scored())), run(call(observed(), error=1.0), call(scored(), "1", 1))])
    )
    done = cli("show", path, "--format", "csv")
    assert done.code == 0
    assert done.out.splitlines()[1:] == [
        "0,Tiny,1,1,6 × 6,yes,1.00e-07", "1,Tiny,2,2,6 × 6,1 of 2,1.00e+00"
    ]  # fmt: skip
    assert "--run N" in cli("show", path).out
    assert "NOT proven" in cli("show", path, "--run", "1").out
    assert cli("show", path, "--run", "0", "--layer", "0", "--json").json["schema"]
    assert cli("show", path, "--run", "all").out.count("attention calls") == 2
    for wrong in (("--run", "2"), ("--run", "x"), ("--layer", "0"), ("--json",)):
        done = cli("show", path, *wrong)
        assert done.code == 2
        assert "--run" in done.err or "run 0" in done.err


def test_a_run_file_has_no_runs_and_layers_to_choose(cli, tmp_path):
    (tmp_path / "run").write_bytes(dump_run(handmade.run()))
    for option in ("--run", "--layer"):
        done = cli("show", tmp_path / "run", option, "0")
        assert done.code == 2
        assert f"{option} is for a record" in done.err
