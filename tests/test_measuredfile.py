"""Files of measures: the same numbers again, and one clear line for what is damaged or forged."""

import dataclasses
import json
import struct

import pytest
import safetensors.torch
import torch

from attnscope.attention.call import AttentionCall
from attnscope.attention.engine import visible as engine_visible
from attnscope.attention.mask_kinds import band, chunks, window
from attnscope.attention.masks import CAUSAL, EVERYTHING, Mask, from_tensor
from attnscope.attention.measured import Measures
from attnscope.attention.verify import ObservedCall
from attnscope.errors import RunFileError
from attnscope.measuredfile import dump_measured, is_measured, load_measured
from attnscope.run import Axis
from attnscope.runfile import dump_run
from attnscope.views import plain
from attnscope.views.look import Look
from attnscope.views.measured_json import render_measured
from attnscope.views.measured_parts import parts_of_measured
from attnscope.views.measured_rows import csv_of_measured
from tests.conftest import CONTROL
from tests.sources.models import numbers
from tests.test_recordfile import GOOD as A_RECORD
from tests.views import handmade
from tests.views.measured import by_hand, call, observed, of_call, site

ODD = torch.tensor([[True] * 3 + [False, True, True]] * 6)


def again(tmp_path, run, **options):
    path = tmp_path / "measures.safetensors"
    path.write_bytes(dump_measured(run, **options))
    return load_measured(path)


def same(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a.nan_to_num(7.5), b.nan_to_num(7.5))
    return a == b


def runs():
    yield "causal", of_call(call())
    yield "float64", of_call(call(dtype=torch.float64), special=False)
    yield "bfloat16", of_call(call(dtype=torch.bfloat16))
    yield "no map, no keys", of_call(call(), grid=None, top=0)
    yield "more keys asked than there are", of_call(call(2, mask=EVERYTHING), top=10)
    yield "with context", of_call(call(), keep_context=True)
    yield "crossed", of_call(call(4, 9, mask=EVERYTHING))
    yield "late rows", of_call(call(4, 9, query_offset=5))
    yield "one head", of_call(call()).only(3)
    yield "observed", of_call(observed(), one_site=site(error=float("nan")))
    yield "words", by_hand(named=True, heads=2, layers=2, warnings=("w",), notes=("n",))
    sinks = {"sinks": numbers(4), "softcap": 20.0, "bias": numbers(1, 6, 6), "scale": 0.25}
    yield "extras", of_call(call(**sinks), one_site=site())


RUNS = list(runs())
NAMES = [name for name, _ in RUNS]


@pytest.mark.parametrize(("name", "run"), RUNS, ids=NAMES)
def test_measures_come_back(tmp_path, name, run):
    new = again(tmp_path, run)
    for field in ("settings", "queries", "keys", "top", "window", "grid", "warnings", "notes",
                  "provenance", "crossed"):  # fmt: skip
        assert getattr(new, field) == getattr(run, field), field
    for mine, theirs in zip(run.layers, new.layers, strict=True):
        assert (mine.numbers, mine.key_heads) == (theirs.numbers, theirs.key_heads), name
        assert repr(mine.site) == repr(theirs.site)  # a NaN equals no NaN
        assert theirs.call is None
        for field in dataclasses.fields(Measures):
            old, read = (getattr(layer.measures, field.name) for layer in (mine, theirs))
            assert same(old, read), field.name


@pytest.mark.parametrize(("name", "run"), RUNS, ids=NAMES)
def test_every_view_is_the_same_again(tmp_path, name, run):
    new = again(tmp_path, run, keep_qkv=True)
    for look in (Look(), Look(queries=(1,)), Look(head=run.layers[0].numbers[-1])):
        assert render_measured(new, look) == render_measured(run, look), name
        assert csv_of_measured(new, look) == csv_of_measured(run, look)
        texts = [plain.render(parts_of_measured(one, look), look) for one in (run, new)]
        assert texts[0] == texts[1]
    assert ('"weights"' in render_measured(new, Look(queries=(1,)))) is (name != "words")


@pytest.mark.parametrize(("name", "run"), RUNS, ids=NAMES)
@pytest.mark.parametrize("keep", [False, True])
def test_equal_runs_give_equal_bytes(tmp_path, name, run, keep):
    data = dump_measured(run, keep_qkv=keep)
    assert data == dump_measured(run, keep_qkv=keep), name
    assert data == dump_measured(again(tmp_path, run, keep_qkv=keep), keep_qkv=keep)
    assert (b'"layer.0.call.value"' in data) is (keep and name != "words")


MASKS = [
    EVERYTHING, CAUSAL, window(3), band(2), chunks(4), from_tensor(ODD), CAUSAL & from_tensor(ODD),
    from_tensor(numbers(4, 6, 6) > 0, name="by head"),
    Mask("causal", lambda q, k: k >= q),  # it has the name of a rule that it is not
    Mask("causal chunks 4", lambda q, k: (k <= q) & (k != 1), chunks(4).reach),
]  # fmt: skip


