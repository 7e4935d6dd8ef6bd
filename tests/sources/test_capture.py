"""Capture of torch's own attention and of attention written by hand; and that it leaves no trace.

The oracle for weights: the same call with the identity as values gives them.
"""

import threading
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right

from attnscope.attention import engine
from attnscope.attention.verify import ObservedCall, verify, widened
from attnscope.errors import AttnscopeError, OptionError
from attnscope.sources.capture import CaptureError, capture
from tests.sources.models import HEADS, WIDTH, Function, handwritten, numbers, redrawn

TOLERANCE = 1e-5
PEAKED = 0.3


@pytest.fixture(autouse=True)
def _ordinary_path():
    # torch's fused path cannot be watched: the ordinary one is what a capture must not change
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(before)


def weights_of(captured):
    if isinstance(captured.call, ObservedCall):
        return captured.call.weights
    return engine.compute(widened(captured.call)).weights


def watched(model, *args, **kwargs):
    """Run a model with and without capture; the output must be the same to the last bit."""
    with torch.no_grad():
        plain = model(*args, **kwargs)
        with capture(model) as cap:
            seen = model(*args, **kwargs)
    plain, seen = (x if isinstance(x, tuple) else (x,) for x in (plain, seen))
    for a, b in zip(plain, seen, strict=True):
        assert a is b is None or torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0))
    assert cap.skipped == []
    return cap


def check_proven(cap, calls):
    assert len(cap.calls) == calls
    assert max(verify(call) for call in cap.calls) <= TOLERANCE
    peaks = [weights_of(c).nan_to_num().max(dim=-1).values.mean() for c in cap.calls]
    assert sum(peaks) / len(peaks) > PEAKED


# torch's functions


def sdpa(**options):
    return Function(lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, **options))


VISIBLE = numbers(2, 1, 5, 7) > -0.5
SDPA = {
    "plain": {},
    "causal": {"is_causal": True},
    "bool mask": {"attn_mask": VISIBLE},
    "added mask": {"attn_mask": numbers(1, 4, 5, 7, seed=3).masked_fill(~VISIBLE, -torch.inf)},
    "key padding": {"attn_mask": torch.arange(7).expand(2, 1, 1, 7) < 4},
    "lower right": {"attn_mask": causal_lower_right(5, 7)},
    "scale": {"scale": 0.9},
    "scale and mask of two axes": {"scale": 0.7, "attn_mask": VISIBLE[0, 0]},
}


@pytest.mark.parametrize("key_heads", [4, 2, 1])
@pytest.mark.parametrize("name", SDPA)
def test_sdpa(name, key_heads):
    options = SDPA[name] | {"enable_gqa": True}
    q, k, v = numbers(2, 4, 5, 8) * 2, numbers(2, key_heads, 7, 8, seed=4), None
    v = numbers(2, key_heads, 7, 3, seed=5)
    cap = watched(sdpa(**options), q, k, v)
    check_proven(cap, calls=2)
    identity = torch.eye(7).expand(2, key_heads, 7, 7)
    oracle = functional.scaled_dot_product_attention(q, k, identity, **options)
    for call in cap.calls:
        assert call.route == "sdpa"
        assert call.call.key_heads == key_heads
        assert torch.allclose(weights_of(call), oracle[call.text], atol=TOLERANCE)


@pytest.mark.parametrize("lead", [(), (4,), (3, 2, 4)], ids=str)
def test_sdpa_with_other_numbers_of_axes(lead):
    q, k, v = (numbers(*lead, 6, 8, seed=i) * 2 for i in (1, 2, 3))
    cap = watched(sdpa(is_causal=True), q, k, v)
    heads = sum(call.call.heads for call in cap.calls)
    assert heads == torch.Size(lead).numel()
    check_proven(cap, len(cap.calls))


def test_the_exported_operator_is_seen():
    q, k, v = (numbers(2, 4, 6, 8, seed=i) * 2 for i in (1, 2, 3))
    operator = torch.ops.aten.scaled_dot_product_attention.default
    check_proven(watched(Function(lambda q, k, v: operator(q, k, v)), q, k, v), calls=2)


