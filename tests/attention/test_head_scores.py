"""The scores of heads against the same means over dense weights, in float64."""

import math
from dataclasses import replace

import pytest
import torch

from attnscope.attention import engine
from attnscope.attention.call import AttentionCall
from attnscope.attention.gathered import (
    gathered,
    uniform_like,
    weights_between,
    with_rule,
    without_first,
)
from attnscope.attention.head_scores import MEASURES, TokenFacts, score_and_prove, score_heads
from attnscope.attention.mask_kinds import band, chunks, window
from attnscope.attention.masks import CAUSAL, EVERYTHING, from_tensor
from attnscope.attention.token_matches import token_matches
from attnscope.attention.verify import CapturedCall, ObservedCall, verify

LOCAL = 3
MASKS = {
    "none": EVERYTHING,
    "causal": CAUSAL,
    "window": window(4),
    "band": band(2),
    "chunks": chunks(5),
}


def call_of(length=19, heads=4, key_heads=2, mask=CAUSAL, seed=0, **more):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return AttentionCall(
        draw(heads, length, 6) * 2,
        draw(key_heads, length, 6),
        draw(key_heads, length, 5),
        mask=mask,
        **more,
    )


def ids_of(length, kinds=5, seed=3):
    return torch.randint(kinds, (length,), generator=torch.Generator().manual_seed(seed))


def naive(weights, seen, ids, special, no_first=False):
    """Every mean, row by row, as the words say it. Shapes: (heads, rows, keys)."""
    heads, rows, keys = weights.shape
    seen = seen.expand(heads, -1, -1)
    first = 1 if no_first else 0
    if no_first:
        weights = weights / weights[:, :, 1:].sum(-1, keepdim=True)
    found = [{name: [] for name in (*MEASURES, "max")} for _ in range(heads)]
    for h in range(heads):
        for i in range(rows):
            columns = [j for j in range(first, keys) if seen[h, i, j]]
            if not columns:
                continue
            row = {j: float(weights[h, i, j]) for j in columns}
            mine = found[h]
            mine["entropy"].append(-sum(w * math.log(w) for w in row.values() if w > 0))
            mine["largest"].append(max(row.values()))
            if not no_first:
                mine["first"].append(row.get(0, 0.0))
            mine["special"].append(sum(w for j, w in row.items() if special[j]))
            mine["local"].append(sum(w for j, w in row.items() if abs(i - j) < LOCAL))
            total = sum(row.values())
            mine["distance"].append(sum(w * abs(i - j) for j, w in row.items()) / total)
            for name, places in (
                ("previous", [i - 1]),
                ("next", [i + 1]),
                ("same", [j for j in range(i) if ids[j] == ids[i]]),
                ("induction", [j + 1 for j in range(i) if ids[j] == ids[i] and j + 1 < i]),
            ):
                places = [j for j in places if j in row]
                if places:
                    mine[name].append(sum(row[j] for j in places))
    return found


def agree(scores, found):
    for head, mine in enumerate(found):
        for name in MEASURES:
            assert scores.rows(name, head) == len(mine[name]), name
            expected = sum(mine[name]) / len(mine[name]) if mine[name] else None
            assert scores.mean(name, head) == pytest.approx(expected, abs=1e-10), name
        assert float(scores.largest[head]) == pytest.approx(max(mine["largest"]), abs=1e-12)


def facts_of(length, special=(0, 7)):
    marks = torch.zeros(length, dtype=torch.bool)
    marks[list(special)] = True
    return TokenFacts(marks, ids_of(length))


@pytest.mark.parametrize("no_first", [False, True])
@pytest.mark.parametrize("name", MASKS)
def test_every_mean_is_that_over_dense_weights(name, no_first):
    call = call_of(mask=MASKS[name])
    facts = facts_of(19)
    steps = engine.compute(call)
    found = naive(steps.weights, steps.visible, facts.ids, facts.special, no_first)
    agree(score_heads(call, facts, window=LOCAL, no_first=no_first), found)


@pytest.mark.parametrize("no_first", [False, True])
def test_bias_softcap_and_a_mask_by_head(no_first):
    generator = torch.Generator().manual_seed(9)
    seen = torch.rand(4, 19, 19, generator=generator) > 0.4
    seen[1, 5] = False  # a row that may see nothing
    seen[2, 6, 1:] = False
    seen[2, 6, 0] = True  # a row that sees the first token only
    bias = torch.randn(4, 19, 19, generator=generator, dtype=torch.float64)
    call = call_of(mask=from_tensor(seen), bias=bias, softcap=3.0)
    facts = facts_of(19)
    steps = engine.compute(call)
    found = naive(steps.weights, steps.visible, facts.ids, facts.special, no_first)
    agree(score_heads(call, facts, window=LOCAL, no_first=no_first), found)


