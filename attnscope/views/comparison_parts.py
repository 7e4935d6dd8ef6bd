"""A Comparison as parts: the methods step by step, then how far they part and what they cost."""

import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from attnscope.views.look import Look
from attnscope.views.parts import Grid, Line, Listing, Pair, Part, Tone
from attnscope.views.run_parts import is_long, matrices_of_result
from attnscope.views.style import STEPS, gap

if TYPE_CHECKING:
    from attnscope.compare import Comparison

# The steps each method goes through after the omegas, which both share, in lines of a picture:
# what stands in one line is the same step in both methods.
_STEPS = (
    ("omegas", "omegas"),
    ("mask", "mask"),
    ("scaled", "unmasked"),
    (None, "masked"),
    (None, "row-sums"),
    ("weights", "weights"),
    ("context", "context"),
)
_SHARED = ("omegas", "mask")
_DEFAULT = ("omegas", "scaled", "unmasked", "masked", "row-sums", "weights", "context")


def parts_of_comparison(comparison: "Comparison", look: Look) -> Iterator[Part]:
    """Return the parts of a comparison in reading order."""
    methods = " and ".join(str(result.method) for result in comparison.results)
    settings = comparison.run.settings
    yield Line(f"causal attention, mask method {methods} · {settings.dtype}", Tone.HEADING)
    if is_long(comparison.run) and look.summarise and not (look.show or look.queries):
        yield Line("a summary: --show all prints every step", Tone.HINT)
    else:
        yield from _steps(comparison, look)
    yield _costs(comparison)
    yield from _verdict(comparison)


def steps_missing(asked: tuple[str, ...]) -> list[str]:
    """Return a note for each step that was asked for and that a comparison does not show."""
    shown = {step for steps in _STEPS for step in steps}
    every = set(STEPS) <= set(asked)
    return [
        f"--show {step}: a comparison does not show it" for step in asked
        if step not in shown and not every
    ]  # fmt: skip


def _steps(comparison: "Comparison", look: Look) -> Iterator[Part]:
    own = look if look.show else dataclasses.replace(look, show=_DEFAULT)
    sides = {
        str(result.method): {
            (grid.step, grid.head): grid
            for grid in matrices_of_result(comparison.run, result, own)
            if isinstance(grid, Grid)
        }
        for result in comparison.results
    }
    for head in look.heads(comparison.run.settings.heads):
        for steps in _STEPS:
            grids: list[Grid | None] = [None, None]
            for side, (method, step) in enumerate(
                zip(("neg-inf", "renormalize"), steps, strict=True)
            ):
                grid = sides.get(method, {}).get((step or "", head))
                if grid is not None:
                    grids[side] = grid if step in _SHARED else _named(grid, method)
            if steps[0] in _SHARED:
                grids = [grids[0] or grids[1], None]
            if grids != [None, None]:
                yield Pair(grids[0], grids[1])


def _named(grid: Grid, method: str) -> Grid:
    return dataclasses.replace(grid, title=f"{method}: {grid.title}", step=f"{method}/{grid.step}")


def _costs(comparison: "Comparison") -> Listing:
    return Listing(
        "what each method takes after the omegas",
        ("method", "operations", "matrices", "bytes"),
        tuple(
            (str(c.method), f"{c.operations:,}", str(c.matrices), f"{c.memory_bytes:,}")
            for c in comparison.costs
        ),
        (False, True, True, True),
    )


def _verdict(comparison: "Comparison") -> Iterator[Line]:
    if len(comparison.results) == 2:
        yield Line(
            f"max |Δ| between the methods: weights {_gap(comparison.weights_gap)}, context "
            f"{_gap(comparison.context_gap)}",
            Tone.GOOD if _small(comparison) else Tone.WARNING,
        )
    else:
        yield Line(f"max |Δ| between the context and torch's: {_gap(comparison.context_gap)}")
    underflow, dtype = comparison.underflow, comparison.run.settings.dtype
    if underflow.gap == -math.inf:
        yield Line("nothing is hidden beside visible keys, so the methods cannot part", Tone.HINT)
        return
    name = f"query {underflow.query} {comparison.run.queries.labels[underflow.query]}"
    heads = comparison.run.settings.heads
    where = name if heads == 1 else f"head {underflow.head}, {name}"
    yield Line(
        f"largest hidden score above the largest visible one: {underflow.gap:.4f} ({where}). The "
        f"row sums of renormalize lose figures as this grows, and from about {underflow.limit:.1f} "
        f"on they underflow to 0 in {dtype} (float16 17.3, bfloat16 92.9, float32 104.0, float64 "
        "745.1)",
        Tone.HINT if underflow.gap < underflow.limit else Tone.WARNING,
    )


def _small(comparison: "Comparison") -> bool:
    largest = comparison.largest_gap
    return largest is not None and largest < 1e-2


def _gap(value: float | None) -> str:
    return "not known" if value is None else gap(value)
