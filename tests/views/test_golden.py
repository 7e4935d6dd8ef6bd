"""Every view of a hand-written Run, compared with golden files."""

import io
import re

import pytest
from rich.console import Console

from attnscope.attention.engine import MaskMethod
from attnscope.views import csv_text, plain, rich_tables
from attnscope.views.json_text import render_run, render_tokens
from attnscope.views.look import Look
from attnscope.views.parts import Grid
from attnscope.views.run_parts import parts_of_run
from attnscope.views.tokens_parts import document_of_tokens
from tests.conftest import CONTROL
from tests.views import handmade

LOOKS = {
    "default": Look(),
    "narrow": Look(width=30),
    "walk": Look(queries=(3,)),
    "all": Look(show=("embeddings", "queries", "mask", "scaled", "summary"), precision=2),
}


def table(parts, look, color=None):
    stream = io.StringIO()
    renderable, width = rich_tables.render(parts, look)
    console = Console(
        file=stream, width=width, color_system=color, force_terminal=color is not None,
        highlight=False, markup=False, legacy_windows=False,
    )  # fmt: skip
    console.print(renderable)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


@pytest.mark.parametrize("name", LOOKS)
@pytest.mark.parametrize("method", list(MaskMethod))
def test_table(golden, name, method):
    run = handmade.run(method)
    text = table(parts_of_run(run, LOOKS[name]), LOOKS[name])
    assert not CONTROL.search(text)
    golden(f"table-{name}-{method}.txt", text)


def test_coloured_weights(golden):
    look = Look(show=("weights",))
    golden("table-colour.txt", table(parts_of_run(handmade.run(), look), look, "truecolor"))


def test_plain(golden):
    text = plain.render(parts_of_run(handmade.run(), Look()), Look())
    assert not CONTROL.search(text)
    golden("plain.txt", text)


def test_csv(golden):
    look = Look(show=("scaled", "weights", "context"))
    text = csv_text.render(parts_of_run(handmade.run(heads=2), look))
    assert not CONTROL.search(text)
    golden("run.csv", text)


@pytest.mark.parametrize("method", list(MaskMethod))
def test_json(golden, method):
    text = render_run(handmade.run(method, heads=2), Look())
    assert not CONTROL.search(text)
    golden(f"run-{method}.json", text)


def test_tokens(golden):
    tokens = handmade.tokens()
    golden("tokens.json", render_tokens(tokens))
    golden("tokens.txt", table(document_of_tokens(tokens), Look()))
    golden("tokens.csv", csv_text.render(document_of_tokens(tokens)))


def numbers_in(text):
    """Every number with a decimal point in a table, in order."""
    return re.findall(r"(?<![\w.])-?\d+\.\d+(?:e[+-]\d+)?(?![\w.])", text)


@pytest.mark.parametrize("width", [1, 20, 40, 80, 200])
@pytest.mark.parametrize(
    ("count", "precision"), [(1, 4), (8, 4), (30, 4), (100, 4), (1, 17), (8, 17)]
)
def test_no_number_is_cut_or_lost(width, count, precision):
    pieces = tuple(f"token{i}" if i % 3 else "人" * (i % 7 + 1) for i in range(count))
    look = Look(show=("omegas", "weights", "context"), width=width, precision=precision)
    run = handmade.run(pieces=pieces)
    parts = [part for part in parts_of_run(run, look) if isinstance(part, Grid)]
    shown = sorted(numbers_in(table(parts, look)))
    expected = sorted(numbers_in(plain.render(parts, look)))
    assert shown == expected
    assert len(shown) >= 2 * count


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("count", [4, 30])
def test_tables_keep_to_the_width(width, count):
    from rich.cells import cell_len

    look = Look(show=("tokens", "omegas", "weights"), width=width)
    pieces = tuple(f"word{i}" for i in range(count))
    text = table(parts_of_run(handmade.run(pieces=pieces), look), look)
    assert max(cell_len(line) for line in text.splitlines()) <= width
