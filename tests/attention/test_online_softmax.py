"""One pass over blocks ends where the whole softmax ends."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnscope.attention import engine
from attnscope.attention.call import AttentionCall
from attnscope.attention.masks import from_tensor
from attnscope.attention.online_softmax import online_row, safe_softmax

BLOCKS = (1, 2, 3, 6, 100)


@st.composite
def rows(draw):
    """A call of one query with given scores: the key holds them, the query is 1."""
    size = draw(st.integers(1, 9))
    number = st.floats(-1e4, 1e4) | st.floats(-3, 3)
    scores = draw(st.lists(number, min_size=size, max_size=size))
    seen = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    values = draw(st.lists(st.floats(-100, 100), min_size=2 * size, max_size=2 * size))
    sink = draw(st.none() | number)
    return AttentionCall(
        torch.ones(1, 1, 1, dtype=torch.float64),
        torch.tensor(scores, dtype=torch.float64).view(1, size, 1),
        torch.tensor(values, dtype=torch.float64).view(1, size, 2),
        scale=1.0,
        mask=from_tensor(torch.tensor([seen])),
        sinks=None if sink is None else torch.tensor([sink], dtype=torch.float64),
    )


def online(call, block):
    steps = engine.compute(call)
    sink = None if call.sinks is None else call.sinks[0]
    row = online_row(steps.logits[0, 0], steps.visible[0, 0], call.value[0], block, sink)
    return steps, row


@given(rows(), st.sampled_from(BLOCKS))
@settings(max_examples=300, deadline=None)
def test_it_ends_in_the_same_weights_and_context(call, block):
    steps, row = online(call, block)
    assert torch.allclose(row.weights, steps.weights[0, 0], rtol=1e-12, atol=1e-14)
    assert torch.allclose(row.context, steps.context[0, 0], rtol=1e-11, atol=1e-11)
    assert torch.allclose(row.logsumexp, steps.logsumexp[0, 0], rtol=1e-12, atol=1e-12)
    assert [b.start for b in row.blocks] == list(range(0, call.keys, block))
    assert row.blocks[-1].end == call.keys


@given(rows())
@settings(max_examples=100, deadline=None)
def test_the_softmax_worked_out_is_the_softmax(call):
    steps = engine.compute(call)
    sink = None if call.sinks is None else call.sinks[0]
    worked = safe_softmax(steps.logits[0, 0], sink)
    if bool(steps.visible.any()):
        quotient = worked.exponentials / worked.total
        assert torch.allclose(quotient, steps.weights[0, 0], rtol=1e-12, atol=1e-14)
    else:
        assert not worked.exponentials.any()


def call_of(scores, seen, sinks=None):
    size = len(scores)
    return AttentionCall(
        torch.ones(1, 1, 1, dtype=torch.float64),
        torch.tensor(scores, dtype=torch.float64).view(1, size, 1),
        torch.arange(size, dtype=torch.float64).view(1, size, 1),
        scale=1.0,
        mask=from_tensor(torch.tensor([seen])),
        sinks=sinks,
    )


@pytest.mark.parametrize("block", BLOCKS)
def test_a_first_block_that_is_all_hidden(block):
    call = call_of([9e3, 1e4, -1e4, 2.0, 3.0, 4.0], [False, False, False, True, True, True])
    steps, row = online(call, block)
    assert torch.allclose(row.weights, steps.weights[0, 0], rtol=1e-13)
    assert torch.allclose(row.context, steps.context[0, 0], rtol=1e-13)
    if block <= 3:
        first = row.blocks[0]
        assert (float(first.maximum), float(first.total)) == (-torch.inf, 0.0)
        assert float(first.rescaling) == 0.0


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("sinks", [None, torch.tensor([0.5], dtype=torch.float64)])
def test_a_blind_row_is_zero_whatever_its_values_are(block, sinks):
    nan = float("nan")
    logits = torch.full((3,), nan, dtype=torch.float64)
    values = torch.full((3, 2), nan, dtype=torch.float64)
    seen = torch.zeros(3, dtype=torch.bool)
    row = online_row(logits, seen, values, block, None if sinks is None else sinks[0])
    assert row.weights.tolist() == [0.0] * 3
    assert row.context.tolist() == [0.0] * 2
    assert float(row.logsumexp) == (-torch.inf if sinks is None else 0.5)


def test_running_numbers_by_hand():
    call = call_of([0.0, 2.0, 1.0], [True, True, True])
    _, row = online(call, 1)
    first, second, third = row.blocks
    e = torch.tensor(1.0, dtype=torch.float64).exp()
    assert [float(b.maximum) for b in row.blocks] == [0.0, 2.0, 2.0]
    assert [float(b.block_maximum) for b in row.blocks] == [0.0, 2.0, 1.0]
    assert float(first.rescaling) == 0.0
    assert float(second.rescaling) == pytest.approx(float(e**-2))
    assert float(third.rescaling) == 1.0
    assert float(second.total) == pytest.approx(float(1 + e**-2))
    assert float(third.total) == pytest.approx(float(1 + e**-2 + e**-1))
    # values 0, 1, 2: o = 0, then 1, then 1 + 2/e
    assert float(third.context[0]) == pytest.approx(float(1 + 2 / e))


def test_a_nan_stays_one():
    call = call_of([0.0, float("nan"), 1.0], [True, True, True])
    for block in BLOCKS:
        _, row = online(call, block)
        assert bool(row.weights.isnan().all())
        assert bool(row.context.isnan().all())


def test_half_types_are_summed_in_float32():
    logits = torch.zeros(4096, dtype=torch.float16)
    values = torch.ones(4096, 1, dtype=torch.float16)
    row = online_row(logits, torch.ones(4096, dtype=torch.bool), values, 1)
    assert row.context.dtype is torch.float32
    assert float(row.blocks[-1].total) == 4096.0  # float16 would stop at 2048
