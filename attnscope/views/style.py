"""One number format, one colour scale, one name per step."""

import math

HIDDEN = "·"

# Every step that can be shown, in order: what `--show` takes, and its title.
STEPS: dict[str, str] = {
    "tokens": "tokens and ids",
    "shapes": "shapes",
    "embeddings": "embeddings x",
    "projections": "projection matrices W",
    "queries": "queries q = x·W_query",
    "keys": "keys k = x·W_key",
    "values": "values v = x·W_value",
    "omegas": "omegas ω = q·kᵀ",
    "scaled": "scaled scores",
    "mask": "mask, 1 = may see",
    "unmasked": "weights before the mask: softmax over all keys",
    "masked": "masked weights: times the mask",
    "row-sums": "row sums of the masked weights",
    "weights": "attention weights α",
    "norms": "lengths of the weighted values ‖α·v‖",
    "output-norms": "lengths of what they add to the output ‖α·v·W_O‖",
    "context": "context vectors z = α·v",
    "concatenation": "context vectors of all heads, concatenated",
    "summary": "strongest keys and entropy",
}

NORMS = ("norms", "output-norms")  # what --norms adds

# Viridis at five points (red, green, blue): even to the eye, also to a colour-blind one, and in
# grey. Source: Smith and van der Walt, matplotlib, 2015 (CC0).
_SCALE = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))


def number(value: float, precision: int) -> str:
    """Return a number with `precision` decimals, never hiding what it is.

    A number other than 0 that would round to 0 and one of 1,000,000 or more get an exponent.
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    size = abs(value)
    if size >= 1e6:
        return f"{value:.{precision}e}"
    if 0 < size < 0.5 * 10**-precision:
        return f"{value:.{max(1, precision - 2)}e}"
    return f"{value + 0.0:.{precision}f}"  # + 0.0 writes −0 as 0


def gap(value: float) -> str:
    """Return a difference as a person compares it: a few figures and an exponent."""
    return "NaN" if math.isnan(value) else f"{value:.2e}" if value else "0"


def tint(weight: float) -> tuple[tuple[int, int, int], bool] | None:
    """Return the background colour of a weight from 0 to 1, and whether text on it is dark."""
    if not 0.0 <= weight <= 1.0:
        return None
    place = weight * (len(_SCALE) - 1)
    low = min(int(place), len(_SCALE) - 2)
    part = place - low
    red, green, blue = (
        round(a + (b - a) * part) for a, b in zip(_SCALE[low], _SCALE[low + 1], strict=True)
    )
    dark_text = 0.299 * red + 0.587 * green + 0.114 * blue > 120  # ITU-R BT.601 luma
    return (red, green, blue), dark_text
