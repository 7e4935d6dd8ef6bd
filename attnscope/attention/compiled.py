"""The work on one tile compiled into a single pass, where numba is installed: the extra `fast`.

torch reads a tile once per measure. Here each row of it is read once, while it is in the nearest
cache. What is gathered is the same: see `StripeMeasures`. Importing this module needs numba.
"""

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core.errors import NumbaError
from numba.extending import intrinsic

# Sums may be taken in another order, as vectors need it; a NaN stays one.
_LOOSE = {"reassoc", "contract", "nsz"}
# 2 to a power from 0 to 1 is 1 + x · (the first + x · (the second + …)), to 2e-9 before rounding.
_POWERS = (
    0.6931470632553101,
    0.2402293086051941,
    0.055485282093286514,
    0.009675451554358006,
    0.0012467845808714628,
    0.00021612914861179888,
)
_A, _B, _C, _D, _E, _F = (np.float32(number) for number in _POWERS)
_ONE = np.float32(1.0)
# The powers of 2 between which a float32 is neither 0 nor infinite: these two give 0 and infinity.
_LEAST, _MOST = np.float32(-127.0), np.float32(128.0)


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def _as_float(_context: Any, _number: Any) -> Any:
    """Return the float32 whose bits an int32 has."""

    def generated(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generated


def _compiled(function: Any) -> Any:
    """Return a function that numba compiles at its first call and keeps on disk if it can."""
    try:
        return numba.njit(function, nogil=True, cache=True, fastmath=_LOOSE)
    except (RuntimeError, NumbaError):  # no folder that can be written to
        return numba.njit(function, nogil=True, fastmath=_LOOSE)


def _row(logs: Any, weights: Any, near: Any, sums: Any) -> None:
    """Turn the logarithms of a row into weights, and return its entropy, distance and weight.

    `near`: the key of the first column less the query of the row.
    """
    entropy = distance = total = np.float32(0.0)
    for j in range(len(logs)):
        log = logs[j]
        power = min(max(log, _LEAST), _MOST)
        whole = np.floor(power)
        x = power - whole
        weight = _ONE + x * (_A + x * (_B + x * (_C + x * (_D + x * (_E + x * _F)))))
        weight *= _as_float(np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)))  # type: ignore[call-arg,unused-ignore]
        weights[j] = weight
        total += weight
        entropy -= weight * log
        distance += weight * abs(np.float32(np.int32(j) + near))
    sums[0] += entropy
    sums[1] += distance
    sums[2] += total


def _by_key(
    weights: Any, received: Any, highest: Any, highest_row: Any, row: Any, begins: bool
) -> None:
    """Add a row to the sums and maxima of the keys; `begins`: they have nothing yet."""
    if begins:
        received[:] = weights
        highest[:] = weights
        highest_row[:] = row
        return
    for j in range(len(weights)):
        received[j] += weights[j]
    for j in range(len(weights)):
        rises = weights[j] > highest[j]
        highest[j] = weights[j] if rises else highest[j]
        highest_row[j] = row if rises else highest_row[j]


def _by_distance(weights: Any, profile: Any) -> None:
    for j in range(len(weights)):
        profile[j] += weights[j]


def _by_group(bits: Any, maxima: Any, group: int) -> None:
    """Find the largest number of each group; what is not negative has the order of its bits."""
    for number in range(len(maxima)):
        some = bits[number * group : (number + 1) * group]
        most = np.int32(0)
        for j in range(len(some)):
            most = max(most, some[j])
        maxima[number] = most


def _first_largest(bits: Any, maxima: Any, group: int, least: Any) -> tuple[Any, int]:
    """Return the largest number of a row if it is above `least`, and the first column of it."""
    most, column = least, -1
    for number in range(len(maxima)):
        if maxima[number] > most:
            most, column = maxima[number], number * group
    if column >= 0:
        while bits[column] != most:
            column += 1
    return most, column


_row, _by_key, _by_distance, _by_group, _first_largest = map(
    _compiled, (_row, _by_key, _by_distance, _by_group, _first_largest)
)


