"""The options of `run` for attention of any length, declared once, and what they ask for."""

import re
from dataclasses import dataclass
from typing import Annotated

import typer

from attnscope.errors import OptionError
from attnscope.text.display import visible

TOP, NEAR, GRID = 10, 8, 256


def _option(*names: str, help: str, **more: object) -> object:
    return typer.Option(*names, help=help, show_default=False, **more)  # type: ignore[arg-type]


Measures = Annotated[
    bool,
    _option(
        "--measures",
        help="Exact measures of every row, key and head without the matrices, as for long texts.",
    ),
]
Top = Annotated[
    int | None,
    _option("--top", metavar="K", help="Measure the K strongest keys of each row [10]."),
]
Near = Annotated[
    int | None,
    _option(
        "--near",
        metavar="N",
        help="Measure the weight on keys less than N places away [8].",
    ),
]
Grid = Annotated[
    int | None,
    _option(
        "--grid",
        metavar="N",
        help="Measure a map of at most N × N cells: the mean and the largest weight of each [256 "
        "for html, svg, png].",
    ),
]
Rows = Annotated[
    str | None,
    _option("--rows", metavar="A:B", help="Only the queries from A up to B, not including B."),
]
Keys = Annotated[
    str | None,
    _option("--keys", metavar="C:D", help="Only the keys from C up to D; whole rows count."),
]
MaxMemory = Annotated[
    str | None,
    _option(
        "--max-memory",
        metavar="SIZE",
        help="Take at most this much memory for matrices and measures, e.g. 2GB [4GB].",
    ),
]
KeepQkv = Annotated[
    bool, _option("--keep-qkv", help="With --save: keep query, key and value beside the measures.")
]


@dataclass(frozen=True, slots=True)
class LongAsked:
    """What is asked of attention of any length. None: not given."""

    measures: bool = False
    top: int | None = None
    near: int | None = None
    grid: int | None = None
    rows: str | None = None
    keys: str | None = None
    max_memory: str | None = None
    keep_qkv: bool = False

    def check(self, *, saved: bool) -> None:
        """Raise OptionError for a value that means nothing. `saved`: whether there is --save."""
        if self.keep_qkv and not saved:
            raise OptionError("--keep-qkv without --save", "Name the file with --save")
        for name, value, least in (
            ("--top", self.top, 0), ("--near", self.near, 1), ("--grid", self.grid, 1),
        ):  # fmt: skip
            if value is not None and value < least:
                raise OptionError(f"{name} {value} is too small", f"Give {least} or more")
        for name, text in (("--rows", self.rows), ("--keys", self.keys)):
            if text is not None:
                read_range(name, text)
        if self.is_window and self.measured:
            raise OptionError(
                "--rows and --keys show a window number by number, and measures are asked for too",
                "Give one of them",
            )

    @property
    def measured(self) -> bool:
        """Whether measures were asked for, however short the text."""
        return self.measures or not all(value is None for value in (self.top, self.near, self.grid))

    @property
    def is_window(self) -> bool:
        """Whether some rows or keys were asked for."""
        return self.rows is not None or self.keys is not None

    def window(self, queries: int, keys: int) -> tuple[slice, slice]:
        """Return the rows and keys that were asked for. Raises: OptionError if there are none."""
        return (
            within("--rows", self.rows, queries, "queries"),
            within("--keys", self.keys, keys, "keys"),
        )


def read_range(name: str, text: str) -> tuple[int, int | None]:
    """Return (first, end or None) of "700:760", "700:", ":512" or "5"."""
    found = re.fullmatch(r"\s*([0-9]{0,15})\s*(?:(:)\s*([0-9]{0,15}))?\s*", text)
    if found is None or not (found[1] or found[2]):
        raise OptionError(f'{name} "{visible(text)}" is no range', "Give A:B, A:, :B or one number")
    first = int(found[1] or 0)
    if found[2] is None:
        return first, first + 1
    end = None if not found[3] else int(found[3])
    if end is not None and end <= first:
        raise OptionError(f'{name} "{visible(text)}" is empty', "The end must be above the start")
    return first, end


def within(name: str, text: str | None, total: int, what: str) -> slice:
    """Return a range as a slice of `total` places. Raises: OptionError if it leaves them."""
    if text is None:
        return slice(0, total)
    first, end = read_range(name, text)
    if first >= total or (end is not None and end > total):
        raise OptionError(
            f'{name} "{visible(text)}" is out of range: there are {total} {what}',
            f"Positions count from 0: give a range up to {total}",
        )
    return slice(first, total if end is None else end)
