"""Measured runs for tests: one written by hand, with exact numbers, and ones that are measured."""

import dataclasses

import torch

from attnscope.attention.call import AttentionCall
from attnscope.attention.masks import CAUSAL
from attnscope.attention.measured import MeasureOptions, Measures
from attnscope.attention.stripes import measure
from attnscope.attention.verify import ObservedCall
from attnscope.measured_run import MeasuredLayer, MeasuredRun
from attnscope.run import Axis, Settings, Site, axis_of_positions
from tests.sources.models import numbers
from tests.views import handmade

WORDS = handmade.tokens()


def settings(heads=1, key_heads=1, **more):
    given = {
        "source": "tensors", "variant": "causal", "heads": heads, "key_heads": key_heads,
        "d_key": 8, "d_value": 8, "causal": True, "align": None, "mask_method": "neg-inf",
        "scale": 0.5, "dtype": "float32", "device": "cpu",
    }  # fmt: skip
    return Settings(**{**given, **more})


def even(count, heads=1, top=2, **change):
    """Return measures of `count` causal rows that spread evenly over the last two keys they see."""
    row = torch.arange(float(count)).expand(heads, -1)
    later = (row > 0).float()
    half = 1 - later / 2
    places = torch.arange(count).expand(heads, -1)
    bins = (count - 1).bit_length() + 1
    weights = torch.eye(count) / 2 + torch.eye(count).roll(-1, 0) / 2 * (
        torch.arange(count)[:, None] < count - 1
    )  # by key and query
    profile = torch.zeros(heads, 2 * count - 1)
    profile[:, count - 1], profile[:, count - 2] = 1 + (count - 1) / 2, (count - 1) / 2
    histogram = torch.zeros(heads, bins)
    histogram[:, 0], histogram[:, 1] = profile[0, count - 1], profile[0, count - 2]
    weights[0, 0] = 1
    cell = -(-count // 2)
    most = torch.eye(2).expand(heads, 2, 2) / 2
    made = Measures(
        logsumexp=row / 4, entropy=later / 2, largest=half, largest_key=places,
        first=(row < 2).float() * half, special=None, local=torch.ones(heads, count),
        distance=later / 2, row_sum=torch.ones(heads, count),
        blind=torch.zeros(heads, count, dtype=torch.bool),
        strongest_weights=torch.stack([half, later / 2], -1)[..., :top].contiguous(),
        strongest_keys=torch.stack([places, places - 1], -1)[..., :top].contiguous(),
        received=weights.sum(1).expand(heads, -1).contiguous(),
        received_max=weights.amax(1).expand(heads, -1).contiguous(),
        received_max_query=places.clone(),
        nearest=1 - count, distance_profile=profile, distance_histogram=histogram,
        distance_edges=torch.tensor([0, *(2**i for i in range(bins - 1))]),
        map_cell=(cell, cell), map_mean=most / cell, map_max=most.clone(), context=None,
    )  # fmt: skip
    return dataclasses.replace(made, **change)


def site(number=16, error=2.5e-7):
    name = f"model.layers.{number}.self_attn"
    return Site(str(number), number, "", name, 0, "interface", error, 1e-5)


def by_hand(count=4, heads=1, layers=1, *, named=False, measures=None, **more):
    """Return a run of exact numbers; of a model if it is `named`."""
    measures = measures or even(count, heads)
    sites = [site(16 + i) if named else None for i in range(layers)]
    axis = Axis(WORDS.labels, WORDS) if count == len(WORDS) else axis_of_positions("q", count)
    all_heads = tuple(range(heads))
    made = tuple(MeasuredLayer(measures, all_heads, all_heads, None, one) for one in sites)
    model = "Tiny" if named else None
    given = settings(heads, heads, model=model, source="model" if named else "tensors")
    return dataclasses.replace(MeasuredRun(given, axis, axis, made, 2, 8, 2), **more)


def call(queries=6, keys=None, heads=4, key_heads=2, mask=CAUSAL, dtype=torch.float32, **more):
    keys = keys or queries
    query = numbers(heads, queries, 8, seed=1).to(dtype)
    key, value = (numbers(key_heads, keys, 8, seed=s).to(dtype) for s in (2, 3))
    return AttentionCall(query, key, value, mask=mask, **more)


def observed(queries=6, heads=4):
    scores = numbers(heads, queries, queries)
    return ObservedCall(scores.softmax(-1), numbers(heads, queries, 3), scores)


def of_call(record, *, keep=True, top=3, window=3, grid=3, special=True, one_site=None, **more):
    """Return a call, measured."""
    first = torch.arange(record.keys) == 0
    options = MeasureOptions(top=top, window=window, grid=grid, special=first if special else None)
    key_heads = getattr(record, "key_heads", record.heads)
    read = tuple(head // (record.heads // key_heads) for head in range(record.heads))
    heads = tuple(range(record.heads))
    measures = measure(record, dataclasses.replace(options, **more), workers=1)
    layer = MeasuredLayer(measures, heads, read, record if keep else None, one_site)
    axis = axis_of_positions("q", record.queries)
    keys = axis if record.keys == record.queries else axis_of_positions("k", record.keys)
    causal = isinstance(record, AttentionCall) and record.mask.name == "causal"
    given = settings(record.heads, key_heads, causal=causal)
    return MeasuredRun(given, axis, keys, (layer,), top, window, grid)
