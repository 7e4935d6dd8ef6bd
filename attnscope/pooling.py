"""A run with fewer, larger cells: a map of a long text that is small enough to draw."""

import dataclasses

import torch
from torch import Tensor
from torch.nn import functional

from attnscope.attention.engine import Steps
from attnscope.attention.masks import from_tensor
from attnscope.attention.measures import strongest
from attnscope.attention.result import STRONGEST, AttentionResult
from attnscope.run import Axis, Run


def pooled(run: Run, size: int) -> Run:
    """Return a run of at most `size` × `size` cells, each standing for a block of cells.

    A cell shows the largest weight of its block that a query gave a key it may see, with the omega
    and the scaled score of that same place, so no number is shown that was not used; a block is
    hidden if all of it is. Context vectors and row numbers are means over a block's queries.
    A run that is small enough is returned as it is.
    """
    rows, columns = _block(len(run.queries), size), _block(len(run.keys), size)
    if rows == columns == 1:
        return run
    queries = _grouped(run.queries, rows)
    keys = queries if not run.crossed else _grouped(run.keys, columns)
    note = (
        f"down-sampled: each cell is the largest weight of a block of up to {rows} queries × "
        f"{columns} keys"
    )
    return dataclasses.replace(
        run,
        queries=queries,
        keys=keys,
        layers=tuple(_pooled_result(result, rows, columns) for result in run.layers),
        inputs=None,
        warnings=(note, *run.warnings),
    )


def _block(length: int, size: int) -> int:
    return -(-length // size)


def _grouped(axis: Axis, block: int) -> Axis:
    starts = range(0, len(axis), block)
    ends = [min(start + block, len(axis)) - 1 for start in starts]
    return Axis(
        tuple(
            f"{start}–{end} {axis.labels[start]}" for start, end in zip(starts, ends, strict=True)
        )
    )


def _pooled_result(result: AttentionResult, rows: int, columns: int) -> AttentionResult:
    call, steps = result.call, result.steps
    seen = _blocks(result.visible, rows, columns, False)
    candidates = _blocks(steps.weights, rows, columns, 0.0).masked_fill(~seen, -1.0)
    weights, place = candidates.max(dim=-1)  # a NaN wins
    visible = seen.any(dim=-1)

    def at_place(matrix: Tensor) -> Tensor:
        picked = _blocks(matrix, rows, columns, 0.0).gather(-1, place[..., None])
        return picked[..., 0]

    scaled = at_place(steps.scaled)
    weights = weights.masked_fill(~visible, 0.0)
    values, keys = strongest(weights, visible, STRONGEST)
    heads, queries, count = weights.shape
    small = Steps(
        visible=visible,
        scores=at_place(steps.scores),
        scaled=scaled,
        logits=scaled.masked_fill(~visible, -torch.inf),
        weights=weights,
        context=_row_means(steps.context, rows),
        logsumexp=_row_means(steps.logsumexp[..., None], rows)[..., 0],
        mask_steps=None,
    )
    blank = dataclasses.replace(  # a block has no query and no key of its own
        call,
        query=call.query.new_zeros(heads, queries, 1),
        key=call.key.new_zeros(heads, count, 1),
        value=call.value.new_zeros(heads, count, call.value.shape[2]),
        mask=from_tensor(visible),
        bias=None,
        query_offset=0,
    )
    entropy = _row_means(result.entropy[..., None], rows)[..., 0]
    return AttentionResult(blank, result.method, small, entropy, values, keys, result.reference_gap)


def _blocks(matrix: Tensor, rows: int, columns: int, filler: float) -> Tensor:
    """Cut a matrix into blocks: (heads, q, k) -> (heads, q / rows, k / columns, rows · columns)."""
    heads, queries, keys = matrix.shape
    missing = (-keys % columns, -queries % rows)
    padded = functional.pad(matrix, (0, missing[0], 0, missing[1]), value=filler)
    down, across = padded.shape[1] // rows, padded.shape[2] // columns
    cut = padded.reshape(heads, down, rows, across, columns)
    return cut.transpose(2, 3).reshape(heads, down, across, rows * columns)


def _row_means(numbers: Tensor, rows: int) -> Tensor:
    """Return means over blocks of rows: (heads, queries, width) -> (heads, blocks, width)."""
    starts = range(0, numbers.shape[1], rows)
    return torch.stack([numbers[:, start : start + rows].mean(dim=1) for start in starts], dim=1)
