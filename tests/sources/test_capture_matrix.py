"""The fidelity matrix of capture, and the page that is written from it."""

import pytest
import torch

from attnscope.sources.capture import CaptureError, capture
from tests.sources import table
from tests.sources.families import FAMILIES, WITHOUT
from tests.sources.matrix import (
    IMPLEMENTATIONS,
    built,
    cell,
    given,
    model_of,
    run,
    sides,
    tensors_of,
)
from tests.sources.models import transformers_or_skip

transformers_or_skip()

# WavLM itself gives torch two masks of different types
pytestmark = pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask")

TOLERANCE = 1e-5
PEAKED = 0.3

CELLS = [
    pytest.param(name, i, side, id=f"{name}-{i or 'default'}-{side or 'plain'}")
    for name in FAMILIES
    for i in IMPLEMENTATIONS
    for side in sides(name)
]


@pytest.mark.parametrize(("name", "implementation", "side"), CELLS)
def test_cell(name, implementation, side):
    family, found = FAMILIES[name], cell(name, implementation, side)
    assert found.identical
    assert found.recorded == family.calls
    assert found.skipped == ()
    assert found.unknown == frozenset()
    assert found.error <= TOLERANCE
    assert found.peak > PEAKED
    route = family.eager_route if found.implementation == "eager" else ""
    assert (route or family.route) in found.routes
    assert set(found.without) == set(family.layers)
    assert found.compared == sum(number is not None for number in family.expected)
    if implementation is not None or side not in family.differs_at:
        assert found.weights <= TOLERANCE


def test_there_are_enough_families():
    assert len(FAMILIES) >= 40


@pytest.mark.parametrize("name", [name for name in FAMILIES if FAMILIES[name].reference])
def test_a_missing_reference_has_its_reason(name):
    family = FAMILIES[name]
    assert len(family.reference) == family.calls
    assert bool(family.reason) == (None in family.reference)


DIFFERENT = [(name, side) for name in FAMILIES for side in FAMILIES[name].differs_at]


@pytest.mark.parametrize(("name", "side"), DIFFERENT, ids=str)
def test_a_default_that_is_not_compared_computes_something_else(name, side):
    assert FAMILIES[name].differs
    inputs = given(FAMILIES[name], side)
    real = inputs["attention_mask"].bool()
    default, eager = (next(tensors_of(run(model_of(name, i), inputs))) for i in IMPLEMENTATIONS)
    assert (default - eager)[real].abs().max() > 1e-2
    assert cell(name, None, side).weights > 1e-2


@pytest.mark.parametrize("name", WITHOUT)
def test_what_is_not_recorded_is_said(name):
    family = WITHOUT[name]
    model = built(family)
    inputs = given(FAMILIES["BERT"], tokens=family.tokens)
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = inputs["input_ids"][:, :7]
    plain = list(tensors_of(run(model, inputs)))
    with capture(model) as cap:
        seen = list(tensors_of(run(model, inputs)))
    assert family.random or all(map(torch.equal, plain, seen))
    assert len({(c.module_name, c.nth) for c in cap.calls}) == family.recorded
    if family.recorded:
        cap.require()
        said = "\n".join(cap.skipped)
        assert len(cap.skipped) == family.calls - family.recorded
    else:
        with pytest.raises(CaptureError) as caught:
            cap.require()
        said = str(caught.value)
    assert family.says in said
    assert cap.without == []


@pytest.mark.parametrize("name", FAMILIES)
def test_the_page_has_the_line(name, request):
    if request.config.getoption("--rewrite-golden"):
        return  # the next test writes it
    mine = table.row(name)
    theirs = [x for x in table.PATH.read_text(encoding="utf-8").splitlines() if f"| {name} |" in x]
    assert len(theirs) == 1
    assert table.same(mine, theirs[0]), f"{table.PATH.name} is out of date: {mine}"


def test_the_page(request):
    old = table.PATH.read_text(encoding="utf-8") if table.PATH.exists() else ""
    if request.config.getoption("--rewrite-golden"):
        new = table.document()
        lines, others = new.splitlines(), old.splitlines()
        if len(lines) == len(others) and all(map(table.same, lines, others)):
            return
        table.PATH.write_text(new, encoding="utf-8")
        pytest.fail(f"{table.PATH.name} was rewritten: look at the difference")
    assert old.startswith(table.INTRODUCTION)
    names = [x.split(" | ")[0].removeprefix("| ") for x in old.splitlines() if x.startswith("| ")]
    assert names == ["family", "---", *FAMILIES, "family", "---", *WITHOUT]
    assert table.WITHOUT_INTRODUCTION in old
    assert all(table.without(name) in old.splitlines() for name in WITHOUT)