@pytest.mark.filterwarnings("ignore")  # flex_attention says that it is slow uncompiled
def test_flex_attention():
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    blocks = flex.create_block_mask(lambda _b, _h, i, j: i + 2 >= j, None, None, 5, 7, device="cpu")
    table = numbers(20)
    model = Function(
        lambda q, k, v: flex.flex_attention(
            q,
            k,
            v,
            score_mod=lambda s, _b, _h, i, j: 5 * torch.tanh(s / 5) + table[i - j + 8],
            block_mask=blocks,
            enable_gqa=True,
        )
    )
    cap = watched(model, numbers(2, 4, 5, 8) * 2, numbers(2, 2, 7, 8), numbers(2, 2, 7, 8))
    check_proven(cap, calls=2)
    assert {call.route for call in cap.calls} == {"flex"}


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("masked", ["", "causal", "padding", "by head"])
def test_multi_head_attention(need_weights, batch_first, masked):
    module = redrawn(nn.MultiheadAttention(WIDTH, HEADS, batch_first=batch_first), 0.8)
    x = numbers(2, 6, WIDTH)
    options = {
        "": {},
        "causal": {"attn_mask": torch.ones(6, 6).triu(1).bool()},
        "padding": {"key_padding_mask": torch.tensor([[False] * 6, [False] * 4 + [True] * 2])},
        "by head": {"attn_mask": numbers(8, 6, 6, seed=7)},
    }[masked]
    x = x if batch_first else x.transpose(0, 1)
    cap = watched(module, x, x, x, need_weights=need_weights, **options)
    check_proven(cap, calls=2)
    assert {(c.route, c.kind, c.module_name) for c in cap.calls} == {
        ("multi_head_attention", "self", "")
    }
    _, average = module(x, x, x, **options)
    for call in cap.calls:
        assert torch.allclose(weights_of(call).mean(0), average[call.text], atol=TOLERANCE)


def test_cross_attention_is_told_by_the_arguments():
    module = redrawn(nn.MultiheadAttention(WIDTH, HEADS, batch_first=True), 0.8)
    x, y = numbers(2, 6, WIDTH), numbers(2, 6, WIDTH, seed=2)
    assert {call.kind for call in watched(module, x, y, y).calls} == {"cross"}


@pytest.mark.filterwarnings("ignore:.*nested tensors.*")  # of torch's fused path
def test_transformer_encoder_with_padding():
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, batch_first=True)
    model = redrawn(nn.TransformerEncoder(layer, 2), 0.6)
    padded = torch.tensor([[False] * 6, [False] * 4 + [True] * 2])
    x = numbers(2, 6, WIDTH)
    cap = watched(model, x, src_key_padding_mask=padded)
    check_proven(cap, calls=4)
    assert [c.layer for c in cap.calls] == [0, 0, 1, 1]
    assert all(weights_of(c)[..., 4:].sum() == 0 for c in cap.calls if c.text == 1)
    torch.backends.mha.set_fastpath_enabled(True)
    with torch.no_grad():
        fused = model(x, src_key_padding_mask=padded)
        with capture(model) as fast:
            ordinary = model(x, src_key_padding_mask=padded)
    assert len(fast.calls) == 4
    assert torch.allclose(fused[~padded], ordinary[~padded], atol=1e-4)


def test_transformer_has_self_and_cross_attention():
    model = nn.Transformer(WIDTH, HEADS, 2, 2, 32, batch_first=True)
    cap = watched(redrawn(model, 0.6), numbers(2, 6, WIDTH), numbers(2, 5, WIDTH, seed=2))
    check_proven(cap, calls=12)
    places = [(c.module_name, c.layer, c.kind) for c in cap.calls if c.text == 0]
    assert places == [
        ("encoder.layers.0.self_attn", 0, "self"),
        ("encoder.layers.1.self_attn", 1, "self"),
        ("decoder.layers.0.self_attn", 0, "self"),
        ("decoder.layers.0.multihead_attn", 0, "cross"),
        ("decoder.layers.1.self_attn", 1, "self"),
        ("decoder.layers.1.multihead_attn", 1, "cross"),
    ]


# written by hand

BY_HAND = ["nanogpt", "einsum", "einsum_with_ellipsis", "one_axis", "transposed"]


@pytest.mark.parametrize("how", BY_HAND)
def test_handwritten(how):
    model, x = handwritten(how), numbers(2, 6, WIDTH)
    cap = watched(model, x)
    check_proven(cap, calls=2)
    q, k, v = (part.view(2, 6, HEADS, -1) for part in model.c_attn(x).split(WIDTH, dim=2))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / 2 if how == "einsum" else model.scores(q, k)
    for call in cap.calls:
        assert call.route == "softmax"
        assert torch.allclose(call.call.weights, scores.softmax(-1)[call.text], atol=TOLERANCE)
        assert torch.allclose(call.call.value, v.transpose(1, 2)[call.text], atol=TOLERANCE)
        assert torch.allclose(call.call.scores, scores[call.text], atol=TOLERANCE)


