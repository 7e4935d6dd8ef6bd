"""Stripes of rows against the whole matrix: every measure, every mask, any size."""

import itertools
import math
import threading
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnscope.attention import call_stripe, engine, head_group, stripe_plan
from attnscope.attention.call import AttentionCall
from attnscope.attention.masks import CAUSAL, EVERYTHING, Mask, Reach, from_tensor
from attnscope.attention.measured import MeasureOptions, effective_keys, histogram, quantiles
from attnscope.attention.measures import entropy, strongest
from attnscope.attention.stripes import estimate_bytes, measure
from attnscope.attention.verify import ObservedCall
from attnscope.attention.weight_windows import weights_at, window_weights
from attnscope.errors import OptionError, ShapeError

CUDA = pytest.param(
    "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
)
# Sums of some hundred numbers in another order: a few hundred units in the last place, and times
# the distance for distances.
EXACT = 1e-11


@pytest.fixture(params=["plain", "by the equation"])
def small(request, monkeypatch):
    """Cut so small that a test of a hundred keys has every kind of stripe and piece."""
    cut_small(monkeypatch)
    if request.param != "plain":
        monkeypatch.setattr(head_group, "_small", lambda _: False)


def cut_small(monkeypatch):
    monkeypatch.setattr(stripe_plan, "_ROWS", {"cpu": (12, 4, 600)})
    monkeypatch.setattr(stripe_plan, "_ROWS_ELSEWHERE", (12, 4, 600))
    monkeypatch.setattr(stripe_plan, "_FEWEST", 2)
    monkeypatch.setattr(stripe_plan, "_GROUP", 16)
    monkeypatch.setattr(call_stripe, "PIECE", 30)


def drawn(
    heads=4,
    key_heads=2,
    queries=37,
    keys=101,
    width=5,
    value_width=5,
    seed=0,
    size=1.0,
    dtype=torch.float64,
    device="cpu",
    **more,
):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator).double().to(device, dtype)

    query = normal(heads, queries, width) * size
    key, value = normal(key_heads, keys, width), normal(key_heads, keys, value_width)
    return AttentionCall(query, key, value, **more)


def sliding(size, *, known):
    reach = Reach(1 - size, 0, filled=True) if known else Reach()
    return Mask(f"window {size}", lambda q, k: (k <= q) & (k > q - size), reach)


def both_sides(size):
    return Mask("band", lambda q, k: (q - k).abs() <= size, Reach(-size, size, filled=True))


