"""What a capture leaves out, and says so: blocks, bands, layers without attention."""

import pytest
import torch
from torch import nn

from attnscope.attention.verify import verify
from attnscope.sources.capture import CaptureError, capture
from tests.sources.models import WIDTH, handwritten, numbers


class Blocks(nn.Module):
    """The first query sees every key at once, the others meet their values in two parts."""

    def forward(self, x):
        first = torch.softmax(x[:, :1] @ x.mT, -1) @ x
        weights = torch.softmax(x[:, 1:] @ x.mT, -1)
        rest = weights[..., :3] @ x[:, :3] + weights[..., 3:] @ x[:, 3:]
        return torch.cat([first, rest], 1)


class Banded(nn.Module):
    """Each query sees itself and the key before it."""

    def forward(self, x):
        heads = x.unflatten(-1, (4, -1)).transpose(1, 2)
        keys = torch.stack([heads, heads.roll(1, 2)], -2)
        weights = torch.softmax((heads[..., None, :] * keys).sum(-1), -1)
        return (weights[..., None] * keys).sum(-2).transpose(1, 2).flatten(-2)


class Axes(nn.Module):
    """Two heads of keys, each read by two groups; or blocks of three tokens, two heads each."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        q, k = (self.proj(x) * 2).unflatten(-1, (2, 2, -1)), x.unflatten(-1, (2, 2, -1))[..., 0, :]
        return getattr(self, self.how)(q, k).reshape(x.shape)

    def groups(self, q, k):
        scores = torch.einsum("bqhgd,bkhd->bhgqk", q, k)
        return torch.einsum("bhgqk,bkhd->bqhgd", scores.softmax(-1), k)

    def blocks(self, q, k):
        q, k = (x.unflatten(1, (2, 3)) for x in (q[..., 0, :], k))
        scores = torch.einsum("bnqhd,bnkhd->bnhqk", q, k)
        context = torch.einsum("bnhqk,bnkhd->bnqhd", scores.softmax(-1), k)
        return torch.cat([context, context], -1)


def watched(model, x):
    with torch.no_grad():
        plain = model(x)
        with capture(model) as cap:
            seen = model(x)
    assert torch.equal(plain, seen)
    return cap


def test_parts_of_attention_are_not_shown_as_attention():
    model, x = Blocks(), numbers(2, 6, WIDTH)
    assert torch.allclose(model(x), torch.softmax(x @ x.mT, -1) @ x, atol=1e-5)
    cap = watched(model, x)
    assert cap.calls == []
    assert cap.skipped == [
        "Blocks: a softmax over 6 keys met the values of 3. Attention by blocks is not recorded"
    ]
    with pytest.raises(CaptureError, match="no attention call of Blocks fits a record"):
        cap.require()


def test_other_modules_are_recorded_beside_it():
    cap = watched(nn.Sequential(handwritten("nanogpt"), Blocks()), numbers(2, 6, WIDTH))
    assert [c.module_name for c in cap.calls] == ["0", "0"]
    assert len(cap.skipped) == 1
    assert max(verify(c) for c in cap.calls) <= 1e-5


def test_a_band_is_named():
    cap = watched(nn.Sequential(handwritten("sdpa"), Banded()), numbers(2, 6, WIDTH))
    assert [c.module_name for c in cap.calls] == ["0", "0"]
    assert cap.skipped == [
        "Sequential: a softmax over 2 keys met no values. Banded attention is not recorded"
    ]


def test_groups_of_heads_are_heads():
    cap = watched(Axes("groups"), numbers(2, 6, WIDTH))
    assert [tuple(c.call.weights.shape) for c in cap.calls] == [(4, 6, 6)] * 2
    assert cap.skipped == []


def test_blocks_of_tokens_are_no_heads():
    cap = watched(Axes("blocks"), numbers(2, 6, WIDTH))
    assert cap.calls == []
    assert cap.skipped == [
        "Axes: weights of 5 axes have 3 queries of 6 tokens. Attention by blocks is not recorded"
    ]


def test_what_is_left_out_is_said_once():
    model = Banded()
    with capture(model) as cap:
        for _ in range(3):
            model(numbers(2, 6, WIDTH))
    assert len(cap.skipped) == 1


def test_names_of_modules_cannot_act_on_a_terminal():
    model = Wrapped({"a\x1b": handwritten("sdpa"), "b\x1b": Weighing()})
    cap = watched(model, numbers(2, 6, WIDTH))
    assert cap.skipped[0].startswith("inner.b␛: ")


class Weighing(Blocks):
    """Blocks in a module that has weights, and so a name of its own in what is said."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))


class Wrapped(nn.Module):
    def __init__(self, modules):
        super().__init__()
        self.inner = nn.ModuleDict(modules)

    def forward(self, x):
        for module in self.inner.values():
            x = module(x)
        return x


class Block(nn.Module):
    """A layer that is itself a list: a mixer, and what comes after it."""

    def __init__(self, mixer):
        super().__init__()
        self.parts = nn.ModuleList([mixer, nn.Linear(WIDTH, WIDTH)])

    def forward(self, x):
        return self.parts[1](self.parts[0](x))


class Layered(nn.Module):
    def __init__(self, *mixers, run=None):
        super().__init__()
        self.stem = nn.ModuleList([nn.Linear(WIDTH, WIDTH)])
        self.layers = nn.ModuleList([Block(mixer) for mixer in mixers])
        self.run = run

    def forward(self, x):
        x = self.stem[0](x)
        for layer in self.layers[: self.run]:
            x = layer(x)
        return x


def linear():
    return nn.Linear(WIDTH, WIDTH)


def test_blocks_without_attention_are_named():
    model = Layered(linear(), handwritten("sdpa"), linear(), handwritten("nanogpt"))
    assert watched(model, numbers(2, 6, WIDTH)).without == ["layers.0", "layers.2"]


def test_blocks_that_did_not_run_are_not_named():
    model = Layered(linear(), handwritten("sdpa"), linear(), run=2)
    assert watched(model, numbers(2, 6, WIDTH)).without == ["layers.0"]


def test_a_list_in_which_nobody_has_attention_is_no_list_of_layers():
    assert watched(Layered(linear(), linear()), numbers(2, 6, WIDTH)).without == []


@pytest.mark.parametrize("mixer", [Blocks, Banded])
def test_attention_that_was_left_out_is_attention(mixer):
    cap = watched(Layered(linear(), handwritten("sdpa"), mixer()), numbers(2, 6, WIDTH))
    assert cap.without == ["layers.0"]
    assert len(cap.skipped) == 1


def test_a_block_that_two_layers_share_has_attention_in_both():
    shared = handwritten("sdpa")
    cap = watched(Layered(shared, linear(), shared), numbers(2, 6, WIDTH))
    assert cap.without == ["layers.1"]