def test_a_softmax_that_meets_no_values_is_no_attention():
    class Gated(nn.Module):
        def forward(self, x):
            gates = torch.softmax(x, -1)
            best = gates.topk(2).values.sum(-1, keepdim=True)
            return (gates[..., None] * x[..., None, :]).sum(-2) @ torch.eye(WIDTH) * best

    cap = watched(Gated(), numbers(2, 6, WIDTH))
    assert cap.calls == []
    with pytest.raises(CaptureError, match="of Gated was not followed to a product with values"):
        cap.require()


def test_weights_that_grow_have_become_something_else():
    class Mixed(nn.Module):
        def forward(self, x):
            gates = torch.softmax(x, -1)
            return (gates[:, None] * x[:, :, None]) @ torch.eye(WIDTH)

    assert watched(Mixed(), numbers(2, 6, WIDTH)).calls == []


def test_scores_that_were_written_over_are_not_shown():
    class Reuses(nn.Module):
        def forward(self, x):
            scores = x @ x.mT
            weights = torch.softmax(scores, -1)
            scores.zero_()
            return weights @ x

    cap = watched(Reuses(), numbers(2, 6, WIDTH))
    check_proven(cap, calls=2)
    assert all(c.call.scores is None for c in cap.calls)


def test_a_softmax_with_a_sink_and_changes_in_place():
    class Sink(nn.Module):
        def forward(self, x):
            scores = torch.cat([x @ x.mT, torch.ones(2, 6, 1)], -1)
            weights = torch.softmax(scores, -1)
            scores.zero_()
            return weights[..., :-1] @ x

    cap = watched(Sink(), numbers(2, 6, WIDTH))
    check_proven(cap, calls=2)
    assert all(c.call.scores is None and c.call.weights.shape == (1, 6, 6) for c in cap.calls)


# no trace


def fails_after(model, x):
    model(x)
    raise ZeroDivisionError


def traces(model):
    hooks = [
        (len(m._forward_pre_hooks), len(m._forward_hooks), len(m._forward_hooks_always_called))
        for m in model.modules()
    ]
    return hooks, torch._C._len_torch_function_stack()


@pytest.mark.parametrize("how", ["sdpa", "nanogpt"])
def test_everything_is_restored_also_after_an_exception(how):
    model, x = handwritten(how), numbers(2, 6, WIDTH)
    before = traces(model)
    with capture(model) as cap, pytest.raises(RuntimeError):
        model(numbers(2, 6, WIDTH + 1))
    assert traces(model) == before
    with pytest.raises(ZeroDivisionError), capture(model) as cap:
        fails_after(model, x)
    assert traces(model) == before
    assert len(cap.calls) == 2
    model(x)
    assert len(cap.calls) == 2


def test_a_forward_after_an_exception_is_recorded():
    model = handwritten("sdpa")
    with capture(model) as cap:
        with pytest.raises(RuntimeError):
            model(numbers(2, 6, WIDTH + 1))
        model(numbers(2, 6, WIDTH))
    assert [(c.step, c.nth, c.text) for c in cap.calls] == [(1, 0, 0), (1, 0, 1)]


@pytest.mark.parametrize("how", ["sdpa", "nanogpt"])
def test_nested_captures_each_hear_their_model(how):
    inner, x = handwritten(how), numbers(2, 6, WIDTH)
    outer = nn.Sequential(inner, handwritten(how))
    with capture(outer) as wide, capture(inner) as narrow:
        outer(x)
    assert [c.module_name for c in wide.calls] == ["0", "0", "1", "1"]
    assert [c.module_name for c in narrow.calls] == ["", ""]
    assert max(verify(c) for c in (*wide.calls, *narrow.calls)) <= TOLERANCE


def test_nested_captures_of_multi_head_attention():
    model, x = redrawn(nn.MultiheadAttention(WIDTH, HEADS), 0.8), numbers(6, 2, WIDTH)
    with capture(model) as outer, capture(model) as inner:
        model(x, x, x, need_weights=False)
    assert [c.route for c in outer.calls] == [c.route for c in inner.calls]
    assert len(outer.calls) == 2


def test_other_models_are_not_recorded():
    model, other, x = handwritten("sdpa"), handwritten("nanogpt"), numbers(2, 6, WIDTH)
    with capture(model) as cap:
        other(x)
        functional.scaled_dot_product_attention(*(numbers(1, 4, 6, 4),) * 3)
        model(x)
        other(x)
    assert len(cap.calls) == 2


def test_other_threads_are_not_recorded():
    model, x = handwritten("sdpa"), numbers(2, 6, WIDTH)
    with capture(model) as cap:
        thread = threading.Thread(target=model, args=(x,))
        thread.start()
        thread.join()
        assert cap.calls == []
        model(x)
    assert [(c.step, c.nth) for c in cap.calls] == [(0, 0), (0, 0)]


