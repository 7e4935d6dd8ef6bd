"""A Run in a notebook."""

import html
import sys

import numpy as np
import pytest
import torch

import attnscope
from attnscope.errors import MissingExtraError
from tests.conftest import LESSON_SENTENCE
from tests.views import handmade


@pytest.fixture
def run():
    return attnscope.run_sentence(LESSON_SENTENCE, causal=True, heads=2)


def test_the_page_is_shown_in_a_sandboxed_frame(run):
    from attnscope.views.html_page import render_html

    frame = run._repr_html_()
    assert 'sandbox="allow-scripts"' in frame
    page = frame.split('srcdoc="')[1].rsplit('"></iframe>', 1)[0]
    assert html.unescape(page) == render_html(run)
    bundle = run._repr_mimebundle_()
    assert bundle["text/html"] == frame
    assert bundle["text/plain"] == "<Run: multi-head+causal attention, 6 × 6 tokens>"


def test_hostile_tokens_stay_inside_the_frame():
    run = handmade.run(pieces=('"></iframe><script>alert(1)</script>', "b"))
    frame = run._repr_html_()
    assert frame.count("<") == 2
    assert "<script" not in frame


def test_a_page_that_is_too_large_is_left_out(run, monkeypatch):
    monkeypatch.setattr("attnscope.views.notebook._BUDGET_BYTES", 100)
    assert run._repr_html_() is None
    assert set(run._repr_mimebundle_()) == {"text/plain"}


def test_to_numpy(run):
    assert np.array_equal(attnscope.to_numpy(run), run.layers[0].weights.numpy())
    assert attnscope.to_numpy(run, "context").shape == (2, 6, 2)
    narrow = attnscope.run_sentence("a b", dtype="bfloat16")
    assert attnscope.to_numpy(narrow).dtype == np.float32


def test_to_pandas(run):
    import pandas

    frame = attnscope.to_pandas(run)
    weights = frame[(frame.step == "weights") & (frame["head"] == 1)]
    table = weights.pivot(index="row", columns="column", values="value")
    expected = run.layers[0].weights[1].numpy()
    seen = run.layers[0].visible[1].numpy()
    assert np.allclose(table.to_numpy()[seen], expected[seen], atol=1e-7)
    assert bool(pandas.isna(table.to_numpy()[~seen]).all())
    assert weights.hidden.sum() == (~seen).sum()


def test_to_numpy_names_what_there_is(run):
    with pytest.raises(attnscope.AttnscopeError, match="unknown step"):
        attnscope.to_numpy(run, "zzz")


def test_pandas_is_named_when_it_is_missing(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match="pandas is not installed"):
        attnscope.to_pandas(run)


def test_a_nan_is_not_a_hidden_cell():
    frame = attnscope.to_pandas(handmade.run())
    cell = frame[(frame.step == "weights") & (frame.row == 0) & (frame.column == 0)].iloc[0]
    assert np.isnan(cell.value)
    assert not cell.hidden
    assert not torch.isfinite(handmade.run().layers[0].weights[0, 0, 0])
