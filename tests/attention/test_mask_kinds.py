"""A mask that came as a tensor is named by the rule that gives the same cells."""

import pytest
import torch

from attnscope.attention.mask_kinds import band, chunks, recognised, window
from attnscope.attention.masks import CAUSAL, EVERYTHING


def cells(mask, queries, keys, offset=0):
    seen = mask.visible(torch.arange(queries) + offset, torch.arange(keys))
    return seen.expand(1, queries, keys)


@pytest.mark.parametrize(
    ("mask", "offset"),
    [
        (EVERYTHING, 0),
        (CAUSAL, 0),
        (CAUSAL, 3),
        (window(4), 0),
        (window(1), 0),
        (chunks(4), 0),
        (band(2), 0),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_rules_are_found_again(mask, offset):
    queries = 300 if mask is CAUSAL else 12
    seen = cells(mask, queries, queries + offset, offset)
    found = recognised(seen, offset)
    assert found.name == mask.name
    assert torch.equal(cells(found, queries, queries + offset, offset), seen)


def test_one_cell_that_differs_makes_it_a_mask_of_its_own():
    for mask in (EVERYTHING, CAUSAL, window(4), band(2)):
        seen = cells(mask, 12, 12).clone()
        seen[0, 7, 6] ^= True
        found = recognised(seen)
        assert found.name == "given"
        assert torch.equal(cells(found, 12, 12), seen)


def test_heads_may_differ():
    seen = torch.cat([cells(CAUSAL, 5, 5), cells(EVERYTHING, 5, 5)])
    found = recognised(seen)
    assert found.name == "given"
    assert torch.equal(found.visible(torch.arange(5), torch.arange(5)), seen)
    assert recognised(seen[:1].expand(4, 5, 5)).name == "causal"


def test_a_blind_matrix_is_no_rule():
    assert recognised(torch.zeros(1, 4, 4, dtype=torch.bool)).name == "given"