def test_learned_sinks_take_their_share_first():
    sinks = torch.tensor([0.5, 2.0, -1.0, 8.0], dtype=torch.float64)
    call = call_of(sinks=sinks)
    facts = facts_of(19)
    steps = engine.compute(call)
    found = naive(steps.weights, steps.visible, facts.ids, facts.special)
    agree(score_heads(call, facts, window=LOCAL), found)
    # without the first key the sink keeps its share of what is left
    rest = score_heads(call, facts, window=LOCAL, no_first=True)
    hidden = replace(call, mask=CAUSAL & from_tensor((torch.arange(19) > 0).expand(19, 19)))
    weights = engine.compute(hidden).weights[3]
    previous = [float(weights[i, i - 1]) for i in range(2, 19)]
    assert rest.mean("previous", 3) == pytest.approx(sum(previous) / 17, abs=1e-12)


@pytest.mark.parametrize("no_first", [False, True])
@pytest.mark.parametrize("scored", [False, True])
def test_weights_that_were_only_observed(no_first, scored):
    call = call_of(key_heads=4)
    steps = engine.compute(call)
    observed = ObservedCall(steps.weights, call.value, steps.logits if scored else None)
    facts = facts_of(19)
    seen = steps.visible if scored else torch.ones_like(steps.visible)
    scores = score_heads(observed, facts, window=LOCAL, no_first=no_first)
    found = naive(steps.weights, steps.visible, facts.ids, facts.special, no_first)
    for head in range(4):
        for name in ("entropy", "special", "local", "distance", "largest"):
            expected = found[head][name]
            assert scores.mean(name, head) == pytest.approx(sum(expected) / len(expected)), name
    assert (scores.mean("next", 0) is None) == scored
    assert seen.shape == (1, 19, 19)


def test_what_does_not_apply_is_missing():
    scores = score_heads(call_of(), TokenFacts(), window=LOCAL)
    assert set(scores.sums) == {"entropy", "largest", "first"}
    assert scores.mean("next", 0) is None
    causal = score_heads(call_of(), TokenFacts(ids=ids_of(19)), window=LOCAL)
    assert causal.mean("next", 0) is None
    assert causal.mean("special", 0) is None
    different = score_heads(call_of(), TokenFacts(ids=torch.arange(19)), window=LOCAL)
    assert different.mean("same", 0) is None
    assert different.mean("induction", 0) is None
    one = call_of(length=1)
    assert score_heads(one, TokenFacts(), window=LOCAL, no_first=True) is None


def test_a_strong_first_key_leaves_an_exact_rest():
    key = torch.zeros(1, 6, 1)
    key[0, 0] = 30.0  # the others get about 1e-13 each: 1 − weight is 0 in float32
    key[0, :, 0] += torch.arange(6) * 0.5
    call = AttentionCall(torch.ones(1, 6, 1), key, key, 1.0)
    scores = score_heads(call, TokenFacts(ids=torch.arange(6)), window=LOCAL, no_first=True)
    rest = torch.softmax(key[0, 1:, 0], dim=0)
    assert scores.mean("largest", 0) == pytest.approx(float(rest.max()), rel=1e-6)


def test_several_texts_add_up():
    a, b = call_of(seed=1, mask=EVERYTHING), call_of(length=11, seed=2, mask=EVERYTHING)
    one, two = (score_heads(call, facts_of(call.keys), window=LOCAL) for call in (a, b))
    both = one.plus(two)
    expected = (one.mean("entropy", 1) * 19 + two.mean("entropy", 1) * 11) / 30
    assert both.mean("entropy", 1) == pytest.approx(expected, abs=1e-12)
    largest = torch.stack([one.largest, two.largest])
    assert not torch.equal(largest[0], largest[1])
    assert torch.equal(both.largest, largest.amax(dim=0))
    assert torch.equal(two.plus(one).largest, largest.amax(dim=0))
    alone = two.plus(score_heads(a, TokenFacts(), window=LOCAL))
    assert alone.rows("same", 0) == two.rows("same", 0)


def test_a_nan_reaches_the_means():
    call = call_of()
    call.query[1, 5] = math.nan
    scores = score_heads(call, facts_of(19), window=LOCAL)
    for name in ("entropy", "first", "previous", "largest", "distance"):
        assert math.isnan(scores.mean(name, 1)), name
        assert not math.isnan(scores.mean(name, 0)), name
    assert math.isnan(float(scores.largest[1]))
    row = next(i for i in range(19) if facts_of(19).ids[:i].eq(facts_of(19).ids[i]).any())
    call.query[0, row] = math.nan
    assert math.isnan(score_heads(call, facts_of(19), window=LOCAL).mean("same", 0))


