"""What the views of all surveys share: numbers that may be missing, proofs, plain CSV."""

import csv
import io
import math
from collections.abc import Iterable, Sequence

from attnscope.run import Site
from attnscope.views.parts import Line, Tone
from attnscope.views.style import gap, number

NOTHING = "–"


def shown(value: float | None, precision: int) -> str:
    """Return a number as a table shows it; what does not apply is a dash."""
    return NOTHING if value is None else number(value, precision)


def exact(value: float | None) -> str:
    """Return a number as CSV has it: to full precision, empty where it does not apply."""
    if value is None:
        return ""
    if math.isnan(value):
        return "NaN"
    return repr(value) if math.isfinite(value) else ("inf" if value > 0 else "-inf")


def finite(value: float | None) -> float | None:
    """Return a number as JSON has it: null where it is not finite."""
    return value if value is not None and math.isfinite(value) else None


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return "1 head" or "9 heads"."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def proof_of_sites(sites: Sequence[Site]) -> Line:
    """Return whether every call that was measured reproduces the model's own output."""
    broken = [site for site in sites if not site.proven]
    if broken:
        return Line(f"{len(broken)} of {len(sites)} calls are NOT proven", Tone.WARNING)
    worst = max(sites, key=lambda site: site.error)
    return Line(
        "proven: every record gives the model's own output, relative error at most "
        f"{gap(worst.error)} (tolerance {worst.tolerance:g})",
        Tone.GOOD,
    )


def csv_of(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as CSV with one header line."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return stream.getvalue()
