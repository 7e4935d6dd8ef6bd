"""Stripes read by compiled code: the numbers of the dense engine, and those of torch."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnscope.attention import engine, stripes
from attnscope.attention.call import AttentionCall
from attnscope.attention.masks import CAUSAL, EVERYTHING
from attnscope.attention.measured import MeasureOptions
from attnscope.attention.stripe_measures import StripeMeasures
from attnscope.attention.stripes import measure
from tests.attention.test_stripes import (
    assert_equals_dense,
    close,
    cut_small,
    drawn,
    masks,
    sliding,
)

pytest.importorskip("numba", reason="the extra `fast` is not installed")

# float32's own rounding of scores of up to about 10, summed.
ROUNDED = 2e-5
NAMES = list(masks(4, 37, 101, 0))


def wide(call):
    return AttentionCall(
        call.query.double(),
        call.key.double(),
        call.value.double(),
        scale=call.scale,
        mask=call.mask,
        query_offset=call.query_offset,
        sinks=None if call.sinks is None else call.sinks.double(),
    )


def asked(**more):
    return MeasureOptions(window=4, grid=10, keep_context=True, compiled=True, **more)


@pytest.fixture
def compiled_only(monkeypatch):
    """Fail where a stripe is read by torch."""

    def read(*_):
        raise AssertionError("read by torch")

    monkeypatch.setattr(StripeMeasures, "read", read)


@pytest.mark.usefixtures("compiled_only")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("offset", [0, 64, -5])
def test_every_mask_gives_the_dense_numbers(name, offset, monkeypatch):
    cut_small(monkeypatch)
    mask = masks(4, 37, 101, offset)[name]
    call = drawn(dtype=torch.float32, mask=mask, query_offset=offset)
    special = torch.arange(101) % 5 == 0
    assert_equals_dense(call, asked(top=7, special=special), ROUNDED, oracle=wide(call))


@settings(max_examples=60, deadline=None)
@given(
    heads=st.sampled_from([(1, 1), (2, 1), (6, 3), (5, 1)]),
    queries=st.integers(1, 70),
    keys=st.integers(1, 140),
    width=st.integers(1, 9),
    offset=st.integers(-80, 150),
    name=st.sampled_from(NAMES),
    grid=st.integers(1, 200),
    top=st.integers(0, 150),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    sunk=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_any_shape(heads, queries, keys, width, offset, name, grid, top, dtype, sunk, seed):
    with pytest.MonkeyPatch.context() as patch:
        cut_small(patch)
        call = drawn(
            *heads,
            queries,
            keys,
            width,
            width,
            seed,
            dtype=dtype,
            mask=masks(heads[0], queries, keys, offset)[name],
            query_offset=offset,
            sinks=torch.linspace(-1, 1, heads[0]) if sunk else None,
        )
        options = MeasureOptions(top=top, grid=grid, window=3, keep_context=True, compiled=True)
        assert_equals_dense(call, options, ROUNDED, oracle=wide(call))


@pytest.mark.usefixtures("compiled_only")
@pytest.mark.parametrize("mask", ["none", "causal", "window"])
def test_stripes_of_the_real_size(mask):
    call = drawn(
        2,
        1,
        700,
        3100,
        16,
        16,
        dtype=torch.float32,
        mask=masks(2, 700, 3100, 2300)[mask],
        query_offset=2300,
    )
    assert_equals_dense(call, asked(), ROUNDED, oracle=wide(call))


@pytest.mark.parametrize("mask", [EVERYTHING, CAUSAL])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_the_numbers_are_those_of_torch_but_for_rounding(mask, scale):
    """The last bits of exp2 and of long sums; places differ where two weights are as near."""
    call = drawn(
        4, 2, 300, 900, 8, 8, dtype=torch.float32, mask=mask, query_offset=600, scale=scale
    )
    ours, theirs = (measure(call, MeasureOptions(compiled=compiled)) for compiled in (True, False))
    for name in ours.__slots__:
        mine, other = getattr(ours, name), getattr(theirs, name)
        if isinstance(mine, torch.Tensor) and mine.is_floating_point():
            assert close(mine, other, 2e-6 * (300 if "profile" in name else 1)), name
    assert float((ours.largest_key == theirs.largest_key).float().mean()) > 0.99


@pytest.mark.parametrize("queries", [1, 17, 50, 96])
def test_equal_scores_name_the_first_key_and_the_first_query(queries, monkeypatch):
    cut_small(monkeypatch)
    zeros = torch.zeros(1, queries, 4)
    found = measure(AttentionCall(zeros, zeros, zeros), MeasureOptions(compiled=True))
    assert found.largest_key.unique().tolist() == [0]
    assert found.received_max_query.unique().tolist() == [0]
    call = AttentionCall(zeros, zeros, zeros, mask=CAUSAL)
    for workers in (1, 3):
        found = measure(call, MeasureOptions(compiled=True), workers=workers)
        assert found.largest_key.unique().tolist() == [0]
        assert found.received_max_query[0].tolist() == list(range(queries))
    call = AttentionCall(zeros, zeros, zeros, mask=sliding(9, known=True))
    found = measure(call, MeasureOptions(compiled=True))
    assert found.received_max_query[0].tolist() == list(range(queries))


@pytest.mark.parametrize("mask", [EVERYTHING, CAUSAL])
def test_scores_as_large_as_float32_takes(mask):
    """Where 1e20 is rounded by more than 100, each row has one weight of 1, as any softmax."""
    call = drawn(2, 1, 40, 40, dtype=torch.float32, scale=1e20, mask=mask)
    for compiled in (True, False):
        found = measure(call, MeasureOptions(compiled=compiled))
        weights = engine.compute(call).weights
        assert torch.equal(found.largest, torch.ones(2, 40))
        assert torch.equal(found.largest_key, weights.argmax(-1))
        assert torch.equal(found.row_sum, torch.ones(2, 40))


@pytest.mark.parametrize("more", [{"dtype": torch.float64}, {"softcap": 2.0}])
def test_what_cannot_be_compiled_is_read_by_torch(more, monkeypatch):
    cut_small(monkeypatch)
    call = drawn(**({"dtype": torch.float32} | more), mask=CAUSAL, query_offset=64)
    tolerance = 1e-11 if "softcap" not in more else ROUNDED
    oracle = AttentionCall(
        call.query.double(),
        call.key.double(),
        call.value.double(),
        mask=CAUSAL,
        query_offset=64,
        softcap=call.softcap,
    )
    assert_equals_dense(call, asked(), tolerance, oracle=oracle)


@pytest.mark.usefixtures("compiled_only")
def test_long_calls_are_compiled_unasked(monkeypatch):
    call = drawn(dtype=torch.float32, mask=CAUSAL, query_offset=64)
    monkeypatch.setattr(stripes, "_seen", [0])
    monkeypatch.setattr(stripes, "_LONG", 4 * 37 * 101 + 1)
    with pytest.raises(AssertionError, match="read by torch"):
        measure(call)
    measure(call)  # the second of two is, as the later layers of a model are
    monkeypatch.setattr(stripes, "_seen", [0])
    monkeypatch.setattr(stripes, "_LONG", 4 * 37 * 101)
    assert close(measure(call).row_sum, engine.compute(call).weights.sum(-1), ROUNDED)
    with pytest.raises(AssertionError, match="read by torch"):
        measure(call, MeasureOptions(compiled=False))


WITHOUT = """
import sys
sys.modules["numba"] = None
import torch
from attnscope.attention import stripes
from attnscope.attention.call import AttentionCall
from attnscope.attention.measured import MeasureOptions
from attnscope.errors import OptionError
stripes._LONG = 0
zeros = torch.zeros(1, 9, 4)
call = AttentionCall(zeros, zeros, zeros)
print(float(stripes.measure(call).row_sum.sum()))
try:
    stripes.measure(call, MeasureOptions(compiled=True))
except OptionError as error:
    print(error)
"""


def test_without_numba_torch_reads_and_a_wish_is_refused():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "9.0",
        "compiled measures need numba, which cannot be loaded. "
        "Install it: pip install 'attnscope[fast]'",
    ]
