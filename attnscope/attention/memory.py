"""How much memory a run may take, asked before anything is allocated."""

import re
from dataclasses import dataclass

from attnscope.attention.device import free_bytes
from attnscope.errors import OptionError, SizeError
from attnscope.text.display import visible

# Matrices are made without being asked for up to this size; above it the numbers are measured.
DENSE_BYTES = 4 * 10**9
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@dataclass(frozen=True, slots=True)
class Budget:
    """The memory that may be taken: `limit` bytes, and never more than the machine has free."""

    limit: int | None = None

    def allows(self, needed: int, otherwise: int = DENSE_BYTES) -> bool:
        """Return whether `needed` bytes fit; `otherwise` is the limit where none was given."""
        limit = otherwise if self.limit is None else self.limit
        return needed <= min(limit, free_bytes())

    def check(self, needed: int, what: str, way_out: str) -> None:
        """Raise SizeError naming both numbers if `needed` bytes for `what` do not fit."""
        free = free_bytes()
        if self.limit is not None and needed > self.limit:
            raise SizeError(
                f"{what} need {size(needed)} of memory, and --max-memory is {size(self.limit)}",
                way_out,
            )
        if needed > free:
            raise SizeError(
                f"{what} need {size(needed)} of memory, and {size(free)} are free", way_out
            )


def read_budget(text: str | None) -> Budget:
    """Return the budget that `--max-memory` means: "2GB", "500 MB", or bytes."""
    if text is None:
        return Budget()
    found = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,3})?)\s*([KMGT]?B?)\s*", text.upper())
    unit = None if found is None else found[2]
    if unit in ("K", "M", "G", "T"):
        unit += "B"
    limit = 0 if found is None or unit not in _UNITS else round(float(found[1]) * _UNITS[unit])
    if limit < 1:
        raise OptionError(
            f'--max-memory "{visible(text)}" is no size', "Give a number with MB or GB, e.g. 2GB"
        )
    return Budget(limit)


def size(count: int) -> str:
    """Return a number of bytes as people read it."""
    for unit in ("GB", "MB", "KB"):
        if count >= _UNITS[unit]:
            return f"{count / _UNITS[unit]:.1f} {unit}"
    return f"{count} bytes"
