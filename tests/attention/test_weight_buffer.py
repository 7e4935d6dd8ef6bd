"""The buffer's views show zeros wherever no weight was written, whatever was there before."""

import pytest
import torch

from attnscope.attention.weight_buffer import WeightBuffer, bytes_of, whole_vectors


def used(shapes):
    """Return a buffer after some layouts, each filled with numbers wherever one may write."""
    buffer = WeightBuffer(16, torch.float32, torch.device("cpu"))
    for heads, rows, keys, most in shapes:
        buffer.lay_out(heads, rows, keys, most)
        buffer.weights.fill_(7.0)
    return buffer


@pytest.mark.parametrize(
    "shapes",
    [
        [(2, 5, 48, 48)],
        [(2, 5, 48, 48), (2, 5, 20, 48)],
        [(2, 20, 64, 64), (3, 9, 33, 64), (2, 5, 20, 48)],
        [(1, 40, 1000, 1000), (4, 7, 3, 64)],
    ],
)
def test_views_after_any_layouts(shapes):
    buffer = used(shapes)
    heads, rows, keys, most = shapes[-1]
    weights = torch.rand(heads, rows, keys) + 1.0
    buffer.weights.copy_(weights)
    skewed = torch.zeros(heads, rows, rows - 1 + keys)
    for row in range(rows):
        first = rows - 1 - row
        skewed[:, row, first : first + keys] = weights[:, row]
    assert torch.equal(buffer.skewed, skewed)
    groups = buffer.groups(0, keys).flatten(1)
    assert torch.equal(groups[:, :keys], weights.flatten(0, 1))
    assert not groups[:, keys:].any()
    assert not buffer.flat(keys, whole_vectors(keys)).any()
    first = buffer.grouped[buffer.first_groups]
    assert torch.equal(first[:, : min(keys, 16)], weights.flatten(0, 1)[:, :16])
    assert buffer.memory.nbytes >= bytes_of(heads, rows, most, 16, 4)


def test_rows_do_not_push_each_other_out_of_the_cache():
    buffer = used([(1, 1024, 1024, 1024)])
    assert buffer.pitch % 1024
