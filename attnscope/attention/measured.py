"""MeasureOptions and Measures: what is asked of a call of any length, and what is found."""

from dataclasses import dataclass

import torch
from torch import Tensor

from attnscope.errors import OptionError, ShapeError


@dataclass(frozen=True, slots=True, eq=False)
class MeasureOptions:
    """What to measure.

    `top`: how many of the strongest keys of each row are kept; 0: none. `window`: a key is local
    to a query if their positions are less than this apart. `special`: which keys are special
    tokens, (keys,) bool. `grid`: the map has at most this many rows and columns; None: no map.
    `query_offset`: the position of the first row where that of the first key is 0; None: that of
    the call, or 0 if the call was only observed. `keep_context`: return the context too.
    `compiled`: read rows by code that numba compiles, which is quicker and differs by rounding
    only; None: where numba is installed and the call is long. Only float32 on a CPU, without bias
    or softcap, is read so; all else by torch.
    """

    top: int = 10
    window: int = 8
    special: Tensor | None = None
    grid: int | None = 256
    query_offset: int | None = None
    keep_context: bool = False
    compiled: bool | None = None

    def check(self, keys: int) -> None:
        """Raise OptionError or ShapeError if these cannot be asked of a call with `keys` keys."""
        if self.top < 0:
            raise OptionError(f"{self.top} strongest keys cannot be kept", "Give 0 or more")
        if self.window < 1:
            raise OptionError(f"a window of {self.window} holds no key", "Give 1 or more")
        if self.grid is not None and self.grid < 1:
            raise OptionError(f"a map of {self.grid} rows has no cell", "Give 1 or more")
        if self.special is not None and tuple(self.special.shape) != (keys,):
            raise ShapeError(
                f"special has shape {tuple(self.special.shape)} for {keys} keys",
                "Give one truth value per key",
            )


@dataclass(frozen=True, slots=True, eq=False)
class Measures:
    """Exact numbers about the weights of one call; float32, or float64 if the call is.

    A sink takes its share of each row first: weights are those of keys, and a row adds to less
    than 1. A row that may see no key has `blind`, zeros, and no largest key.

    Shapes, by row (heads, queries): logsumexp, of the logits, the sink included (−inf if blind;
    NaN if a call was only observed, and without scores); entropy, −Σ w·ln w; largest and
    largest_key, the first of equal ones; first, the weight of key 0; special, of all special
    tokens together, or None; local, of all keys nearer than the window; distance, the mean of
    |key − query| weighted by the weights; row_sum, which tells how exact the pass was: 1 less the
    share of the sink; blind. strongest_weights and strongest_keys (heads, queries, top), largest
    first; which of equal weights are kept is not told, and a weight of 0 is not: its key is −1.

    By key (heads, keys): received, the sum over queries; received_max and received_max_query, the
    first of equal ones (−1: no query).

    By head: distance_profile (heads, queries + keys − 1), the weight at each key − query from
    `nearest` on; distance_histogram (heads, bins), the weight at distances from distance_edges
    (bins,) up to the next: 0, 1, 2–3, 4–7, …

    Map (heads, rows, columns), or None: map_mean and map_max over cells of map_cell = (queries,
    keys), those at the far edges smaller; a hidden key counts as 0. context (heads, queries,
    d_value), or None.

    Units: entropy and logsumexp in nats; distances in positions.
    """

    logsumexp: Tensor
    entropy: Tensor
    largest: Tensor
    largest_key: Tensor
    first: Tensor
    special: Tensor | None
    local: Tensor
    distance: Tensor
    row_sum: Tensor
    blind: Tensor
    strongest_weights: Tensor
    strongest_keys: Tensor
    received: Tensor
    received_max: Tensor
    received_max_query: Tensor
    nearest: int
    distance_profile: Tensor
    distance_histogram: Tensor
    distance_edges: Tensor
    map_cell: tuple[int, int] | None
    map_mean: Tensor | None
    map_max: Tensor | None
    context: Tensor | None


def effective_keys(entropy: Tensor) -> Tensor:
    """Return exp(entropy): over how many keys a row spreads, as if it did so evenly.

    Shapes: any -> the same. A row that sees nothing has entropy 0, and so 1.
    """
    return entropy.exp()


def quantiles(by_row: Tensor, blind: Tensor, at: tuple[float, ...]) -> Tensor:
    """Return quantiles of a measure over the rows that see a key, a NaN if one of them is.

    Shapes: (heads, queries), (heads, queries) bool -> (heads, len(at)), NaN if all are blind.
    """
    places = by_row.new_tensor(at)
    found = []
    for numbers, hidden in zip(by_row, blind, strict=True):
        seeing = numbers[~hidden]
        empty = torch.full_like(places, torch.nan)
        found.append(torch.quantile(seeing, places) if seeing.numel() else empty)
    return torch.stack(found)


def histogram(profile: Tensor, nearest: int) -> tuple[Tensor, Tensor]:
    """Return the weight at distances 0, 1, 2–3, 4–7, …, and where each of these begins.

    Shapes: (heads, distances) -> (heads, bins), (bins,).
    """
    distances = torch.arange(nearest, nearest + profile.shape[1], device=profile.device).abs()
    bins = int(distances.max()).bit_length() + 1
    edges = torch.tensor([0, *(1 << power for power in range(bins - 1))], device=profile.device)
    place = torch.bucketize(distances, edges, right=True) - 1
    return profile.new_zeros(profile.shape[0], bins).index_add(1, place, profile), edges
