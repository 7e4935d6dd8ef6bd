"""Laws of the engine, against torch's own kernel in float64."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from attnscope.attention import engine
from attnscope.attention.call import AttentionCall
from attnscope.attention.engine import MaskMethod
from attnscope.attention.masks import CAUSAL, EVERYTHING, from_tensor
from attnscope.attention.measures import entropy, strongest
from attnscope.attention.result import attend
from attnscope.errors import OptionError, ShapeError

TOLERANCE = 1e-12  # float64, a few hundred units in the last place


def drawn(heads=4, key_heads=2, queries=7, keys=9, width=5, value_width=3, seed=0, **more):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return AttentionCall(
        normal(heads, queries, width),
        normal(key_heads, keys, width),
        normal(key_heads, keys, value_width),
        **more,
    )


def masks(queries, keys, offset):
    generator = torch.Generator().manual_seed(1)
    random = torch.rand(4, queries, keys, generator=generator) > 0.4
    random[:, 2] = False  # a row that sees nothing
    return {
        "none": EVERYTHING,
        "causal": CAUSAL,
        "random by head": from_tensor(random, query_offset=offset),
        "causal and random": CAUSAL & from_tensor(random, query_offset=offset),
        "causal or random": CAUSAL | from_tensor(random, query_offset=offset),
    }


NAMES = list(masks(7, 9, 0))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("offset", [0, 2, -3])
@pytest.mark.parametrize("with_bias", [False, True])
def test_context_equals_torchs(name, offset, with_bias):
    bias = torch.randn(4, 7, 9, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    mask = masks(7, 9, offset)[name]
    call = drawn(mask=mask, bias=bias if with_bias else None, query_offset=offset, scale=0.3)
    seen = engine.visible(call).expand(4, 7, 9)
    added = torch.zeros(4, 7, 9, dtype=torch.float64).masked_fill(~seen, -torch.inf)
    theirs = functional.scaled_dot_product_attention(
        call.query[None],
        call.key.repeat_interleave(2, 0)[None],
        call.value.repeat_interleave(2, 0)[None],
        attn_mask=(added + bias if with_bias else added)[None],
        scale=0.3,
    )[0]
    assert (attend(call).context - theirs).abs().max() < TOLERANCE
    assert attend(call).reference_gap < TOLERANCE


@pytest.mark.parametrize("name", NAMES)
def test_blocks_equal_the_whole(name):
    call = drawn(mask=masks(7, 9, 0)[name], bias=torch.rand(1, 7, 9, dtype=torch.float64))
    whole = engine.compute(call)
    for start in range(0, 7, 3):
        for first in range(0, 9, 4):
            rows, keys = slice(start, start + 3), slice(first, first + 4)
            scaled = engine.scale_scores(call, engine.scores(call, rows, keys), rows, keys)
            logits = engine.hide(scaled, engine.visible(call, rows, keys))
            assert torch.allclose(logits, whole.logits[:, rows, keys], atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("method", list(MaskMethod))
def test_rows_add_to_one_or_zero(name, method):
    result = attend(drawn(mask=masks(7, 9, 0)[name]), method)
    seen = result.visible.any(-1).double()
    assert (result.weights.sum(-1) - seen).abs().max() < TOLERANCE
    assert bool((result.weights[~result.visible] == 0).all())
    assert bool((result.context[seen == 0] == 0).all())


def test_both_methods_are_equal_in_float64():
    call = drawn(mask=CAUSAL)
    first, second = attend(call), attend(call, MaskMethod.RENORMALIZE)
    assert (first.weights - second.weights).abs().max() < TOLERANCE


def test_permuting_keys_permutes_columns():
    call = drawn()
    order = torch.randperm(9, generator=torch.Generator().manual_seed(3))
    moved = AttentionCall(call.query, call.key[:, order], call.value[:, order])
    assert torch.allclose(attend(call).weights[..., order], attend(moved).weights, atol=TOLERANCE)
    assert torch.allclose(attend(call).context, attend(moved).context, atol=TOLERANCE)


def test_later_tokens_do_not_change_causal_rows():
    call = drawn(key_heads=4, keys=7, mask=CAUSAL)
    key, value = call.key.clone(), call.value.clone()
    key[:, -1], value[:, -1] = 100.0, -100.0
    changed = attend(AttentionCall(call.query, key, value, mask=CAUSAL))
    assert torch.equal(attend(call).context[:, :-1], changed.context[:, :-1])
    assert not torch.equal(attend(call).context[:, -1], changed.context[:, -1])


def test_sinks_take_their_share():
    sinks = torch.tensor([0.5, -1.0, 2.0, 0.0], dtype=torch.float64)
    result = attend(drawn(sinks=sinks, mask=CAUSAL))
    taken = torch.exp(sinks[:, None] - result.steps.logsumexp)
    assert (result.weights.sum(-1) + taken - 1).abs().max() < TOLERANCE
    assert result.reference_gap < TOLERANCE
    with pytest.raises(OptionError, match="sinks"):
        attend(drawn(sinks=sinks), MaskMethod.RENORMALIZE)


def test_softcap_bounds_the_scores():
    call = drawn(softcap=1.5, scale=10.0)
    result = attend(call)
    expected = 1.5 * torch.tanh(10.0 * result.scores / 1.5)
    assert torch.allclose(result.steps.scaled, expected, atol=TOLERANCE)
    assert result.reference_gap is None
    assert result.agrees is None


def test_a_nan_reaches_the_weights_and_only_its_row():
    call = drawn()
    call.query[1, 3, 0] = math.nan
    weights = attend(call).weights
    assert bool(weights[1, 3].isnan().all())
    assert int(weights.isnan().sum()) == 9


def test_an_infinite_omega_makes_a_nan_and_no_zero():
    weights = attend(AttentionCall(*(torch.full((1, 2, 1), math.inf) for _ in range(3)))).weights
    assert bool(weights.isnan().all())


def test_gradients_flow_and_are_finite_past_blind_rows():
    call = drawn(mask=masks(7, 9, 0)["random by head"])
    for tensor in (call.query, call.key, call.value):
        tensor.requires_grad_()
    engine.attention_context(call).sum().backward()
    for tensor in (call.query, call.key, call.value):
        assert bool(tensor.grad.isfinite().all())
        assert bool((tensor.grad != 0).any())


def test_logsumexp_and_entropy():
    result = attend(drawn(mask=CAUSAL))
    logits = result.logits
    assert torch.allclose(result.steps.logsumexp, torch.logsumexp(logits, -1), atol=TOLERANCE)
    weights = result.weights
    by_hand = -(weights * torch.log(weights.clamp_min(1e-300))).sum(-1)
    assert torch.allclose(result.entropy, by_hand, atol=TOLERANCE)
    assert entropy(torch.full((1, 1, 8), 0.125)).item() == pytest.approx(math.log(8))


def test_strongest_keys_are_sorted_and_hidden_ones_absent():
    weights = torch.tensor([[[0.1, 0.6, 0.3, 0.0]]])
    seen = torch.tensor([[[True, True, True, False]]])
    values, keys = strongest(weights, seen, 5)
    assert keys.tolist() == [[[1, 2, 0, -1]]]
    assert values[0, 0, :3].tolist() == pytest.approx([0.6, 0.3, 0.1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_narrow_types_agree_with_torch_within_their_tolerance(dtype):
    call = drawn()
    narrow = AttentionCall(*(t.to(dtype) for t in (call.query, call.key, call.value)), mask=CAUSAL)
    result = attend(narrow)
    assert result.weights.dtype == dtype
    assert result.agrees is True


@settings(max_examples=60, deadline=None)
@given(
    heads=st.sampled_from([(1, 1), (2, 1), (6, 3)]),
    queries=st.integers(1, 6),
    keys=st.integers(1, 6),
    size=st.sampled_from([1e-3, 1.0, 1e3]),
    offset=st.integers(-7, 7),
    seed=st.integers(0, 1000),
)
def test_any_shape_agrees_with_torch(heads, queries, keys, size, offset, seed):
    call = drawn(*heads, queries, keys, seed=seed, mask=CAUSAL, query_offset=offset)
    large = AttentionCall(call.query * size, call.key, call.value, mask=CAUSAL, query_offset=offset)
    result = attend(large)
    assert result.reference_gap < TOLERANCE
    assert bool(((result.weights >= 0) & (result.weights <= 1)).all())


@pytest.mark.parametrize(
    ("query", "key", "value", "said"),
    [
        ((1, 2, 3), (1, 2, 4), (1, 2, 3), "query has width 3 and key has width 4"),
        ((1, 2, 3), (1, 5, 3), (1, 4, 3), "there are 5 keys and 4 values"),
        ((4, 2, 3), (2, 5, 3), (1, 5, 3), "key has 2 heads and value has 1"),
        ((3, 2, 3), (2, 5, 3), (2, 5, 3), "query has 3 heads, which 2 key heads"),
        ((2, 3), (1, 2, 3), (1, 2, 3), "query has shape (2, 3): 2 axes, not 3"),
        ((1, 0, 3), (1, 2, 3), (1, 2, 3), "an axis is empty"),
    ],
)
def test_shapes_that_do_not_fit(query, key, value, said):
    with pytest.raises(ShapeError) as caught:
        AttentionCall(torch.zeros(query), torch.zeros(key), torch.zeros(value))
    assert said in str(caught.value)


def test_more_that_does_not_fit():
    zeros = torch.zeros(2, 3, 4)
    with pytest.raises(ShapeError, match="bias has shape"):
        AttentionCall(zeros, zeros, zeros, bias=torch.zeros(3, 4))
    with pytest.raises(ShapeError, match="sinks has shape"):
        AttentionCall(zeros, zeros, zeros, sinks=torch.zeros(3))
    with pytest.raises(ShapeError, match="float64"):
        AttentionCall(zeros, zeros.double(), zeros)
