"""The softmax of a row, compiled, where numba is installed: the extra `fast`."""

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


def compiled(function: Any) -> Any:
    """Return a function that numba compiles at its first call and keeps on disk if it can."""
    try:
        return numba.njit(function, nogil=True, cache=True, fastmath=_LOOSE)
    except (RuntimeError, NumbaError):  # no folder that can be written to
        return numba.njit(function, nogil=True, fastmath=_LOOSE)


def _maximum(bits: Any) -> Any:
    """Return the largest of some float32, none a NaN, given as int32: only of those is it quick.

    Below 0 the order of floating numbers is the reverse of that of their bits.
    """
    most = np.int32(-(2**31))
    for j in range(len(bits)):
        most = max(most, _order(bits[j]))
    return _as_float(_order(most))  # type: ignore[call-arg,unused-ignore]


@compiled
def _order(bits: Any) -> Any:
    """Return a whole number that has the order of a float32's; its own inverse."""
    return bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF))


def _power(number: Any) -> Any:
    """Return 2 to the power of a number that is not above 0."""
    power = min(max(number, _LEAST), _MOST)
    whole = np.floor(power)
    x = power - whole
    found = _ONE + x * (_A + x * (_B + x * (_C + x * (_D + x * (_E + x * _F)))))
    return found * _as_float(np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)))  # type: ignore[call-arg,unused-ignore]


_power = compiled(_power)


def _exponentials(numbers: Any, base: Any) -> tuple[Any, Any]:
    """Turn logits into 2 to the power of what they are above a base.

    Returns the sum of these powers, and of each times its exponent.
    """
    total = product = np.float32(0.0)
    for j in range(len(numbers)):
        log = numbers[j] - base
        power = _power(log)
        numbers[j] = power
        total += power
        product += power * log
    return total, product


def _softmax(numbers: Any, bits: Any, sink: Any, softmax: Any, sums: Any, hidden: Any) -> Any:
    """Turn the logits of a row into exponentials, and return what to multiply those with.

    `bits` are those of the same numbers. Written: softmax (3,), the largest logit of the keys, the
    base and the sum of exponentials; the first of sums, the entropy in bits.
    """
    most = _maximum(bits)
    base = max(most, sink) if most > hidden else sink
    if base == -np.inf:
        base = np.float32(0.0)
    own, product = _exponentials(numbers, base)
    total = own + _power(sink - base)
    softmax[0], softmax[1], softmax[2] = most, base, total
    if total == 0.0:
        return np.float32(0.0)
    share = _ONE / total
    sums[0] = share * (own * np.log2(total) - product)  # −Σ w·log₂ w of w = share · exponential
    return share


_maximum, _exponentials = compiled(_maximum), compiled(_exponentials)
softmax_row = compiled(_softmax)
