"""WeightBuffer: the weights of a stripe, laid out so that a diagonal is a column of another view.

Rows are followed by zeros. Read with one number more from row to row, place c of row r is key
c + r: the distance between query and key is the same down each column of that view, and sums by
distance are plain sums over rows, without a copy.
"""

import torch
from torch import Tensor

# Keys that stand together when the strongest are looked for; all rows begin at a multiple of it.
GROUP = 32
# Numbers in the widest vector of a processor; a divisor of GROUP.
VECTOR = 16


class WeightBuffer:
    """Room for the weights of some heads and rows by some keys.

    Shapes: weights (heads, rows, keys); skewed (heads, rows, rows − 1 + keys), whose column c is
    the key c − (rows − 1) + row. What lies outside of the keys is 0 in every view.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self._memory = torch.zeros(0, dtype=dtype, device=device)
        self._shape = (0, 0, 0)
        self.weights = self._memory
        self.skewed = self._memory
        self.grouped = self._memory
        self.first_groups = self._memory

    def lay_out(self, heads: int, rows: int, keys: int) -> None:
        """Make room; weights of before are lost, and all keys are to be written."""
        if (heads, rows, keys) == self._shape:
            return
        self._shape = (heads, rows, keys)
        pitch, block = _pitches(rows, keys)
        if self._memory.numel() < heads * block:
            self._memory = self._memory.new_zeros(heads * block)
        memory = self._memory[: heads * block]
        lead = block - rows * pitch
        whole = memory.view(heads, block)[:, lead:].view(heads, rows, pitch)
        whole[..., keys:] = 0.0
        memory.view(heads, block)[:, :lead] = 0.0
        self.weights = whole[..., :keys]
        self.skewed = memory.as_strided(
            (heads, rows, rows - 1 + keys), (block, pitch + 1, 1), lead - (rows - 1)
        )
        # the same memory as groups of keys, and where each row has its first
        self.grouped = memory.view(-1, GROUP)
        head, row = torch.arange(heads)[:, None], torch.arange(rows)[None]
        places = (head * block + lead + row * pitch) // GROUP
        self.first_groups = places.flatten().to(memory.device)

    def whole_vectors(self, keys: slice) -> Tensor:
        """Return the weights of some keys, the last of them with zeros up to a multiple of VECTOR.

        What is written there has to be 0.
        """
        heads, rows, _ = self._shape
        pitch, block = _pitches(rows, self._shape[2])
        count = -(-(keys.stop - keys.start) // VECTOR) * VECTOR
        return self._memory.as_strided(
            (heads, rows, count), (block, pitch, 1), block - rows * pitch + keys.start
        )

    def groups(self, keys: slice) -> Tensor:
        """Return whole groups of keys from a first on: (heads, rows, groups, GROUP).

        The last may hold zeros behind the last key.
        """
        heads, rows, _ = self._shape
        pitch, block = _pitches(rows, self._shape[2])
        count = -(-(keys.stop - keys.start) // GROUP)
        return self._memory.as_strided(
            (heads, rows, count, GROUP),
            (block, pitch, GROUP, 1),
            block - rows * pitch + keys.start,
        )


def _pitches(rows: int, keys: int) -> tuple[int, int]:
    """Return the numbers from row to row, and from head to head."""
    pitch = -(-(keys + rows) // GROUP) * GROUP
    lead = -(-rows // GROUP) * GROUP
    return pitch, lead + rows * pitch


def bytes_of(heads: int, rows: int, keys: int, itemsize: int) -> int:
    """Return the size of a buffer."""
    return heads * _pitches(rows, keys)[1] * itemsize
