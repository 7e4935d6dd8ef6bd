"""A MeasuredRun as parts: a summary of each head, and rows in words."""

import math
from collections.abc import Iterator

from attnscope.measured_run import MeasuredLayer, MeasuredRun
from attnscope.text.display import visible
from attnscope.views.look import SUMMARY_ABOVE, Look
from attnscope.views.measured_rows_parts import one_row, rows_of_heads
from attnscope.views.measured_summary import (
    bins_of_distance,
    most_received,
    named,
    places_shown,
    spreads,
    sums_of_rows,
    titles,
    where,
)
from attnscope.views.parts import Line, Listing, Part, Tone
from attnscope.views.style import gap, number
from attnscope.views.survey_parts import NOTHING, counted

# With more heads than these, each is one line of a table.
_MOST_IN_FULL = 4
_MOST_RECEIVED = 5
# Rows at either end of a long text.
_AT_THE_ENDS = 3
_BAR = 20  # characters
_EIGHTHS = " ▏▎▍▌▋▊▉"


def parts_of_measured(run: MeasuredRun, look: Look, *, bars: bool = True) -> Iterator[Part]:
    """Return a measured run in reading order. `bars`: with small bars beside shares.

    Rows that were asked for are shown alone; else each head has a summary, or one line where
    there are many heads.
    """
    yield Line(headline(run), Tone.HEADING)
    places = [places_shown(layer, look) for layer in run.layers]
    heads = sum(len(one) for one in places)
    rows = _rows(run, look)
    for i, layer in enumerate(run.layers):
        yield from _opening(run, layer, places[i])
        if not places[i]:
            continue
        if asked_for_rows(run, look):
            if len(rows) == 1 and heads <= _MOST_IN_FULL:
                yield from one_row(run, i, places[i], rows[0], look, bar if bars else None)
            else:
                yield rows_of_heads(run, i, places[i], rows, look)
        elif heads > _MOST_IN_FULL:
            yield _overview(run, i, places[i], look)
        else:
            for place in places[i]:
                yield from _summary(run, i, place, look, bars=bars)
                yield rows_of_heads(run, i, [place], rows, look)
    yield from _hints(run, look, heads)


def asked_for_rows(run: MeasuredRun, look: Look) -> bool:
    """Return whether single rows are shown, and no summary over all of them."""
    return look.queries is not None or len(run.queries) == 1


def headline(run: MeasuredRun) -> str:
    """Return what was measured, in a line."""
    s = run.settings
    parts = [] if s.model is None else [visible(s.model)]
    parts.append(f"{s.variant} attention")
    if s.heads > 1:
        shared = "" if s.key_heads == s.heads else f" ({counted(s.key_heads, 'key head')})"
        parts.append(f"{s.heads} heads{shared}")
    parts.append(
        f"{counted(len(run.queries), 'query', 'queries')} × {counted(len(run.keys), 'key')}"
    )
    return " · ".join([*parts, "measured", s.dtype, s.device])


def bar(share: float) -> str:
    """Return a share as a bar of up to 20 characters, in eighths of one."""
    if math.isnan(share):
        return ""
    eighths = round(min(max(share, 0.0), 1.0) * _BAR * 8)  # 1 may be a last digit off
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def _rows(run: MeasuredRun, look: Look) -> list[int]:
    total = len(run.queries)
    if look.queries is not None:
        return list(look.queries)
    if total <= SUMMARY_ABOVE:
        return list(range(total))
    return [*range(_AT_THE_ENDS), *range(total - _AT_THE_ENDS, total)]


def _opening(run: MeasuredRun, layer: MeasuredLayer, places: list[int]) -> Iterator[Part]:
    site = layer.site
    if site is not None:
        heads = counted(run.settings.heads, "head")
        if len(layer.numbers) < run.settings.heads:
            heads = f"{counted(len(layer.numbers), 'head')} of {run.settings.heads}"
        yield Line(f"layer {site.name} · {visible(site.module_name)} · {heads}", Tone.SECTION)
        error = gap(site.error)
        if site.proven:
            told = f"proven: the record gives the model's own output, relative error {error}"
            yield Line(told, Tone.GOOD)
        else:
            told = (
                "NOT proven: the record gives another output than the model's, relative error "
                f"{error}, tolerance {site.tolerance:g}"
            )
            yield Line(told, Tone.WARNING)
    if places:
        yield _check(layer, places)
        yield from _blind(run, layer, places)