def test_repetitions_in_blocks(monkeypatch):
    from attnscope.attention import token_matches as module

    call = call_of(length=60)
    ids = ids_of(60, kinds=3)
    whole = score_heads(call, TokenFacts(ids=ids), window=LOCAL)
    monkeypatch.setattr(module, "_ROWS", 7)
    monkeypatch.setattr(module, "_CELLS", 1)
    parts = score_heads(call, TokenFacts(ids=ids), window=LOCAL)
    for name in ("same", "induction"):
        assert parts.rows(name, 0) == whole.rows(name, 0) > 40
        assert parts.mean(name, 2) == pytest.approx(whole.mean(name, 2), abs=1e-12)


def test_no_matrix_of_queries_by_keys_is_made(monkeypatch):
    from attnscope.attention import token_matches as module

    largest = 0

    def spy(call, logsumexp, rows, keys):
        nonlocal largest
        largest = max(largest, call.heads * len(rows) * len(keys))
        return weights_between(call, logsumexp, rows, keys)

    monkeypatch.setattr(module, "weights_between", spy)
    monkeypatch.setattr(module, "_CELLS", 1 << 14)
    call = call_of(length=600, heads=2)
    logsumexp = torch.zeros(2, 600, dtype=torch.float64)
    token_matches(call, logsumexp, torch.zeros(600, dtype=torch.int64))
    assert 0 < largest <= 2 * 128 * 128


def test_the_error_is_that_of_the_proof():
    call = call_of()
    context = engine.compute(call).context
    for output in (context, context + 0.01, context * 0):
        captured = CapturedCall(call, output, "m", 0, 0, 0, 0, "self", "sdpa")
        _, error = score_and_prove(captured, facts_of(19), window=LOCAL)
        assert error == pytest.approx(verify(captured), rel=1e-6, abs=1e-13)
    broken = context.clone()
    broken[0, 3] = math.nan
    captured = CapturedCall(call, broken, "m", 0, 0, 0, 0, "self", "sdpa")
    assert math.isnan(score_and_prove(captured, facts_of(19), window=LOCAL)[1])


def test_uniform_rows_spread_over_what_they_may_see():
    call = call_of(mask=CAUSAL)
    scores = score_heads(uniform_like(call), facts_of(19), window=LOCAL)
    assert scores.mean("first", 0) == pytest.approx(sum(1 / n for n in range(1, 20)) / 19)
    assert scores.mean("previous", 0) == pytest.approx(sum(1 / n for n in range(2, 20)) / 18)
    seen = torch.rand(4, 19, 19) > 0.5
    assert uniform_like(call_of(mask=from_tensor(seen))).heads == 4
    weights = engine.compute(call_of(key_heads=4))
    observed = ObservedCall(weights.weights, weights.context, weights.logits)
    assert score_heads(uniform_like(observed), TokenFacts(), window=3).mean(
        "first", 0
    ) == pytest.approx(sum(1 / n for n in range(1, 20)) / 19)


def test_a_mask_of_cells_becomes_its_rule():
    causal = torch.ones(19, 19, dtype=torch.bool).tril()
    assert with_rule(call_of(mask=from_tensor(causal))).mask.name == "causal"
    assert with_rule(call_of(mask=from_tensor(torch.rand(19, 19) > 0.5))).mask.name == "given"


def test_gathered_rows_and_keys_in_any_order():
    call = call_of(mask=window(4), bias=torch.randn(19, 19, dtype=torch.float64), softcap=2.0)
    steps = engine.compute(call)
    rows, keys = torch.tensor([7, 2, 18]), torch.tensor([16, 0, 5, 4])
    weights, seen = weights_between(call, steps.logsumexp, rows, keys)
    cells = (slice(None), rows[:, None], keys[None])
    assert torch.allclose(weights, steps.weights[cells], atol=1e-12)
    assert torch.equal(seen, steps.visible[cells])
    assert gathered(call, rows, keys).keys == 4


def test_without_first_is_the_mask_without_it():
    call = call_of(mask=EVERYTHING, bias=torch.randn(19, 19, dtype=torch.float64))
    hidden = replace(call, mask=from_tensor((torch.arange(19) > 0).expand(19, 19)))
    rest = engine.compute(without_first(call)).weights
    assert torch.allclose(rest, engine.compute(hidden).weights[..., 1:], atol=1e-12)