def masks(heads, queries, keys, offset):
    generator = torch.Generator().manual_seed(1)
    random = torch.rand(heads, queries, keys, generator=generator) > 0.5
    random[:, queries // 2] = False  # a row that sees nothing
    given = from_tensor(random, query_offset=offset)
    return {
        "none": EVERYTHING,
        "causal": CAUSAL,
        "window": sliding(9, known=True),
        "window of unknown reach": sliding(9, known=False),
        "both sides": both_sides(40),
        "random by head": given,
        "random": from_tensor(random[0], query_offset=offset),
        "causal and random": CAUSAL & given,
        "causal or random": CAUSAL | given,
        "window or causal": sliding(9, known=True) | CAUSAL,
        "window and causal": both_sides(5) & CAUSAL,
        "nothing": from_tensor(torch.zeros(queries, keys, dtype=torch.bool), query_offset=offset),
    }


def dense(call):
    """Return weights, what is seen, log-sum-exp and context, all at once."""
    if isinstance(call, ObservedCall):
        weights = call.weights.double()
        seen = torch.ones_like(weights, dtype=torch.bool)
        lowest = torch.full_like(weights[..., 0], math.nan)
        if call.scores is not None:
            seen = ~(call.scores <= torch.finfo(torch.float16).min)
            lowest = torch.logsumexp(call.scores.double().masked_fill(~seen, -torch.inf), -1)
        return weights, seen, lowest, weights @ call.value.double()
    steps = engine.compute(call)
    seen = steps.visible.expand(call.heads, -1, -1)
    return steps.weights, seen, steps.logsumexp, steps.context


def close(mine, theirs, tolerance):
    return torch.allclose(
        mine.double(), theirs.double(), rtol=tolerance, atol=tolerance, equal_nan=True
    )


def assert_equals_dense(call, options=None, tolerance=EXACT, oracle=None):
    options = options or MeasureOptions(top=7, window=4, grid=10, keep_context=True)
    found = measure(call, options)
    weights, seen, logsumexp, context = dense(oracle or call)
    _, queries, keys = weights.shape
    offset = getattr(call, "query_offset", 0) if options.query_offset is None else 0
    offset += options.query_offset or 0
    delta = torch.arange(keys) - torch.arange(queries)[:, None] - offset
    delta = delta.to(weights.device)
    blind = ~seen.any(-1)
    assert torch.equal(found.blind, blind)
    assert close(found.logsumexp, logsumexp, tolerance)
    assert close(found.entropy, entropy(weights), tolerance)
    assert close(found.row_sum, weights.sum(-1), tolerance)
    assert close(found.first, weights[..., 0], tolerance)
    assert close(found.local, (weights * (delta.abs() < options.window)).sum(-1), tolerance)
    distance = (weights * delta.abs()).sum(-1) / weights.sum(-1).masked_fill(blind, 1.0)
    assert close(found.distance, distance, tolerance * max(1, int(delta.abs().max())))
    assert close(found.received, weights.sum(1), tolerance * max(1, queries))
    assert close(found.received_max, weights.amax(1), tolerance)
    assert close(found.largest, weights.amax(-1), tolerance)
    if options.special is not None:
        assert close(found.special, weights[..., options.special].sum(-1), tolerance)
    assert_strongest(found, weights, seen, options.top, tolerance)
    assert_distances(found, weights, delta, tolerance * max(1, queries))
    if options.grid is not None:
        assert_map(found, weights, options.grid, tolerance)
    if options.keep_context:
        assert close(found.context, context, tolerance)
    assert_places(found.largest_key, weights, tolerance)
    assert_places(found.received_max_query, weights.transpose(1, 2), tolerance)


def assert_places(places, weights, tolerance):
    """Each place named has the largest weight, and the same is named where no other comes near."""
    most, first = weights.max(-1)
    assert torch.equal(places >= 0, most > 0)
    there = weights.gather(-1, places.clamp_min(0)[..., None])[..., 0]
    assert close(there.masked_fill(places < 0, 0.0), most, tolerance)
    alone = (weights >= most[..., None] * (1 - 1e-5)).sum(-1) == 1
    alone &= most > 0
    assert torch.equal(places[alone], first[alone])


def assert_strongest(found, weights, seen, top, tolerance):
    count = min(top, weights.shape[-1])
    assert found.strongest_weights.shape == (*weights.shape[:2], count)
    values, _ = strongest(weights, seen, top)
    assert close(found.strongest_weights, values.clamp_min(0.0), tolerance)
    keys = found.strongest_keys
    named = keys >= 0
    assert torch.equal(named, ~(found.strongest_weights == 0.0))
    there = weights.gather(-1, keys.clamp_min(0))
    assert close(there.masked_fill(~named, 0.0), found.strongest_weights, tolerance)
    for row in keys.flatten(0, 1).tolist():  # no key twice
        row = [key for key in row if key >= 0]
        assert len(set(row)) == len(row)


def assert_distances(found, weights, delta, tolerance):
    heads, queries, keys = weights.shape
    assert found.nearest == int(delta.min())
    profile = weights.new_zeros(heads, queries + keys - 1)
    profile.index_add_(1, (delta - found.nearest).flatten(), weights.flatten(1))
    assert close(found.distance_profile, profile, tolerance)
    edges = [*found.distance_edges.tolist(), math.inf]
    for number, (low, high) in enumerate(itertools.pairwise(edges)):
        inside = (delta.abs() >= low) & (delta.abs() < high)
        expected = (weights * inside).sum((1, 2))
        assert close(found.distance_histogram[:, number], expected, tolerance)


def assert_map(found, weights, grid, tolerance):
    _, queries, keys = weights.shape
    down, across = -(-queries // grid), -(-keys // grid)
    assert found.map_cell == (down, across)
    cells = [
        [
            weights[:, top : top + down, left : left + across].flatten(1)
            for left in range(0, keys, across)
        ]
        for top in range(0, queries, down)
    ]
    mean = torch.stack([torch.stack([c.mean(1) for c in row], -1) for row in cells], 1)
    most = torch.stack([torch.stack([c.amax(1) for c in row], -1) for row in cells], 1)
    assert found.map_mean.shape[1] <= grid
    assert close(found.map_mean, mean, tolerance)
    assert close(found.map_max, most, tolerance)


NAMES = list(masks(4, 37, 101, 0))
EXTRAS = {
    "plain": {},
    "bias": {"bias": torch.randn(4, 37, 101, generator=torch.Generator().manual_seed(2))},
    "one bias": {"bias": torch.randn(37, 1, generator=torch.Generator().manual_seed(2))},
    "softcap": {"softcap": 1.5},
    "sinks": {"sinks": torch.tensor([0.5, -1.0, 3.0, 0.0], dtype=torch.float64)},
    "all": {
        "bias": torch.randn(1, 37, 101, generator=torch.Generator().manual_seed(3)),
        "softcap": 2.0,
        "sinks": torch.tensor([0.5, -1.0, 3.0, 0.0], dtype=torch.float64),
    },
}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("offset", [0, 64, -5])
@pytest.mark.parametrize("device", ["cpu", CUDA])
def test_every_mask_gives_the_dense_numbers(name, offset, device):
    call = drawn(mask=masks(4, 37, 101, offset)[name], query_offset=offset, device=device)
    assert_equals_dense(call)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", ["none", "causal", "random by head", "both sides"])
@pytest.mark.parametrize("extra", EXTRAS)
def test_bias_softcap_and_sinks(name, extra):
    more = EXTRAS[extra]
    call = drawn(mask=masks(4, 37, 101, 64)[name], query_offset=64, value_width=3, **more)
    assert_equals_dense(call)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("grid", [1, 3, 7, 36, 37, 1000, None])
@pytest.mark.parametrize("top", [0, 1, 10, 500])
def test_any_map_and_any_number_of_strongest_keys(grid, top):
    special = torch.arange(101) % 5 == 0
    options = MeasureOptions(top=top, grid=grid, special=special, window=200)
    assert_equals_dense(drawn(mask=CAUSAL, query_offset=50), options)


@settings(max_examples=80, deadline=None)
@given(
    heads=st.sampled_from([(1, 1), (2, 1), (6, 3), (5, 1)]),
    queries=st.integers(1, 70),
    keys=st.integers(1, 140),
    width=st.integers(1, 9),
    offset=st.integers(-80, 150),
    name=st.sampled_from(NAMES),
    size=st.sampled_from([0.0, 1e-3, 1.0, 30.0]),
    grid=st.integers(1, 200),
    top=st.integers(0, 12),
    window=st.integers(1, 50),
    sunk=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_any_shape(heads, queries, keys, width, offset, name, size, grid, top, window, sunk, seed):
    with pytest.MonkeyPatch.context() as patch:
        cut_small(patch)
        call = drawn(
            *heads,
            queries,
            keys,
            width,
            width,
            seed,
            size,
            mask=masks(heads[0], queries, keys, offset)[name],
            query_offset=offset,
            sinks=torch.linspace(-1, 1, heads[0], dtype=torch.float64) if sunk else None,
        )
        options = MeasureOptions(top=top, grid=grid, window=window, keep_context=True)
        assert_equals_dense(call, options)


@pytest.mark.parametrize("mask", ["none", "causal", "window"])
def test_stripes_of_the_real_size(mask):
    call = drawn(2, 1, 700, 2100, 16, 16, mask=masks(2, 700, 2100, 1300)[mask], query_offset=1300)
    assert_equals_dense(call, MeasureOptions(keep_context=True))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", ["none", "causal", "random by head"])
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    # Widened to float32, the numbers are those of the float64 engine on the same inputs, but for
    # float32's own rounding of scores of up to about 10, summed.
    [(torch.float32, 2e-5), (torch.bfloat16, 2e-5), (torch.float16, 2e-5)],
)
def test_narrow_types_are_widened(name, dtype, tolerance):
    call = drawn(dtype=dtype, mask=masks(4, 37, 101, 64)[name], query_offset=64)
    wide = AttentionCall(
        call.query.double(),
        call.key.double(),
        call.value.double(),
        mask=call.mask,
        query_offset=64,
    )
    assert_equals_dense(call, tolerance=tolerance, oracle=wide)
    assert measure(call).entropy.dtype == torch.float32


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("mask", [EVERYTHING, CAUSAL])
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    # A score of 1e4 is rounded by 1e4 units in the last place, and its weight by as much; but each
    # row still adds to 1, as that of any softmax.
    [(torch.float64, 1e-9), (torch.float32, 2e-2)],
)
def test_extreme_scores(mask, dtype, tolerance):
    call = drawn(mask=mask, query_offset=64, scale=1e4, width=2, value_width=2)
    narrow = AttentionCall(
        call.query.to(dtype),
        call.key.to(dtype),
        call.value.to(dtype),
        mask=mask,
        query_offset=64,
        scale=1e4,
    )
    oracle = AttentionCall(
        narrow.query.double(),
        narrow.key.double(),
        narrow.value.double(),
        mask=mask,
        query_offset=64,
        scale=1e4,
    )
    found, weights = measure(narrow), engine.compute(oracle).weights
    assert close(found.largest, weights.amax(-1), tolerance)
    assert close(found.row_sum, torch.ones_like(found.row_sum), 4 * torch.finfo(dtype).eps)
    assert close(found.entropy, entropy(weights), tolerance * 10)
    whole, _ = window_weights(narrow, slice(None), slice(None))
    assert close(whole.sum(-1), torch.ones_like(found.row_sum), 8 * torch.finfo(dtype).eps)
    assert close(whole.amax(-1), found.largest, tolerance)
    assert bool(found.received.isfinite().all())
    logits = engine.compute(oracle).logits
    assert float(logits[logits.isfinite()].abs().max()) > 1e4


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("queries", [1, 17, 50, 96])
def test_equal_scores_name_the_first_key_and_the_first_query(queries):
    zeros = torch.zeros(1, queries, 4, dtype=torch.float64)
    found = measure(AttentionCall(zeros, zeros, zeros))
    assert found.largest_key.unique().tolist() == [0]
    assert found.received_max_query.unique().tolist() == [0]
    even = torch.full((1, queries), float(queries), dtype=torch.float64)
    assert close(found.entropy, even.log(), EXACT)
    assert close(effective_keys(found.entropy), even, EXACT)
    found = measure(AttentionCall(zeros, zeros, zeros, mask=CAUSAL))
    assert found.largest_key.unique().tolist() == [0]
    assert found.received_max_query[0].tolist() == list(range(queries))
    # weights of a window are the same in most rows, and its first stripe is read last
    found = measure(AttentionCall(zeros, zeros, zeros, mask=sliding(9, known=True)))
    assert found.received_max_query[0].tolist() == list(range(queries))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("scored", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_observed_weights_are_taken_as_they_are(scored, dtype):
    call = drawn(4, 4, mask=CAUSAL, query_offset=20)
    steps = engine.compute(call)
    scores = steps.logits.clone()
    weights = steps.weights.clone()
    weights[0, 3], scores[0, 3] = 0.0, -1e9  # a row that sees nothing
    observed = ObservedCall(
        weights.to(dtype), call.value.to(dtype), scores.to(dtype) if scored else None
    )
    tolerance = EXACT if dtype == torch.float64 else 1e-5
    options = MeasureOptions(top=7, window=4, grid=10, query_offset=20, keep_context=True)
    assert_equals_dense(observed, options, tolerance)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("mask", [EVERYTHING, CAUSAL])
@pytest.mark.parametrize("where", ["query", "key"])
@pytest.mark.parametrize("what", [math.nan, math.inf])
def test_a_number_that_is_none_reaches_its_rows_and_no_other(mask, where, what):
    call = drawn(1, 1, mask=mask, query_offset=64)
    getattr(call, where)[0, {"query": 30, "key": 80}[where], 0] = what
    found = measure(call, MeasureOptions(top=101, keep_context=True))
    weights = engine.compute(call).weights
    broken = weights.isnan().any(-1)
    assert bool(broken.any())
    assert bool(broken.all()) == (where == "key" and mask is EVERYTHING and math.isnan(what))
    for name in ("logsumexp", "entropy", "largest", "row_sum", "distance"):
        assert torch.equal(getattr(found, name).isnan(), broken), name
    assert torch.equal(found.context.isnan().any(-1), broken)
    assert torch.equal(found.strongest_weights[..., 0].isnan(), broken)
    assert int(found.strongest_keys.max()) < call.keys
    # keys that a broken row may see; dense softmax breaks the hidden ones of that row as well
    seen = engine.visible(call) & broken[..., None]
    assert bool(found.received_max.isnan()[seen.any(1)].all())
    assert bool(found.received.isnan()[seen.any(1)].all())
    assert bool(broken[0, found.received_max_query[found.received_max.isnan()]].all())


@pytest.mark.usefixtures("small")
def test_a_hidden_nan_stays_hidden():
    call = drawn(1, 1, mask=CAUSAL, query_offset=64)
    call.key[0, 80] = math.nan
    found = measure(call, MeasureOptions(keep_context=True))
    assert not bool(found.entropy[0, :16].isnan().any())
    assert bool(found.entropy[0, 16:].isnan().all())
    assert not bool(found.context[0, :16].isnan().any())


@pytest.mark.usefixtures("small")
def test_infinite_bias_hides():
    bias = torch.zeros(1, 37, 101, dtype=torch.float64)
    bias[..., 3::2] = -torch.inf
    assert_equals_dense(drawn(mask=CAUSAL, bias=bias, query_offset=64))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sinks", [None, EXTRAS["sinks"]["sinks"]])
def test_windows_and_pairs_of_weights(name, sinks):
    call = drawn(
        mask=masks(4, 37, 101, 64)[name],
        query_offset=64,
        bias=EXTRAS["bias"]["bias"],
        sinks=sinks,
        softcap=2.0,
    )
    steps = engine.compute(call)
    window, known = window_weights(call, slice(5, 20), slice(40, 90))
    assert close(window, steps.weights[:, 5:20, 40:90], EXACT)
    assert close(known.logsumexp, steps.logsumexp[:, 5:20], EXACT)
    assert close(known.context, steps.context[:, 5:20], EXACT)
    last, _ = window_weights(call, slice(None), slice(-3, None))
    assert close(last, steps.weights[..., -3:], EXACT)
    generator = torch.Generator().manual_seed(4)
    queries = torch.randint(0, 37, (500,), generator=generator)
    keys = torch.randint(0, 101, (500,), generator=generator)
    pairs = weights_at(call, measure(call).logsumexp, queries, keys)
    assert close(pairs, steps.weights[:, queries, keys], EXACT)


def test_pairs_are_computed_in_blocks(monkeypatch):
    from attnscope.attention import weight_windows

    monkeypatch.setattr(weight_windows, "_BLOCK", 100)
    call = drawn(dtype=torch.bfloat16, mask=CAUSAL, query_offset=64)
    logsumexp = measure(call).logsumexp
    queries, keys = torch.arange(37), torch.arange(37) * 2
    window, _ = window_weights(call, slice(None), slice(None))
    pairs = weights_at(call, logsumexp, queries, keys)
    assert close(pairs, window[:, queries, keys], 1e-6)
    assert weights_at(call, logsumexp, queries[:0], keys[:0]).shape == (4, 0)
    with pytest.raises(ShapeError, match="queries have shape"):
        weights_at(call, logsumexp, queries, keys[:3])


def test_windows_of_observed_weights():
    weights = torch.rand(2, 5, 7)
    call = ObservedCall(weights.half(), torch.rand(2, 7, 3))
    window, known = window_weights(call, slice(1, 3), slice(2, 4))
    assert torch.equal(window, weights.half()[:, 1:3, 2:4].float())
    places = torch.tensor([0, 4]), torch.tensor([6, 1])
    assert torch.equal(
        weights_at(call, weights[..., 0], *places), weights.half()[:, *places].float()
    )
    assert known.context.shape == (2, 2, 3)


def test_quantiles_leave_blind_rows_out():
    numbers = torch.tensor([[0.0, 1.0, 2.0, 9.0], [1.0, 1.0, 1.0, 1.0]])
    blind = torch.tensor([[False, False, False, True], [True] * 4])
    found = quantiles(numbers, blind, (0.0, 0.5, 1.0))
    assert found[0].tolist() == [0.0, 1.0, 2.0]
    assert bool(found[1].isnan().all())


def test_histogram_of_distances():
    bins, edges = histogram(torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]), -4)
    assert edges.tolist() == [0, 1, 2, 4]
    assert bins.tolist() == [[5.0, 4.0 + 6.0, 2.0 + 3.0, 1.0]]


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        (MeasureOptions(top=-1), OptionError, "-1 strongest keys"),
        (MeasureOptions(window=0), OptionError, "a window of 0"),
        (MeasureOptions(grid=0), OptionError, "a map of 0 rows"),
        (MeasureOptions(special=torch.ones(3)), ShapeError, r"special has shape \(3,\) for 101"),
    ],
)
def test_options_that_cannot_be(options, error, said):
    with pytest.raises(error, match=said):
        measure(drawn(), options)


