"""WeightBuffer: the weights of a stripe, laid out so that a diagonal is a column of another view.

Rows are followed by zeros. Read with one number more from row to row, place c of row r is key
c + r: the distance between query and key is the same down each column of that view, and sums by
distance are plain sums over rows, without a copy.
"""

import torch
from torch import Tensor

# Numbers in the widest vector of a processor; a divisor of every group.
VECTOR = 16
# Numbers in a page: rows that stand a whole number of them apart push each other out of the cache.
_PAGE = 1024


class WeightBuffer:
    """Room for the weights of some heads and rows by some keys.

    Shapes: weights (heads, rows, keys); skewed (heads, rows, rows − 1 + keys), whose column c is
    the key c − (rows − 1) + row; flat views (heads · rows, keys). What lies outside of the keys is
    0 in every view. `group`: keys that stand together when the strongest are looked for; all rows
    begin at a multiple of it.
    """

    def __init__(self, group: int, dtype: torch.dtype, device: torch.device) -> None:
        self.group = group
        self.memory = torch.zeros(0, dtype=dtype, device=device)
        self._shape = (0, 0, 0)
        self.lead = self.pitch = 0
        self.weights = self.memory
        self.skewed = self.memory
        self.grouped = self.memory
        self.first_groups = self.memory

    def lay_out(self, heads: int, rows: int, keys: int, most: int) -> None:
        """Make room, of up to `most` keys; weights of before are lost, all keys are to be written.

        Layouts of one `most` are cheap to change between.
        """
        lead, pitch = _lead(rows, self.group), _pitch(rows, most, self.group)
        if (heads, rows, keys) == self._shape and pitch == self.pitch:
            return
        if (heads, rows) != self._shape[:2] or pitch != self.pitch:
            size = lead + heads * rows * pitch
            if self.memory.numel() < size:
                self.memory = self.memory.new_zeros(size)
            self.memory[:lead] = 0.0
            self._begin((heads, rows, keys), lead, pitch)
            self.flat(most, pitch).fill_(0.0)  # where the first row of the next head begins
            # the same memory as groups of keys, and where each row has its first
            self.grouped = self.memory[:size].view(-1, self.group)
            places = torch.arange(lead, size, pitch) // self.group
            self.first_groups = places.to(self.memory.device)
        self._begin((heads, rows, keys), lead, pitch)
        self.flat(keys, keys + max(rows, self.group)).fill_(0.0)
        self.weights = self.flat(0, keys).view(heads, rows, keys)
        self.skewed = self.memory.as_strided(
            (heads, rows, rows - 1 + keys), (rows * pitch, pitch + 1, 1), lead - (rows - 1)
        )

    def _begin(self, shape: tuple[int, int, int], lead: int, pitch: int) -> None:
        self._shape, self.lead, self.pitch = shape, lead, pitch

    def flat(self, start: int, end: int) -> Tensor:
        """Return the weights of the keys from `start` to before `end`: (heads · rows, keys).

        Behind the last key there are zeros, as many as rows and as a group has.
        """
        heads, rows, _ = self._shape
        return self.memory.as_strided(
            (heads * rows, end - start), (self.pitch, 1), self.lead + start
        )

    def groups(self, start: int, end: int) -> Tensor:
        """Return whole groups of keys from a first on: (heads · rows, groups, group).

        The last may hold zeros behind the last key.
        """
        heads, rows, _ = self._shape
        count = -(-(end - start) // self.group)
        return self.memory.as_strided(
            (heads * rows, count, self.group),
            (self.pitch, self.group, 1),
            self.lead + start,
        )


def whole_vectors(keys: int) -> int:
    """Return the least multiple of VECTOR that holds some keys."""
    return -(-keys // VECTOR) * VECTOR


def _lead(rows: int, group: int) -> int:
    """Return how many zeros stand before the first row, for the skewed view to begin in."""
    return -(-rows // group) * group


def _pitch(rows: int, most: int, group: int) -> int:
    """Return how many numbers there are from row to row."""
    pitch = -(-(most + max(rows, group)) // group) * group
    return pitch if pitch % _PAGE else pitch + group


def bytes_of(heads: int, rows: int, most: int, group: int, itemsize: int) -> int:
    """Return the size of a buffer."""
    return (_lead(rows, group) + heads * rows * _pitch(rows, most, group)) * itemsize
