"""Down-sampled runs: every cell is the largest weight of its block."""

import pytest
import torch

import attnscope
from attnscope.pooling import pooled
from attnscope.views.html_page import render_html
from tests.conftest import ROOT
from tests.views import handmade

TEXT = " ".join(f"w{i}" for i in range(23))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("size", [1, 4, 7, 22])
def test_each_cell_is_the_largest_weight_of_its_block(causal, size):
    run = attnscope.run_sentence(TEXT, causal=causal, heads=2)
    small = pooled(run, size)
    block = -(-23 // size)
    weights, visible = run.layers[0].weights, run.layers[0].visible
    scores = run.layers[0].scores
    for head in range(2):
        for i in range(len(small.queries)):
            for j in range(len(small.keys)):
                place = (head, slice(i * block, (i + 1) * block), slice(j * block, (j + 1) * block))
                seen = visible[place]
                assert bool(small.layers[0].visible[head, i, j]) == bool(seen.any())
                if seen.any():
                    best = weights[place].masked_fill(~seen, -1).max()
                    assert small.layers[0].weights[head, i, j] == best
                    where = (weights[place] == best) & seen
                    assert small.layers[0].scores[head, i, j] in scores[place][where]
    assert len(small.queries) <= size


def test_a_small_run_is_left_alone():
    run = attnscope.run_sentence("a b c")
    assert pooled(run, 3) is run


def test_a_nan_is_not_pooled_away():
    small = pooled(handmade.run(), 2)
    assert bool(small.layers[0].weights[0, 0, 0].isnan())


def test_labels_and_the_warning():
    small = pooled(attnscope.run_sentence(TEXT), 4)
    assert small.queries.labels[0] == "0–5 w0"
    assert small.queries.labels[-1] == "18–22 w18"
    assert "largest weight of a block of up to 6 queries × 6 keys" in small.warnings[0]
    crossed = pooled(attnscope.run_sentence("a b", cross=TEXT), 8)
    assert (len(crossed.queries), len(crossed.keys)) == (2, 8)


def test_a_page_holds_the_pooled_cells():
    small = pooled(attnscope.run_sentence(TEXT, causal=True), 5)
    assert "largest weight of a block" in render_html(small)
    assert torch.equal(small.layers[0].weights, small.layers[0].weights.clamp(0, 1))


def test_on_the_command_line(cli, tmp_path):
    corpus = ROOT / "samples" / "sentences" / "corpus.txt"
    done = cli("run", "--file", corpus, "--causal", "--heatmap", "--downsample", "8")
    assert "0–5 To" in done.out
    assert "down-sampled" in done.err
    words = ("run", "--file", corpus, "--downsample", "8", "--output")
    for ending in ("html", "svg", "png"):
        assert cli(*words, tmp_path / f"a.{ending}").code == 0
    for options in (("--json",), ("--heatmap", "--query", "1"), ("--heatmap", "--downsample", "0")):
        assert cli("run", "a b", "--downsample", "2", *options).code == 2
    assert cli("run", "a b", "--downsample", "2").code == 2


def test_the_budget_says_what_to_do(cli, tmp_path):
    text = " ".join(f"w{i}" for i in range(300))
    words = ("run", text, "--heads", "4", "--d-key", "700", "--output", tmp_path / "a.html")
    done = cli(*words, "--budget", "1")
    assert done.code == 2
    assert "above the budget of 1" in done.err
    assert "--downsample" in done.err
    assert not (tmp_path / "a.html").exists()
    assert cli(*words, "--budget", "1", "--downsample", "50").code == 0
    assert cli("run", "a", "--budget", "0").code == 2