def test_what_a_module_was_given_is_let_go():
    model, x = handwritten("sdpa"), numbers(2, 6, WIDTH)
    given = weakref.ref(x)
    with torch.no_grad(), capture(model) as cap:
        model(x)
        del x
        assert given() is None
    assert len(cap.calls) == 2


@pytest.mark.parametrize("how", ["sdpa", "nanogpt"])
def test_dropout_and_the_random_state_are_untouched(how):
    model, x = handwritten(how, dropout=0.3).train(), numbers(2, 6, WIDTH)
    torch.manual_seed(5)
    plain, state = model(x), torch.get_rng_state()
    torch.manual_seed(5)
    with capture(model) as cap:
        seen = model(x)
    assert torch.equal(plain, seen)
    assert torch.equal(state, torch.get_rng_state())
    assert len(cap.calls) == 2
    if how == "sdpa":
        assert {c.dropout for c in cap.calls} == {0.3}


@pytest.mark.parametrize("how", ["sdpa", "nanogpt"])
@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_every_gradient_mode(how, context):
    model, x = handwritten(how), numbers(2, 6, WIDTH)
    with context(), capture(model) as cap:
        out = model(x)
    check_proven(cap, calls=2)
    if context is torch.enable_grad:
        out.sum().backward()
        assert model.c_attn.weight.grad is not None
    for call in cap.calls:
        tensor = call.call.value
        assert not tensor.requires_grad
        assert not tensor.is_inference()


def test_a_mask_is_kept_once_for_all_layers_and_copied():
    mask = numbers(1, 1, 6, 6) > -1

    class Layers(nn.Module):
        def forward(self, x):
            q = x[:, None]
            for _ in range(3):
                q = functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)
            return q

    model = Layers()
    for context in (torch.no_grad, torch.inference_mode):
        with context(), capture(model) as cap:
            model(numbers(2, 6, 8))
        stores = {c.call.mask.rule.__closure__[1].cell_contents.data_ptr() for c in cap.calls}
        assert len(stores) == 1
        assert mask.data_ptr() not in stores


def test_records_are_copies():
    class Reuses(nn.Module):
        def forward(self, x):
            q, k, v = x.clone(), x.clone(), x.clone()
            mask = torch.ones(6, 6).tril().bool()
            out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            result = out.clone()
            for tensor in (q, k, v, out, mask):
                tensor.zero_()
            return result

    check_proven(watched(Reuses(), numbers(2, 4, 6, 8) * 2), calls=2)


def test_a_call_that_fits_no_record_is_named_and_the_model_runs():
    q = numbers(2, 4, 6, 8)
    model = Function(
        lambda q: (
            functional.scaled_dot_product_attention(q, q, q, attn_mask=torch.ones(6, 6) * 0)
            + functional.scaled_dot_product_attention(q, q[:, :, :0], q[:, :, :0]).nan_to_num()
        )
    )
    with capture(model) as cap:
        model(q)
    assert len(cap.calls) == 2
    assert len(cap.skipped) == 1
    assert "an axis is empty" in cap.skipped[0]


def test_compiled_code_does_not_run_past_the_capture():
    model, x = handwritten("sdpa"), numbers(2, 6, WIDTH)
    compiled = torch.compile(model, backend="eager")
    compiled(x)
    for watched_model in (compiled, model):
        with capture(watched_model) as cap:
            compiled(x)
        check_proven(cap, calls=2)
        assert {c.module_name for c in cap.calls} == {""}


# what cannot be captured


def test_nothing_captured_says_why():
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH))
    with capture(model) as cap:
        pass
    with pytest.raises(CaptureError, match="did not run"):
        cap.require()
    with capture(model) as cap:
        model(numbers(2, WIDTH))
    with pytest.raises(AttnscopeError, match="no softmax attention ran in Sequential"):
        cap.require()
    with capture(handwritten("sdpa")) as cap:
        cap.model(numbers(2, 6, WIDTH))
    cap.require()


@pytest.mark.filterwarnings("ignore")  # torch.jit.trace is deprecated
def test_what_is_no_module_or_torchscript_is_refused():
    with pytest.raises(OptionError, match="function"):
        capture(lambda x: x)
    traced = torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2))
    model = nn.Sequential(nn.Linear(2, 2), traced)
    before = traces(model)
    with pytest.raises(CaptureError, match="TorchScript"), capture(model):
        pass
    assert traces(model) == before


def test_a_running_capture_is_not_entered_again():
    cap = capture(handwritten("sdpa"))
    with cap, pytest.raises(OptionError, match="already running"):
        cap.__enter__()
