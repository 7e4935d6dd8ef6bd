"""A Comparison as parts: the methods step by step, then how far they part and what they cost."""

import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from attnscope.views.look import SUMMARY_ABOVE, Look
from attnscope.views.parts import Grid, Line, Listing, Part, Tone
from attnscope.views.run_parts import matrices_of_result
from attnscope.views.style import gap

if TYPE_CHECKING:
    from attnscope.compare import Comparison

# The steps each method goes through after the omegas, which both share.
_STEPS = {
    "neg-inf": ("scaled", "weights", "context"),
    "renormalize": ("unmasked", "masked", "row-sums", "weights", "context"),
}


def parts_of_comparison(comparison: "Comparison", look: Look) -> Iterator[Part]:
    """Return the parts of a comparison in reading order."""
    methods = " and ".join(str(result.method) for result in comparison.results)
    settings = comparison.run.settings
    yield Line(f"causal attention, mask method {methods} · {settings.dtype}", Tone.HEADING)
    if max(len(comparison.run.queries), len(comparison.run.keys)) > SUMMARY_ABOVE and not look.show:
        yield Line("a summary: --show all prints every step", Tone.HINT)
    else:
        yield from _steps(comparison, look)
    yield _costs(comparison)
    yield from _verdict(comparison)


def _steps(comparison: "Comparison", look: Look) -> Iterator[Part]:
    first = comparison.results[0]
    shared = look if look.show else dataclasses.replace(look, show=("omegas",))
    shared_only = tuple(s for s in shared.show if s not in {n for v in _STEPS.values() for n in v})
    if shared_only:
        yield from matrices_of_result(
            comparison.run, first, dataclasses.replace(look, show=shared_only)
        )
    for result in comparison.results:
        steps = _STEPS[str(result.method)]
        if look.show:
            steps = tuple(step for step in steps if step in look.show)
        if not steps:
            continue
        own = dataclasses.replace(look, show=steps)
        for part in matrices_of_result(comparison.run, result, own):
            if isinstance(part, Grid):
                title = f"{result.method}: {part.title}"
                yield dataclasses.replace(part, title=title, step=f"{result.method}/{part.step}")


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
