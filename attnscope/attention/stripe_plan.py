"""How a call is cut: stripes of rows, and cells of the map."""

from dataclasses import dataclass

import torch
from torch import Tensor

# Rows of a stripe, of all heads of a group, at most and at least, and numbers in it. Every
# operation has its price, so that fewer rows cost more than the cache that they spare.
_ROWS = {"cpu": (256, 64, 1 << 22)}
_ROWS_ELSEWHERE = (1024, 128, 1 << 23)
# A group of many heads takes few rows of each, but no fewer than these.
_FEWEST = 4
# Keys that stand together where the strongest are looked for: of fewer a maximum costs more, and
# among more is more to look at.
_GROUP = 64


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Sizes of one pass over a call.

    `rows`: of a stripe, for each of the heads of a group; `width`: most keys that a stripe sees;
    `group`: keys that stand together where the strongest are looked for; `cell_rows`, `cell_keys`:
    sizes of a cell of the map (all rows, all keys if there is none). A stripe is whole cells, or
    part of one.
    Shapes: rising, 0, 1, 2, … up to the farthest distance; falling, the same backwards; square
    (rows, rows), |row − column|; special (keys,) or None.
    """

    queries: int
    keys: int
    rows: int
    width: int
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
    breadth: float,
    window: int,
    top: int,
    grid: int | None,
    special: Tensor | None,
) -> Plan:
    """Return the sizes for a call with `heads` query heads to a key head.

    `breadth`: how many keys one row sees at most.
    """
    most, least, cells = _ROWS.get(device.type, _ROWS_ELSEWHERE)
    cell_rows = queries if grid is None else -(-queries // grid)
    cell_keys = keys if grid is None else -(-keys // grid)
    rows = min(most, max(least, int(cells // min(keys, breadth))))
    rows = _rows(max(_FEWEST, rows // heads), cell_rows)
    reach = queries + keys + abs(query_offset)
    rising = torch.arange(reach, device=device, dtype=dtype)
    return Plan(
        queries,
        keys,
        rows,
        int(min(keys, breadth + rows - 1)),
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
