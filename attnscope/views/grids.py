"""Matrices of a Run as grids."""

import dataclasses
from typing import TYPE_CHECKING

from attnscope.run import Axis
from attnscope.views.parts import Band, Grid
from attnscope.views.style import STEPS, number

if TYPE_CHECKING:
    from torch import Tensor

    from attnscope.attention.call import AttentionCall
    from attnscope.attention.result import AttentionResult

# The name of the column for what a learned sink takes of each row.
SINK = "sink"


def scaling(call: "AttentionCall") -> str:
    """Return how omegas become scaled scores, as a formula."""
    formula = f"{number(call.scale, 4)}·ω"
    if call.softcap is not None:
        cap = number(call.softcap, 4)
        formula = f"{cap}·tanh({formula} / {cap})"
    return formula if call.bias is None else f"{formula} + bias"


def band(name: str, axis: Axis, positions: tuple[int, ...] | None = None) -> Band:
    """Return the tokens of an axis, or those at some positions, as the names along an edge."""
    if positions is None:
        positions = tuple(range(len(axis)))
    return Band(name, tuple(axis.labels[i] for i in positions), positions, axis.first)


def dimensions(letter: str, width: int) -> Band:
    """Return the numbers of a vector as the names along an edge: q0, q1, …"""
    return Band("value", tuple(f"{letter}{i}" for i in range(width)))


def weights_grid(
    step: str, rows: Band, columns: Band, tensor: "Tensor", head: int, seen: "Tensor | None"
) -> Grid:
    """Return a matrix of weights: coloured, and hidden where `seen` is False."""
    return grid(step, STEPS[step], rows, columns, tensor, head, seen=seen, tinted=True)


def weights_of_head(result: "AttentionResult", head: int, rows: Band, columns: Band) -> Grid:
    """Return a head's weights; what its sink takes stands last, so that a row adds to 1."""
    weights = weights_grid(
        "weights", rows, columns, result.weights[head], head, result.visible[head]
    )
    if result.sink_weights is None:
        return weights
    return with_column(weights, SINK, result.sink_weights[head].tolist())


def with_column(grid: Grid, name: str, numbers: list[float]) -> Grid:
    """Return a grid with one more column, which no mask hides. `numbers` has every row's."""
    columns, positions = grid.columns, grid.columns.positions
    count = len(columns.labels)
    rows = range(len(numbers)) if grid.rows.positions is None else grid.rows.positions
    hidden = grid.hidden
    return dataclasses.replace(
        grid,
        columns=Band(
            columns.name,
            (*columns.labels, name),
            None if positions is None else (*positions, count),
            columns.first,
        ),
        values=tuple((*row, numbers[i]) for row, i in zip(grid.values, rows, strict=True)),
        hidden=None if hidden is None else tuple((*row, False) for row in hidden),
        tinted=grid.tinted | {count} if grid.tinted else grid.tinted,
    )


def grid(
    step: str,
    title: str,
    rows: Band,
    columns: Band,
    tensor: "Tensor",
    head: int | None = None,
    *,
    seen: "Tensor | None" = None,
    tinted: bool = False,
    whole: bool = False,
) -> Grid:
    """Return rows of a matrix as a grid, those at the positions of the `rows` band."""
    picked = tensor if rows.positions is None else tensor[list(rows.positions)]
    hidden = None
    if seen is not None:
        shown = seen if rows.positions is None else seen[list(rows.positions)]
        hidden = tuple(tuple(row) for row in (~shown).tolist())
    values = tuple(tuple(row) for row in picked.tolist())
    tints = frozenset(range(len(columns.labels))) if tinted else frozenset[int]()
    return Grid(step, title, rows, columns, values, head, hidden, tints, whole)
