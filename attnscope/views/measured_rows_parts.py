"""Rows of a MeasuredRun as parts: their strongest keys, and one row in full."""

from collections.abc import Callable, Iterator

from attnscope.measured_run import MeasuredRun
from attnscope.views.look import Look
from attnscope.views.measured_summary import named, numbers_by_row, strongest_of_row, titles, where
from attnscope.views.parts import Listing
from attnscope.views.style import number

_BLIND = "sees no key"


def rows_of_heads(
    run: MeasuredRun, index: int, places: list[int], rows: list[int], look: Look
) -> Listing:
    """Return a line per row and head: strongest keys with their weights, and entropy."""
    layer = run.layers[index]
    measures = layer.measures
    many = len(places) > 1
    listed = []
    for row in rows:
        for place in places:
            tops = ", ".join(
                f"{named(run.keys, key)} {number(weight, look.precision)}"
                for key, weight in strongest_of_row(measures, place, row)
            )
            if bool(measures.blind[place, row]):
                tops = _BLIND
            head = [str(layer.numbers[place])] if many else []
            entropy = number(float(measures.entropy[place, row]), look.precision)
            listed.append((named(run.queries, row), *head, tops, entropy))
    title = "strongest keys and entropy" + where(run, index, None if many else places[0])
    if len(rows) > 1 and len(rows) < len(run.queries) and look.queries is None:
        title += f", first and last {len(rows) // 2} rows"
    columns = ("query", *(["head"] if many else []))
    columns += ("strongest keys and their weights", "entropy (nats)")
    return Listing(title, columns, tuple(listed), (False, *([True] if many else []), False, True))


def one_row(
    run: MeasuredRun,
    index: int,
    places: list[int],
    row: int,
    look: Look,
    bar: Callable[[float], str] | None,
) -> Iterator[Listing]:
    """Return every measure of a row, and its strongest keys, one a line, for some heads.

    `bar`: what draws a weight beside its number.
    """
    layer = run.layers[index]
    measures = layer.measures
    query = named(run.queries, row)
    names = {**titles(run), "row_sum": "row sum", "logsumexp": "log-sum-exp of the logits"}
    numbers = numbers_by_row(measures) | {"logsumexp": measures.logsumexp}
    lines = tuple(
        (title, *(number(float(numbers[name][place, row]), look.precision) for place in places))
        for name, title in names.items()
        if name in numbers
    )
    heads = [f"head {layer.numbers[place]}" for place in places]
    columns = ("measure", *(heads if run.settings.heads > 1 else ["value"]))
    yield Listing(
        f"query {query}{where(run, index)}", columns, lines, (False, *[True] * len(places))
    )
    for place in places:
        title = f"strongest keys of query {query}{where(run, index, place)}"
        yield _keys(run, index, place, row, title, look, bar)


def _keys(
    run: MeasuredRun,
    index: int,
    place: int,
    row: int,
    title: str,
    look: Look,
    bar: Callable[[float], str] | None,
) -> Listing:
    measures = run.layers[index].measures
    columns = ("key", "weight", *([""] if bar else []))
    tops = strongest_of_row(measures, place, row)
    lines = [
        (named(run.keys, key), number(weight, look.precision), *([bar(weight)] if bar else []))
        for key, weight in tops
    ]
    if bool(measures.blind[place, row]):
        lines = [(_BLIND, *[""] * (len(columns) - 1))]
    return Listing(title, columns, tuple(lines), (False, True, False)[: len(columns)])