@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: mask.name)
@pytest.mark.parametrize("head", [None, 3])
def test_the_mask_of_a_call_comes_back(tmp_path, mask, head):
    run = of_call(call(mask=mask)).only(head)
    (old,), (new,) = run.layers, again(tmp_path, run, keep_qkv=True).layers
    assert torch.equal(
        engine_visible(new.call).expand(1 if head else 4, 6, 6),
        engine_visible(old.call).expand(1 if head else 4, 6, 6),
    )
    known = mask.name in ("none", "causal", "window 3", "window ±2", "causal chunks 4")
    lies = mask in MASKS[-2:]
    assert new.call.mask.name == ("given" if lies else mask.name)
    data = dump_measured(run, keep_qkv=True)
    assert (b'"layer.0.call.visible"' in data) is (lies or not known)


def test_what_a_call_has_comes_back(tmp_path):
    run = dict(RUNS)["extras"]
    old, new = run.layers[0].call, again(tmp_path, run, keep_qkv=True).layers[0].call
    for name in ("query", "key", "value", "bias", "sinks"):
        assert same(getattr(old, name), getattr(new, name)), name
    assert (new.scale, new.softcap, new.query_offset) == (0.25, 20.0, 0)
    late = dict(RUNS)["late rows"]
    assert again(tmp_path, late, keep_qkv=True).layers[0].call.query_offset == 5
    seen = again(tmp_path, of_call(ObservedCall(observed().weights, observed().value)),
                 keep_qkv=True)  # fmt: skip
    assert seen.layers[0].call.scores is None


def test_where_the_rows_stand_comes_back(tmp_path):
    axis = Axis(("a", "b", "c", "d"), first=131_000)
    run = dataclasses.replace(by_hand(), queries=axis, keys=axis)
    assert again(tmp_path, run).queries.first == 131_000


GOOD = dump_measured(of_call(call(6, mask=from_tensor(ODD)), one_site=site()), keep_qkv=True)
OBSERVED = dump_measured(of_call(observed()), keep_qkv=True)


def header_of(data):
    (size,) = struct.unpack("<Q", data[:8])
    return json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["attnscope-measures"])


def changed(change=lambda header: header, data=GOOD, **tensors):
    """Return a good file whose header went through `change`, some tensors exchanged or taken."""
    text = json.dumps(change(header_of(data)))
    kept = {**safetensors.torch.load(data), **tensors}
    kept = {name: tensor for name, tensor in kept.items() if tensor is not None}
    return safetensors.torch.save(kept, {"attnscope-measures": text})


def top(**change):
    return lambda header: {**header, **change}


def in_layer(**change):
    return lambda header: {**header, "layers": [{**header["layers"][0], **change}]}


def in_part(owner, **change):
    return lambda header: in_layer(**{owner: {**header["layers"][0][owner], **change}})(header)


def refused(tmp_path, data, said):
    path = tmp_path / "measures.safetensors"
    path.write_bytes(data)
    with pytest.raises(RunFileError, match=said) as caught:
        load_measured(path)
    assert "measures.safetensors" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not CONTROL.search(str(caught.value))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not a readable file of measures"),
        (GOOD[:-40], "not a readable file of measures"),
        (changed(top(format=99)), "has format 99"),
        (changed(top(format=True)), "damaged header"),
        (changed(lambda _: [1]), "damaged header"),
        (changed(top(layers=[])), "it holds no layers"),
    ],
)
def test_damaged_files(tmp_path, data, said):
    refused(tmp_path, data, said)


