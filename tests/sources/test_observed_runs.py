"""Runs of attention that was only observed, and proofs that no longer hold."""

from dataclasses import replace

import pytest
import torch

import attnscope
from attnscope.attention.verify import ObservedCall
from attnscope.sources.capture.assemble import Proven
from attnscope.sources.capture.document import model_run
from attnscope.views.json_text import render_run
from attnscope.views.look import Look
from attnscope.views.shapes import shape_rows
from tests.sources.models import WIDTH, handwritten, numbers


def run_of(model, tokens=5):
    with torch.no_grad(), attnscope.capture(model) as captured:
        model(numbers(1, tokens, WIDTH))
    return captured.run


@pytest.mark.parametrize("how", ["nanogpt", "einsum"])
def test_nothing_overflows_where_nothing_is_known(how):
    layer = run_of(handwritten(how)).layer(0)
    assert layer.layers[0].observed
    assert layer.warnings == ()
    names = [name for name, _, _ in shape_rows(layer)]
    assert names == ["values", "weights", "context", "concatenation"]
    assert '"queries"' not in render_run(layer, Look()).split('"shapes"')[1].split("}")[0]


def test_values_that_are_not_finite_are_still_named():
    model = handwritten("nanogpt")
    with torch.no_grad():
        model.c_attn.weight[2 * WIDTH] = torch.inf
    warnings = run_of(model).layer(0).warnings
    assert any("value holds" in line and "not finite" in line for line in warnings)


def test_rows_that_dropout_changed_are_named():
    torch.manual_seed(0)
    model = handwritten("nanogpt", dropout=0.5)
    assert run_of(model).warnings == ()
    (warning,) = run_of(model.train()).warnings
    assert warning.startswith("layer 0: rows of its weights add to as much as 2: ")
    assert "model.eval()" in warning


def test_weights_that_were_let_go_are_not_added():
    (call,) = run_of(handwritten("nanogpt")).calls
    for number, said in ((2.0, 0), (torch.full((1, 5, 5), 2.0), 1)):
        weights = torch.as_tensor(number).expand(1, 5, 5)
        record = ObservedCall(weights, torch.zeros(1, 5, 4))
        captured = replace(call.captured, call=record, output=torch.zeros(1, 5, 4))
        assert len(model_run("m", [Proven(captured, 0.0)]).warnings) == said


@pytest.mark.parametrize("how", ["sdpa", "nanogpt"])
def test_a_record_that_was_changed_is_not_proven(how):
    run = run_of(handwritten(how))
    (call,) = run.calls
    same = run.layer(0)
    assert same.sites == (call.site,)
    captured = call.captured
    for output in (captured.output * 2, captured.output * torch.nan):
        changed = replace(run, calls=(replace(call, captured=replace(captured, output=output)),))
        shown = changed.layer(0)
        assert not shown.sites[0].proven
        assert any("the record now gives" in line for line in shown.warnings)
    # what was known not to hold keeps the error that it had
    broken = replace(call, site=replace(call.site, error=0.25))
    assert replace(run, calls=(broken,)).layer(0).sites[0].error == 0.25
