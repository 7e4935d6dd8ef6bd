"""Rows and columns merged: the mean over rows, the sum over keys."""

import pytest
import torch

from attnscope.attention import engine, strips
from attnscope.attention.gathered import without_first
from attnscope.attention.strips import merged, row_means, strip
from tests.attention.test_head_scores import call_of

WORDS = ((0,), (1, 2, 3), *((i,) for i in range(4, 17)), (17, 18))


@pytest.mark.parametrize("cells", [1, 1 << 20])
def test_words_by_words(monkeypatch, cells):
    monkeypatch.setattr(strips, "_CELLS", cells)
    call = call_of()
    steps = engine.compute(call)
    found, seen = strip(call, steps.logsumexp, merged(WORDS), merged(WORDS))
    for h in range(4):
        for i, row in enumerate(WORDS):
            for j, keys in enumerate(WORDS):
                block = steps.weights[h][list(row)][:, list(keys)]
                assert float(found[h, i, j]) == pytest.approx(float(block.sum()) / len(row))
                there = steps.visible[0][list(row)][:, list(keys)].any()
                assert bool(seen[h, i, j]) == bool(there)
    assert torch.allclose(found.sum(dim=2), torch.ones(4, len(WORDS), dtype=torch.float64))


def test_the_first_key_left_out():
    call = call_of()
    rest = without_first(call)
    logsumexp = engine.compute(rest).logsumexp
    found, seen = strip(rest, logsumexp, merged(WORDS), merged(WORDS, lost=1))
    assert float(found[:, :, 0].abs().max()) == 0.0
    assert not bool(seen[:, :, 0].any())
    assert torch.allclose(found[:, 1:].sum(dim=2), torch.ones(4, 15, dtype=torch.float64))


def test_nothing_is_left_of_the_first_key_alone():
    call = call_of()
    rest = without_first(call)
    logsumexp = engine.compute(rest).logsumexp
    found, seen = strip(rest, logsumexp, merged(WORDS), merged(((0,),), lost=1))
    assert found.shape == (4, len(WORDS), 1)
    assert not bool(seen.any())
    assert float(found.abs().max()) == 0.0


def test_means_of_rows():
    by_row = torch.arange(19.0)[None]
    assert row_means(by_row, merged(((3,), (4, 6)))).tolist() == [[3.0, 5.0]]
