import math

import pytest

from attnscope.errors import OptionError
from attnscope.views.look import Look, read_steps
from attnscope.views.style import STEPS, number, tint


@pytest.mark.parametrize(
    ("value", "precision", "shown"),
    [
        (0.0, 4, "0.0000"),
        (-0.0, 4, "0.0000"),
        (0.03861355, 4, "0.0386"),
        (3.25e-9, 4, "3.25e-09"),
        (-0.00004, 4, "-4.00e-05"),
        (0.00005, 4, "0.0001"),
        (999999.5, 1, "999999.5"),
        (1234567.25, 4, "1.2346e+06"),
        (1e300, 4, "1.0000e+300"),
        (math.nan, 4, "NaN"),
        (math.inf, 4, "inf"),
        (-math.inf, 4, "-inf"),
        (2.0, 0, "2"),
    ],
)
def test_number(value, precision, shown):
    assert number(value, precision) == shown


def test_tint_is_a_scale_from_dark_to_light():
    assert tint(0.0) == ((68, 1, 84), False)
    assert tint(1.0) == ((253, 231, 37), True)
    assert tint(0.5) == ((33, 145, 140), False)
    assert tint(math.nan) is None
    assert tint(1.5) is None

    def luma(weight):
        (red, green, blue), _ = tint(weight)
        return 0.299 * red + 0.587 * green + 0.114 * blue

    lumas = [luma(i / 50) for i in range(51)]
    assert lumas == sorted(lumas)


def test_steps_are_read_and_checked():
    assert read_steps(None) == ()
    assert read_steps("weights, omegas") == ("weights", "omegas")
    assert read_steps("all") == tuple(STEPS)
    with pytest.raises(OptionError, match='"wheights" is not a step'):
        read_steps("wheights")
    with pytest.raises(OptionError, match="names no step"):
        read_steps(" , ")


def test_a_look_picks_rows_and_heads():
    assert Look().rows(3) == (0, 1, 2)
    assert Look(queries=(1,)).rows(3) == (1,)
    assert Look(head=2).heads(4) == (2,)
    assert Look(show=("weights",)).shows("omegas", default=True) is False