def test_the_estimate_is_what_is_allocated():
    call = drawn(4, 2, 3000, 3000, 16, 16, dtype=torch.float32, mask=CAUSAL)
    for options in (MeasureOptions(), MeasureOptions(top=0, grid=None, keep_context=True)):
        found = measure(call, options)
        tensors = [getattr(found, name) for name in found.__slots__]
        result = sum(t.nbytes for t in tensors if isinstance(t, torch.Tensor))
        estimate = estimate_bytes(call, options, workers=1)
        assert result < estimate < 1.6 * result + 50e6
        more = estimate_bytes(call, options, workers=2) - estimate
        assert 1e6 < more < 50e6
        half = AttentionCall(call.query.half(), call.key.half(), call.value.half(), mask=CAUSAL)
        assert estimate_bytes(half, options, workers=1) == estimate + 3000 * 32 * 4


def test_no_matrix_is_made():
    call = drawn(1, 1, 40_000, 40_000, 4, 4, dtype=torch.float32)
    assert estimate_bytes(call, workers=2) < 200e6  # the matrix alone has 6.4 GB


# Workers ------------------------------------------------------------------------------------


def test_what_was_set_is_restored():
    threads = torch.get_num_threads()
    tiny = torch.tensor([1e-40])
    measure(drawn())
    assert torch.get_num_threads() == threads
    assert float(tiny * 1.0) != 0.0


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_any_number_of_workers_gives_the_same(workers, monkeypatch):
    cut_small(monkeypatch)
    call = drawn(mask=CAUSAL, query_offset=64)
    one, many = measure(call, workers=1), measure(call, workers=workers)
    for name in one.__slots__:
        first, second = getattr(one, name), getattr(many, name)
        if isinstance(first, torch.Tensor):
            assert close(first, second, 1e-14), name


