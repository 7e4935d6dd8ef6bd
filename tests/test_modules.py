"""The lesson's modules: their forward pass is what a run shows, and they train."""

import pytest
import torch

import attnscope
from attnscope import CausalAttention, CrossAttention, MultiHeadAttention, SelfAttention
from tests.conftest import LESSON_SENTENCE


@pytest.fixture
def x():
    return attnscope.run_sentence(LESSON_SENTENCE).inputs.query_inputs


def seeded(kind, *arguments, **more):
    torch.manual_seed(123)
    return kind(*arguments, **more)


def near(mine, theirs):
    return torch.allclose(mine, torch.as_tensor(theirs), atol=1e-5, rtol=0)


def test_forward_equals_the_lesson(x, lesson):
    assert near(seeded(SelfAttention, 3, 2, 4)(x), lesson["self"]["context"])
    assert near(seeded(CausalAttention, 3, 2, 4)(x), lesson["causal"]["context"])
    golden = lesson["multi_head_4_heads_d_out_v_1"]
    assert near(seeded(MultiHeadAttention, 3, 2, 1, 4)(x), golden["context"])


def test_cross_with_the_lessons_second_sequence(x, lesson):
    golden = lesson["cross_second_sequence_drawn_after_the_weights"]
    module = seeded(CrossAttention, 3, 2, 4)
    second = torch.rand(8, 3)
    assert near(second, golden["x_2"])
    assert near(module(x, second), golden["context"])


def test_forward_equals_what_is_shown(x):
    run = attnscope.run_sentence(LESSON_SENTENCE, causal=True, heads=2)
    module = seeded(MultiHeadAttention, 3, 2, 2, 2, causal=True)
    shown = run.layers[0].context.transpose(0, 1).flatten(1)
    assert torch.equal(module(x), shown)


def test_cross_of_equal_sequences_is_self(x):
    crossed, itself = seeded(CrossAttention, 3, 2, 4), seeded(SelfAttention, 3, 2, 4)
    assert torch.equal(crossed(x, x), itself(x))
    heads = seeded(MultiHeadAttention, 3, 2, 4, 3)
    assert torch.equal(heads(x, x), heads(x))


@pytest.mark.parametrize("widths", [(3, 2, 4), (5, 1, 1), (2, 7, 3)])
def test_any_widths_and_batches(widths):
    module = SelfAttention(*widths)
    batch = torch.randn(2, 3, 6, widths[0])
    context = module(batch)
    assert context.shape == (2, 3, 6, widths[2])
    assert torch.allclose(context[1, 2], module(batch[1, 2]), atol=1e-5)


def test_no_word_looks_ahead(x):
    module = seeded(CausalAttention, 3, 2, 4)
    changed = x.clone()
    changed[-1] = 9.0
    assert torch.equal(module(x)[:-1], module(changed)[:-1])


def test_gradients_flow_to_every_parameter(x):
    module = seeded(MultiHeadAttention, 3, 2, 1, 4, causal=True)
    module(x).square().sum().backward()
    parameters = list(module.parameters())
    assert len(parameters) == 12
    for parameter in parameters:
        assert bool((parameter.grad != 0).any())
        assert bool(parameter.grad.isfinite().all())


def test_a_mistake_is_named():
    with pytest.raises(attnscope.AttnscopeError, match="unknown align"):
        attnscope.run_sentence("a", causal=True, align="left")
    with pytest.raises(attnscope.AttnscopeError, match="unknown mask method"):
        attnscope.run_sentence("a", mask_method="x")
    with pytest.raises(attnscope.AttnscopeError, match="unknown dtype"):
        attnscope.run_sentence("a", dtype="int8")


def test_batches_and_lengths_that_do_not_fit():
    with pytest.raises(attnscope.AttnscopeError, match="equal batches"):
        CrossAttention(3, 2, 4)(torch.rand(4, 5, 3), torch.rand(2, 6, 3))
    with pytest.raises(attnscope.AttnscopeError, match="aligned in two ways"):
        MultiHeadAttention(3, 2, 4, 2, causal=True)(torch.rand(2, 3), torch.rand(5, 3))
    with pytest.raises(attnscope.AttnscopeError, match="0 heads"):
        MultiHeadAttention(3, 2, 4, 0)