def _tile(
    logs: Any,
    memory: Any,
    bits: Any,
    by_row: Any,
    largest: Any,
    received: Any,
    highest: Any,
    highest_row: Any,
    maxima: Any,
    profile: Any,
    tile: Any,
    sizes: Any,
) -> None:
    """Read one tile, row by row.

    Shapes: logs (heads · rows, keys), the weights' logarithms to base 2; memory, a WeightBuffer's,
    which the weights are written into; bits, the same as int32; by_row (3, heads · rows): entropy
    in bits, distance and weight; largest (heads · rows, 2): bits of the largest weight, and its
    key; received, highest, highest_row (heads, cells, keys of the stripe); maxima (heads · rows,
    groups), as bits; profile (heads, rows − 1 + keys of the stripe).
    """
    left, count, left_of_keys, left_of_profile, near, first_key, first_row = tile
    lead, pitch, rows, cell, group = sizes
    line = np.empty(3, np.float32)
    keys = slice(left_of_keys, left_of_keys + count)
    for flat in range(len(logs)):
        head, row = flat // rows, flat % rows
        start = lead + flat * pitch + left
        weights = memory[start : start + count]
        line[:] = 0.0
        _row(logs[flat, :count], weights, np.int32(near - row), line)
        for number in range(3):
            by_row[number, flat] += line[number]
        _by_key(
            weights,
            received[head, row // cell][keys],
            highest[head, row // cell][keys],
            highest_row[head, row // cell][keys],
            np.int32(first_row + row),
            row % cell == 0,
        )
        shift = left_of_profile + rows - 1 - row
        _by_distance(weights, profile[head, shift : shift + count])
        groups = maxima[flat, left // group : -(-(left + count) // group)]
        some = bits[start : start + len(groups) * group]
        _by_group(some, groups, group)
        most, column = _first_largest(some, groups, group, largest[flat, 0])
        if column >= 0:
            largest[flat, 0] = most
            largest[flat, 1] = first_key + column


def _join(
    received: Any,
    highest: Any,
    highest_row: Any,
    profile: Any,
    all_received: Any,
    all_highest: Any,
    query_of_highest: Any,
    all_profile: Any,
    map_sum: Any,
    map_max: Any,
    places: Any,
) -> None:
    """Add what a stripe gives to its keys to what others gave; see KeySums for the shapes."""
    first_head, first_key, end, start, left_of_profile, first_cell, cell_keys = places
    for head in range(len(received)):
        total = all_received[first_head + head, first_key:end]
        most = all_highest[first_head + head, first_key:end]
        query = query_of_highest[first_head + head, first_key:end]
        for cell in range(received.shape[1]):
            some = received[head, cell, first_key - start : end - start]
            for j in range(len(total)):
                total[j] += some[j]
            largest = highest[head, cell, first_key - start : end - start]
            row = highest_row[head, cell, first_key - start : end - start]
            for j in range(len(most)):
                # the first is named of those that are equal
                rises = (largest[j] > most[j]) | ((largest[j] == most[j]) & (row[j] < query[j]))
                most[j] = largest[j] if rises else most[j]
                query[j] = row[j] if rises else query[j]
            sums = map_sum[first_head + head, first_cell + cell]
            maxima = map_max[first_head + head, first_cell + cell]
            for number in range(received.shape[2] // cell_keys):
                some = received[head, cell, number * cell_keys : (number + 1) * cell_keys]
                sums[start // cell_keys + number] += some.sum()
                largest = highest[head, cell, number * cell_keys : (number + 1) * cell_keys]
                column = start // cell_keys + number
                maxima[column] = max(maxima[column], largest.max())
        by_distance = all_profile[first_head + head, left_of_profile:]
        for j in range(profile.shape[1]):
            by_distance[j] += profile[head, j]


def _insert(numbers: Any, names: Any, number: Any, name: Any) -> None:
    """Put a number in its place among some in falling order; the least of them leaves."""
    place = len(numbers) - 1
    while place > 0 and numbers[place - 1] < number:
        numbers[place], names[place] = numbers[place - 1], names[place - 1]
        place -= 1
    numbers[place], names[place] = number, name


_insert = _compiled(_insert)


def _strongest(bits: Any, maxima: Any, strongest: Any, keys: Any, begin: int, sizes: Any) -> None:
    """Join the strongest keys of a chunk to those of the chunks before, largest first.

    Only the groups with the largest maxima are looked into. Shapes: strongest, as bits, and keys
    (rows, top).
    """
    lead, pitch, group = sizes
    count = strongest.shape[1]
    best, best_group = np.empty(count, np.int32), np.empty(count, np.int64)
    for row in range(len(maxima)):
        mine, my_keys = strongest[row], keys[row]
        best[:] = mine[count - 1]  # a group with no more than this has nothing to give
        best_group[:] = -1
        for number in range(maxima.shape[1]):
            if maxima[row, number] > best[count - 1]:
                _insert(best, best_group, maxima[row, number], number)
        for place in range(count):
            if best_group[place] < 0 or best[place] <= mine[count - 1]:
                break
            left = best_group[place] * group
            some = bits[lead + row * pitch + left : lead + row * pitch + left + group]
            for j in range(len(some)):
                if some[j] > mine[count - 1]:
                    _insert(mine, my_keys, some[j], begin + left + j)


gather_tile = _compiled(_tile)
join_keys = _compiled(_join)
keep_strongest = _compiled(_strongest)
