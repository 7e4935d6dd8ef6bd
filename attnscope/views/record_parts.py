"""What a record file holds, as parts: one line for each of its runs."""

import math
from collections.abc import Iterator, Sequence

from attnscope.model_run import ModelRun
from attnscope.views.parts import Line, Listing, Part, Tone
from attnscope.views.style import gap

_COLUMNS = ("run", "model", "calls", "layers", "rows × keys", "proven", "relative error")
_NUMERIC = (True, False, True, True, False, False, True)


def parts_of_record(runs: Sequence[ModelRun]) -> Iterator[Part]:
    """Return the runs of a record file in the order in which they were made."""
    calls = sum(len(run.calls) for run in runs)
    yield Line(f"{len(runs)} runs · {calls} attention calls", Tone.HEADING)
    yield Listing("runs", _COLUMNS, tuple(_row(i, run) for i, run in enumerate(runs)), _NUMERIC)
    yield Line("--run N shows one of them, --run N --layer L its weights", Tone.HINT)


def _row(number: int, run: ModelRun) -> tuple[str, ...]:
    sites = [call.site for call in run.calls]
    proven = sum(site.proven for site in sites)
    errors = [site.error for site in sites]
    worst = math.nan if any(math.isnan(error) for error in errors) else max(errors)
    return (
        str(number),
        run.model,
        str(len(sites)),
        str(len({(site.part, site.layer) for site in sites})),
        _sizes(run),
        "yes" if proven == len(sites) else f"{proven} of {len(sites)}",
        gap(worst),
    )


def _sizes(run: ModelRun) -> str:
    sizes = [(call.captured.call.queries, call.captured.call.keys) for call in run.calls]
    first = "{} × {}".format(*sizes[0])
    return first if len(set(sizes)) == 1 else f"{first}, …"