def test_gradients_are_not_recorded():
    call = drawn()
    call.query.requires_grad_()
    assert not measure(call, MeasureOptions(keep_context=True)).context.requires_grad


def test_progress_is_told_from_the_calling_thread():
    told = []
    call = drawn(2, 2, 3000, 3000, 16, 16, dtype=torch.float32, mask=CAUSAL)
    measure(call, progress=lambda done, total: told.append((done, total, threading.get_ident())))
    assert {thread for *_, thread in told} == {threading.get_ident()}
    done, total, _ = told[-1]
    assert done == total
    assert [done for done, *_ in told] == sorted(done for done, *_ in told)


def test_an_interrupt_stops_within_a_second():
    call = drawn(8, 8, 20_000, 20_000, 16, 16, dtype=torch.float32, mask=CAUSAL)
    threads = threading.active_count()
    start = None

    def interrupt(done, _):
        nonlocal start
        if done:
            start = time.perf_counter()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(call, progress=interrupt)
    assert time.perf_counter() - start < 1.0
    assert threading.active_count() == threads


def test_an_error_of_a_worker_is_raised(monkeypatch):
    def broken(_):
        raise ValueError("a rule that fails")

    mask = Mask("broken", lambda q, k: broken(q + k))
    cut_small(monkeypatch)
    with pytest.raises(ValueError, match="a rule that fails"):
        measure(drawn(mask=mask))
