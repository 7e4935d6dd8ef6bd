"""One query at a time, number by number."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from attnscope.run import Run
from attnscope.views.grids import SINK, band, dimensions, grid, scaling
from attnscope.views.look import Look
from attnscope.views.parts import Band, Grid

if TYPE_CHECKING:
    from torch import Tensor

    from attnscope.attention.result import AttentionResult

# Vectors of more numbers than this are left out of a walk: --show queries,keys,values prints them.
WIDEST = 16


def walks_of_result(run: Run, result: "AttentionResult", look: Look) -> Iterator[Grid]:
    """One query at a time, key by key: everything that leads to its context vector."""
    for head in look.heads(result.call.heads):
        for row in look.rows(len(run.queries)):
            yield from _walk(run, result, head, row, norms=look.norms)


def _walk(
    run: Run, result: "AttentionResult", head: int, row: int, *, norms: bool
) -> Iterator[Grid]:
    call = result.call
    key_head = call.key_head(head)
    query = band("query", run.queries, (row,))
    name = f"query {query.heading(0)}"
    wide = call.query.shape[2] > WIDEST
    if not wide and not result.observed:
        widths = dimensions("q", call.query.shape[2])
        made = "" if run.inputs is None else " = x·W_query"
        yield grid("queries", f"{name}: q{made}", query, widths, call.query[head], head)
    seen = result.visible[head][row].tolist()
    keys = [] if wide or result.observed else _columns("k", call.key[key_head])
    columns = [*keys, *_numbers_of_keys(result, head, row)]
    formula = "" if result.observed else f", scaled = {scaling(call)}"
    weight_column = len(columns) - 1
    columns += _norms_of_keys(result, head, row) if norms else []
    yield _walk_grid(f"{name}: every key{formula}", run, head, columns, seen, weight_column)
    if result.sink_weights is not None:
        sink = result.sink_weights[head][:, None]
        yield grid(
            "weights", f"{name}: what the sink takes", query, Band("to", (SINK,)), sink, head
        )
    if not wide:
        values = _columns("v", call.value[key_head])
        yield _walk_grid(f"{name}: the values v", run, head, values, seen)
    if result.mask_steps is not None:
        sums = result.mask_steps.row_sums[head][:, None]
        yield grid("row-sums", f"{name}: row sum", query, Band("sum", ("row sum",)), sums, head)
    widths = dimensions("z", result.context.shape[2])
    title = f"{name}: context z = Σ weight·v"
    yield grid("context", title, query, widths, result.context[head], head)


def _numbers_of_keys(
    result: "AttentionResult", head: int, row: int
) -> list[tuple[str, list[float], bool]]:
    """Return what each key of a row got, step by step, the weight last."""
    columns = []
    if not result.observed:
        columns.append(("ω = q·k", result.scores[head][row].tolist(), False))
        scaled = result.steps.scaled[head][row].tolist()
        columns.append(("scaled", scaled, result.mask_steps is None))
    if result.mask_steps is not None:
        columns.append(("softmax", result.mask_steps.unmasked[head][row].tolist(), False))
        columns.append(("masked", result.mask_steps.masked[head][row].tolist(), True))
    columns.append(("weight", result.weights[head][row].tolist(), True))
    return columns


def _norms_of_keys(
    result: "AttentionResult", head: int, row: int
) -> list[tuple[str, list[float], bool]]:
    columns = [("‖α·v‖", result.norms[head][row].tolist(), True)]
    if result.output_norms is not None:
        columns.append(("‖α·v·W_O‖", result.output_norms[head][row].tolist(), True))
    return columns


def _columns(letter: str, tensor: "Tensor") -> list[tuple[str, list[float], bool]]:
    """Return the columns of a matrix, each with its name and whether the mask hides it."""
    by_column = tensor.transpose(0, 1).tolist()
    return [(f"{letter}{i}", column, False) for i, column in enumerate(by_column)]


def _walk_grid(
    title: str,
    run: Run,
    head: int,
    columns: list[tuple[str, list[float], bool]],
    seen: list[bool],
    weight_column: int | None = None,
) -> Grid:
    return Grid(
        "walk",
        title,
        band("key", run.keys),
        Band("number", tuple(column[0] for column in columns)),
        tuple(zip(*(column[1] for column in columns), strict=True)),
        head,
        tuple(tuple(hide and not sees for _, _, hide in columns) for sees in seen),
        frozenset(() if weight_column is None else (weight_column,)),
    )
