"""What each head of a call does, in a dozen means over its rows, each exact."""

from dataclasses import dataclass

import torch
from torch import Tensor

from attnscope.attention.gathered import Call, seen_pairs, without_first
from attnscope.attention.measured import MeasureOptions, Measures
from attnscope.attention.stripes import measure
from attnscope.attention.token_matches import Matches, token_matches
from attnscope.attention.verify import CapturedCall, output_error

# In the order in which they are shown.
MEASURES = (
    "first", "special", "previous", "next", "same", "induction", "local", "distance", "entropy",
    "largest",
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class TokenFacts:
    """What is known about the tokens behind the columns, and the rows, of a call.

    Shapes: special (keys,) bool: which keys are special tokens, or None if that is not known; ids
    (tokens,), or None if rows and columns are not the same tokens: then nothing is said about
    neighbours, repetitions and distances.
    """

    special: Tensor | None = None
    ids: Tensor | None = None


@dataclass(frozen=True, slots=True, eq=False)
class HeadScores:
    """Sums over rows, and over how many: two of them add up, so that several texts are one.

    Shapes: sums, counts: (heads,) float64 on the CPU by the name of the measure; what does not
    apply is missing. largest (heads,), the largest weight of all.
    """

    sums: dict[str, Tensor]
    counts: dict[str, Tensor]
    largest: Tensor

    def plus(self, other: "HeadScores") -> "HeadScores":
        """Return the scores of the rows of both."""
        names = [name for name in MEASURES if name in self.sums or name in other.sums]
        return HeadScores(
            {name: _added(self.sums, other.sums, name) for name in names},
            {name: _added(self.counts, other.counts, name) for name in names},
            torch.maximum(self.largest, other.largest),  # keeps a NaN, as max() does not
        )

    def mean(self, name: str, head: int) -> float | None:
        """Return the mean of a measure over the rows it applies to; None if there are none."""
        if name not in self.sums or not float(self.counts[name][head]):
            return None
        return float(self.sums[name][head] / self.counts[name][head])

    def rows(self, name: str, head: int) -> int:
        """Return how many rows a measure applies to."""
        return int(self.counts[name][head]) if name in self.counts else 0


def score_heads(
    call: Call, facts: TokenFacts, *, window: int, no_first: bool = False
) -> HeadScores | None:
    """Return what the heads of a call do.

    `window`: a key is local if its distance is less than this. `no_first`: the first key is left
    out and what remains of each row divided anew; None if nothing remains in any row.
    Units: entropy in nats, distance in positions, all others are shares of a row from 0 to 1.
    Memory: some numbers per row and key, and blocks of 16 MB; never queries × keys.
    """
    if no_first:
        rest = without_first(call)
        return None if rest is None else _scored(rest, facts, window, 1)[0]
    return _scored(call, facts, window, 0)[0]


def score_and_prove(
    captured: CapturedCall, facts: TokenFacts, *, window: int
) -> tuple[HeadScores, float]:
    """Return what the heads of a captured call do, and the relative error of its record.

    The error is that of `attention.verify.verify`, from the context of the same pass.
    """
    scores, found = _scored(captured.call, facts, window, 0, keep_context=True)
    return scores, prove(captured, found)


def prove(captured: CapturedCall, found: Measures) -> float:
    """Return max |context − output| / max |output|, over the rows that may see a key.

    `found` are the measures of the call, its context kept: that of the very weights that were
    measured, by the equation. A NaN stays.
    """
    assert found.context is not None
    return output_error(found.context, captured.output, ~found.blind[..., None])


def _scored(
    call: Call, facts: TokenFacts, window: int, first_key: int, *, keep_context: bool = False
) -> tuple[HeadScores, Measures]:
    """Return the scores; the first column of the call is the token `first_key`."""
    special = None if facts.special is None else facts.special[first_key:]
    options = MeasureOptions(
        top=0,
        window=window,
        special=special,
        grid=None,
        query_offset=None if first_key == 0 else -first_key,
        keep_context=keep_context,
    )
    found = measure(call, options)
    # an observed row of zeros has seen nothing, though no mask says so
    counted = ~found.blind & (found.row_sum != 0.0)
    rows = counted.sum(dim=1)
    by_row = {"entropy": found.entropy, "largest": found.largest}
    if first_key == 0:
        by_row["first"] = found.first
    if found.special is not None and special is not None and bool(special.any()):
        by_row["special"] = found.special
    if facts.ids is not None:
        by_row |= {"local": found.local, "distance": found.distance}
    sums = {name: _sum(rows_of.masked_fill(~counted, 0.0)) for name, rows_of in by_row.items()}
    counts = {name: _whole(rows) for name in by_row}
    if facts.ids is not None:
        _add_neighbours(call, found, first_key, sums, counts)
        matches = token_matches(call, found.logsumexp, facts.ids, first_key=first_key)
        _add_matches("same", matches.same, sums, counts)
        _add_matches("induction", matches.after, sums, counts)
    return HeadScores(sums, counts, found.largest.amax(dim=1).double().cpu()), found


def _add_neighbours(
    call: Call,
    found: Measures,
    first_key: int,
    sums: dict[str, Tensor],
    counts: dict[str, Tensor],
) -> None:
    """Add the weight of the token before and of the one after, over the rows that may see it."""
    rows = torch.arange(call.queries, device=found.entropy.device)
    for name, step in (("previous", -1), ("next", 1)):
        keys = rows + step - first_key
        inside = (keys >= 0) & (keys < call.keys)
        if bool(inside.any()):
            seen = seen_pairs(call, rows[inside], keys[inside]).expand(call.heads, -1)
            # the sum along one diagonal
            sums[name] = found.distance_profile[:, step - found.nearest].double().cpu()
            counts[name] = _whole(seen.sum(dim=1))


def _add_matches(
    name: str, matches: Matches, sums: dict[str, Tensor], counts: dict[str, Tensor]
) -> None:
    sums[name] = _sum(matches.weight)
    counts[name] = _whole(matches.there.sum(dim=1))


def _sum(by_row: Tensor) -> Tensor:
    if by_row.device.type == "mps":  # has no float64
        by_row = by_row.cpu()
    return by_row.double().sum(dim=1).cpu()


def _whole(counts: Tensor) -> Tensor:
    return counts.cpu().double()


def _added(mine: dict[str, Tensor], theirs: dict[str, Tensor], name: str) -> Tensor:
    if name in mine and name in theirs:
        return mine[name] + theirs[name]
    return mine[name] if name in mine else theirs[name]