def _check(layer: MeasuredLayer, places: list[int]) -> Line:
    """Return how exact the pass was: rows add to 1, unless a sink takes a share."""
    least, most, off, rounding = sums_of_rows(layer.measures, places)
    if getattr(layer.call, "sinks", None) is not None:
        told = f"a learned sink takes its share: rows add to {least:.4g} to {most:.4g}"
        return Line(told, Tone.HINT)
    if bool(layer.measures.blind[places].all()):
        return Line("no row sees a key", Tone.WARNING)
    if off <= rounding:
        return Line(f"rows add to 1: largest |row sum − 1| = {gap(off)}", Tone.GOOD)
    if math.isnan(off):
        bad = int(layer.measures.row_sum[places].isnan().any(dim=0).sum())
        return Line(f"{counted(bad, 'row')} with NaN among the weights", Tone.WARNING)
    return Line(
        f"rows add to {least:.6g} to {most:.6g}, largest |row sum − 1| = {gap(off)}: a learned "
        "sink takes a share, or weights were rounded",
        Tone.WARNING,
    )


def _blind(run: MeasuredRun, layer: MeasuredLayer, places: list[int]) -> Iterator[Line]:
    counts = sorted(set(layer.measures.blind[places].sum(dim=1).tolist()))
    if counts[-1]:
        many = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
        rows = counted(len(run.queries), "row")
        yield Line(f"{many} of {rows} may see no key: they are in no mean", Tone.WARNING)


def _summary(
    run: MeasuredRun, index: int, place: int, look: Look, *, bars: bool
) -> Iterator[Listing]:
    layer, suffix = run.layers[index], where(run, index, place)
    seeing = int((~layer.measures.blind[place]).sum())
    names = titles(run)
    rows = tuple(
        (
            names[name],
            *(number(value, look.precision) for value in (spread.mean, *spread.quantiles)),
        )
        for name, spread in spreads(layer.measures, place).items()
        if name in names
    )
    yield Listing(
        f"measures over {counted(seeing, 'row')}{suffix}",
        ("measure", "mean", "5 %", "median", "95 %"),
        rows,
        (False, True, True, True, True),
    )
    yield _distances(layer, place, suffix, look, bars=bars)
    yield _received(run, index, place, look)


def _distances(layer: MeasuredLayer, place: int, suffix: str, look: Look, *, bars: bool) -> Listing:
    shares = bins_of_distance(layer.measures, place)
    columns: tuple[str, ...] = ("distance", "share")
    rows: list[tuple[str, ...]] = [(name, number(part, look.precision)) for name, part in shares]
    if bars:
        columns = (*columns, "")
        rows = [(*row, bar(part)) for row, (_, part) in zip(rows, shares, strict=True)]
    title = f"weight by distance from query to key{suffix}"
    return Listing(title, columns, tuple(rows), (True, True, False)[: len(columns)])


def _received(run: MeasuredRun, index: int, place: int, look: Look) -> Listing:
    rows = tuple(
        (
            named(run.keys, one.key),
            number(one.total, look.precision),
            number(one.most, look.precision),
            named(run.queries, one.query) if one.query >= 0 else NOTHING,
        )
        for one in most_received(run.layers[index].measures, place, _MOST_RECEIVED)
    )
    columns = ("key", "sum over queries", "largest", "from query")
    title = f"keys that receive most{where(run, index, place)}"
    return Listing(title, columns, rows, (False, True, True, False))


def _overview(run: MeasuredRun, index: int, places: list[int], look: Look) -> Listing:
    """Return a line per head: the means of its measures over the rows that see a key."""
    layer = run.layers[index]
    grouped = layer.key_heads != layer.numbers
    wanted = [
        name for name in titles(run) if name != "special" or layer.measures.special is not None
    ]
    rows = []
    for place in places:
        found = spreads(layer.measures, place)
        lead = [str(layer.numbers[place]), *([str(layer.key_heads[place])] if grouped else [])]
        rows.append((*lead, *(number(found[name].mean, look.precision) for name in wanted)))
    columns = ("head", *(["key head"] if grouped else []))
    columns += tuple("keys" if name == "effective_keys" else name for name in wanted)
    return Listing(
        f"means over rows{where(run, index)}", columns, tuple(rows), (True,) * len(columns)
    )


def _hints(run: MeasuredRun, look: Look, heads: int) -> Iterator[Line]:
    if asked_for_rows(run, look):
        return
    if heads > _MOST_IN_FULL:
        yield Line(
            "entropy in nats · keys: exp(entropy) · first: weight of the first key · local: of "
            f"keys less than {run.window} away · distance: mean, in positions",
            Tone.HINT,
        )
        layer = "--layer L " if run.settings.model is not None else ""
        yield Line(f"{layer}--head N shows the distances, keys and rows of a head", Tone.HINT)
    if len(run.queries) > SUMMARY_ABOVE:
        yield Line(
            f"{len(run.queries):,} rows: --query N shows one, --rows A:B --keys C:D a window, "
            "--format ndjson all",
            Tone.HINT,
        )
