"""The work on the rows of a stripe, compiled, where numba is installed: the extra `fast`.

torch reads all rows once per step and measure. Here a row is done while it is in the nearest cache.
What is gathered is the same: see `StripeMeasures`. Importing this module needs numba.
"""

from typing import Any

import numpy as np

from attnscope.attention.compiled_softmax import compiled, softmax_row


def _row(weights: Any, share: Any, near: Any, sums: Any) -> None:
    """Turn exponentials into weights, and write their distance and sum.

    `near`: the key of the first column less the query of the row.
    """
    distance = total = np.float32(0.0)
    for j in range(len(weights)):
        weight = weights[j] * share
        weights[j] = weight
        total += weight
        distance += weight * abs(np.float32(np.int32(j) + near))
    sums[1] = distance
    sums[2] = total


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


def _first_largest(bits: Any, maxima: Any, group: int) -> tuple[Any, int]:
    """Return the largest number of a row, and the first column of it, or −1 if it is 0."""
    most, column = np.int32(0), -1
    for number in range(len(maxima)):
        if maxima[number] > most:
            most, column = maxima[number], number * group
    if column >= 0:
        while bits[column] != most:
            column += 1
    return most, column


_row, _by_key, _by_distance, _by_group, _first_largest = map(
    compiled, (_row, _by_key, _by_distance, _by_group, _first_largest)
)


def _rows(
    memory: Any,
    bits: Any,
    sinks: Any,
    softmax: Any,
    by_row: Any,
    largest: Any,
    received: Any,
    highest: Any,
    highest_row: Any,
    maxima: Any,
    profile: Any,
    places: Any,
    sizes: Any,
) -> None:
    """Read the logits of a stripe, row by row.

    Shapes: memory, a WeightBuffer's, which holds the logits to base 2, hidden ones below `hidden`,
    and then the weights; bits, the same as int32; sinks (heads · rows,); softmax (3, heads · rows):
    largest logit of the keys, base and sum of exponentials; by_row (3, heads · rows): entropy in
    bits, distance and weight; largest (heads · rows, 2): bits of the largest weight, and its key;
    received, highest, highest_row (heads, cells, keys of the stripe); maxima (heads · rows,
    groups), as bits; profile (heads, rows − 1 + keys of the stripe).
    """
    count, left_of_keys, near, first_key, first_row, hidden = places
    lead, pitch, rows, cell, group = sizes
    keys = slice(left_of_keys, left_of_keys + count)
    for flat in range(len(sinks)):
        head, row = flat // rows, flat % rows
        start = lead + flat * pitch
        weights = memory[start : start + count]
        sums, row_bits = by_row[:, flat], bits[start : start + count]
        share = softmax_row(weights, row_bits, sinks[flat], softmax[:, flat], sums, hidden)
        _row(weights, share, np.int32(near - row), sums)
        _by_key(
            weights,
            received[head, row // cell][keys],
            highest[head, row // cell][keys],
            highest_row[head, row // cell][keys],
            np.int32(first_row + row),
            row % cell == 0,
        )
        shift = rows - 1 - row
        _by_distance(weights, profile[head, shift : shift + count])
        some = bits[start : start + maxima.shape[1] * group]
        _by_group(some, maxima[flat], group)
        largest[flat, 0], column = _first_largest(some, maxima[flat], group)
        largest[flat, 1] = first_key + column if column >= 0 else -1


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


_insert = compiled(_insert)


def _strongest(bits: Any, maxima: Any, strongest: Any, keys: Any, begin: int, sizes: Any) -> None:
    """Find the strongest keys of each row, largest first.

    Only the groups with the largest maxima are looked into. Shapes: strongest, as bits, and keys
    (rows, top), 0 and −1.
    """
    lead, pitch, group = sizes
    count = strongest.shape[1]
    best, best_group = np.empty(count, np.int32), np.empty(count, np.int64)
    for row in range(len(maxima)):
        mine, my_keys = strongest[row], keys[row]
        best[:] = 0  # a group with no more than this has nothing to give
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


gather_rows = compiled(_rows)
join_keys = compiled(_join)
keep_strongest = compiled(_strongest)
