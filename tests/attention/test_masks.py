import torch

from attnscope.attention.masks import CAUSAL, EVERYTHING, from_tensor, split_additive

POSITIONS = torch.arange(3), torch.arange(4)


def test_causal_is_the_lower_triangle():
    assert torch.equal(CAUSAL.visible(*POSITIONS), torch.ones(3, 4).tril().bool())


def test_everything_is_the_neutral_one():
    assert (CAUSAL & EVERYTHING) is CAUSAL
    assert (EVERYTHING & CAUSAL) is CAUSAL
    assert bool((CAUSAL | EVERYTHING).visible(*POSITIONS).all())


def test_names_say_what_was_combined():
    given = from_tensor(torch.ones(3, 4, dtype=torch.bool))
    assert (CAUSAL & given).name == "causal and given"
    assert (CAUSAL | given).name == "causal or given"


def test_an_additive_mask_is_split():
    lowest = torch.finfo(torch.float32).min
    visible, bias = split_additive(torch.tensor([[0.0, -torch.inf, lowest, -1e9, -65504.0]]))
    assert visible.tolist() == [[True, False, False, False, False]]
    assert bias is None
    visible, bias = split_additive(torch.tensor([[0.5, -torch.inf, -100.0, float("nan")]]))
    assert visible.tolist() == [[True, False, True, True]]
    assert bias[0, :3].tolist() == [0.5, 0.0, -100.0]
    assert bool(bias[0, 3].isnan())
