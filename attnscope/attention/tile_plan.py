"""How a call is cut: stripes of rows, chunks and tiles of keys, cells of the map."""

from dataclasses import dataclass

import torch
from torch import Tensor

# Rows and keys of a tile. On a CPU a smaller one is not quicker though it would fit the second
# cache, because every operation has its price; a GPU wants more at once.
_TILE = {"cpu": (256, 2048)}
_TILE_ELSEWHERE = (1024, 8192)
# Keys that the strongest are looked for in, at once: more would leave the cache.
_CHUNK = 8192
# Keys that stand together there: of fewer a maximum costs more, and among more is more to look at.
_GROUP = 64
# Least and most rows of one job, which are one call of the fused kernel: it is slower with fewer,
# and workers that have a few long jobs wait for each other at the end.
_BLOCK = (1024, 4096)
_JOBS = 16
# A group of many heads takes few rows of each, but no fewer than these.
_FEWEST = 16


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Sizes of one pass over a call.

    `rows`: of a stripe, for each of the heads of a group; `tile`: keys of a tile; `chunk`: keys
    between two looks for the strongest, in groups of `group`; `cell_rows`, `cell_keys`: sizes of a
    cell of the map (all rows, all keys if there is none). A stripe is whole cells, or part of one.
    Shapes: rising, 0, 1, 2, … up to the farthest distance; falling, the same backwards; square
    (rows, rows), |row − column|; special (keys,) or None.
    """

    queries: int
    keys: int
    rows: int
    tile: int
    chunk: int
    group: int
    cell_rows: int
    cell_keys: int
    query_offset: int
    window: int
    top: int
    falling: Tensor
    rising: Tensor
    square: Tensor
    special: Tensor | None

    @property
    def nearest(self) -> int:
        """The smallest key − query."""
        return -(self.queries - 1 + self.query_offset)

    def stripes(self) -> list[slice]:
        """Return the stripes, in order."""
        edges = range(0, self.queries, max(self.cell_rows, self.rows))
        stripes = []
        for edge in edges:
            end = min(edge + max(self.cell_rows, self.rows), self.queries)
            stripes += [
                slice(row, min(row + self.rows, end)) for row in range(edge, end, self.rows)
            ]
        return stripes

    def blocks(self, groups: int) -> list[list[slice]]:
        """Return the stripes that are one job each for every group of heads, a few rows each."""
        most = min(max(_BLOCK[0], self.queries * groups // _JOBS), _BLOCK[1])
        blocks: list[list[slice]] = []
        for stripe in self.stripes():
            if blocks and stripe.stop - blocks[-1][0].start <= most:
                blocks[-1].append(stripe)
            else:
                blocks.append([stripe])
        return blocks

    def cells_of(self, rows: slice) -> slice:
        """Return the rows of the map that some rows belong to."""
        return slice(rows.start // self.cell_rows, -(-rows.stop // self.cell_rows))


def plan_for(
    queries: int,
    keys: int,
    heads: int,
    query_offset: int,
    device: torch.device,
    dtype: torch.dtype,
    *,
    window: int,
    top: int,
    grid: int | None,
    special: Tensor | None,
) -> Plan:
    """Return the sizes for a call with `heads` query heads to a key head."""
    most_rows, tile = _TILE.get(device.type, _TILE_ELSEWHERE)
    tile = min(tile, -(-keys // _GROUP) * _GROUP)
    cell_rows = queries if grid is None else -(-queries // grid)
    cell_keys = keys if grid is None else -(-keys // grid)
    rows = _rows(max(_FEWEST, most_rows // heads), cell_rows)
    reach = queries + keys + abs(query_offset)
    rising = torch.arange(reach, device=device, dtype=dtype)
    return Plan(
        queries,
        keys,
        rows,
        tile,
        min(max(tile, _CHUNK), -(-keys // tile) * tile) if top else tile,
        _GROUP,
        cell_rows,
        cell_keys,
        query_offset,
        window,
        top,
        rising.flip(0),
        rising,
        (rising[:rows, None] - rising[:rows]).abs(),
        None if special is None else special.to(device, dtype),
    )


def _rows(most: int, cell: int) -> int:
    """Return the rows of a stripe: whole cells, or a cell cut into equal parts."""
    if cell <= most:
        return most // cell * cell
    return -(-cell // -(-cell // most))