SETTINGS = header_of(GOOD)["settings"]
FORGED = {
    "settings": top(settings={}),
    "dtype": top(settings={**SETTINGS, "dtype": "\x1b[31m"}),
    "fewer heads": top(settings={**SETTINGS, "heads": 3}),
    "top": top(top=-1),
    "another top": top(top=2),
    "window": top(window=0),
    "grid": top(grid=0),
    "another grid": top(grid=6),
    "no grid": top(grid=None),
    "labels": top(queries={"labels": ["a"], "tokens": None, "first": 0}),
    "label types": top(queries={"labels": [1] * 6, "tokens": None, "first": 0}),
    "no labels": top(queries={"labels": [], "tokens": None, "first": 0}),
    "first": top(queries={"labels": ["a"] * 6, "tokens": None, "first": -1}),
    "far": top(queries={"labels": ["a"] * 6, "tokens": None, "first": 2**50}),
    "tokens": top(queries={"labels": ["a"] * 6, "tokens": {}, "first": 0}),
    "other keys": top(keys={"labels": ["a"] * 5, "tokens": None, "first": 0}),
    "warnings": top(warnings="abc"),
    "provenance": top(provenance={"torch": 5}),
    "numbers": in_layer(numbers=[0, 1, 2, 2]),
    "negative numbers": in_layer(numbers=[-1, 0, 1, 2]),
    "numbers in disorder": in_layer(numbers=[3, 2, 1, 0]),
    "too few numbers": in_layer(numbers=[0, 1], key_heads=[0, 0]),
    "no numbers": in_layer(numbers=[], key_heads=[]),
    "key heads": in_layer(key_heads=[0, 0, 1]),
    "far key heads": in_layer(key_heads=[0, 0, 1, 9]),
    "nearest": in_layer(nearest=0),
    "a row before the keys": in_layer(nearest=-4),
    "another nearest": in_layer(nearest=-12),
    "huge": in_layer(nearest=-(2**62)),
    "cell": in_layer(map_cell=[2, 3]),
    "no cell": in_layer(map_cell=None),
    "zero cell": in_layer(map_cell=[0, 0]),
    "a field too many": in_layer(extra=1),
    "error": in_part("site", error="small"),
    "negative error": in_part("site", error="-1.0"),
    "tolerance": in_part("site", tolerance=1e9),
    "part": in_part("site", part="\x1b[31m"),
    "layer": in_part("site", layer=-1),
    "observed": in_part("call", observed=True),
    "scale": in_part("call", scale=None),
    "softcap": in_part("call", softcap=-1.0),
    "offset": in_part("call", query_offset=-1),
    "mask without cells": in_part("call", visible=False),
    "rule with cells": in_part("call", mask="causal"),
    "window 0": in_part("call", mask="window 0", visible=False),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_headers_are_refused(tmp_path, name):
    refused(tmp_path, changed(FORGED[name]), "is damaged")


def forged_tensors():
    """Return for each tensor one that is not there, of another type and of another shape."""
    for data in (GOOD, OBSERVED):
        for name, tensor in sorted(safetensors.torch.load(data).items()):
            kinds = {
                "taken": None,
                "type": tensor.to(torch.int16),
                "shape": torch.cat([tensor, tensor]),
            }
            for kind, other in kinds.items():
                if kind == "taken" and name.split(".", 2)[2] in ("special", "call.scores"):
                    continue  # a file may lack them
                yield pytest.param(data, name, other, id=f"{len(data)} {name} {kind}")
    for name, low, high in (
        ("largest_key", -2, 6), ("strongest_keys", -2, 6), ("received_max_query", -2, 6)
    ):  # fmt: skip
        for place in (low, high):
            tensor = safetensors.torch.load(GOOD)[f"layer.0.{name}"].clone()
            tensor.view(-1)[0] = place
            yield pytest.param(GOOD, f"layer.0.{name}", tensor, id=f"{name} {place}")
    edges = torch.tensor([0, 1, 2, 5])
    yield pytest.param(GOOD, "layer.0.distance_edges", edges, id="edges")
    context = torch.zeros(4, 5, 3)
    yield pytest.param(GOOD, "layer.0.context", context, id="context")


@pytest.mark.parametrize(("data", "name", "tensor"), list(forged_tensors()))
def test_forged_tensors_are_refused(tmp_path, data, name, tensor):
    refused(tmp_path, changed(data=data, **{name: tensor}), "is damaged")


def test_forged_texts_reach_no_terminal(tmp_path):
    evil = "x\x1b]0;t\x07"
    for change in (
        top(warnings=[evil], notes=[evil], provenance={evil: evil}),
        top(settings={**SETTINGS, "variant": evil, "model": evil}),
        top(queries={"labels": [evil] * 6, "tokens": None, "first": 0}),
        in_part("site", name=evil, module_name=evil, route=evil),
        in_part("call", mask=evil),
    ):
        path = tmp_path / "measures"
        path.write_bytes(changed(change))
        run = load_measured(path)
        for look in (Look(), Look(queries=(1,))):
            assert not CONTROL.search(plain.render(parts_of_measured(run, look), look))
            assert not CONTROL.search(csv_of_measured(run, look))
        assert not CONTROL.search("".join((*run.warnings, *run.notes, *run.provenance)))
        assert not CONTROL.search(run.layers[0].call.mask.name)


def test_the_kinds_of_files_are_told_apart(tmp_path):
    kinds = {
        "run": (dump_run(handmade.run()), "is a run file, and no file of measures.*attnscope show"),
        "record": (A_RECORD, "is a record of a program, and no file of measures"),
        "tensors": (
            safetensors.torch.save({"x": torch.zeros(1)}), "is a safetensors file.*run --qkv"
        ),
    }  # fmt: skip
    for name, (data, said) in kinds.items():
        path = tmp_path / name
        path.write_bytes(data)
        assert not is_measured(path)
        with pytest.raises(RunFileError, match=said):
            load_measured(path)
    path.write_bytes(GOOD)
    assert is_measured(path)
    assert not is_measured(tmp_path / "none")
    with pytest.raises(RunFileError, match="there is no file"):
        load_measured(tmp_path / "none")


def test_a_text_with_too_many_words_is_refused(monkeypatch):
    monkeypatch.setattr("attnscope.measuredfile._MOST_HEADER", 100)
    with pytest.raises(RunFileError, match="more words than a file can hold"):
        dump_measured(by_hand())


def test_a_call_of_a_long_text_has_no_cells_in_the_file():
    many = 3000
    query = numbers(1, many, 4)
    run = of_call(AttentionCall(query, query, query, mask=chunks(64)))
    assert len(dump_measured(run, keep_qkv=True)) < many * many
