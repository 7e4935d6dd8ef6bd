"""Heat maps: in the terminal, as SVG, as PNG."""

import io
import re
import struct
import xml.etree.ElementTree as ET

import pytest
import torch
from rich.console import Console

import attnscope
from attnscope.errors import SizeError
from attnscope.views import plain, rich_tables
from attnscope.views.heatmap import parts_of_heatmap
from attnscope.views.look import Look
from attnscope.views.png_heatmap import render_png
from attnscope.views.style import tint
from attnscope.views.svg_heatmap import render_svg
from tests.conftest import CONTROL, LESSON_SENTENCE
from tests.views import handmade

SVG = "{http://www.w3.org/2000/svg}"


def drawn(run, look, color="truecolor"):
    stream = io.StringIO()
    renderable, width = rich_tables.render(parts_of_heatmap(run, look), look)
    console = Console(
        file=stream, width=width, color_system=color, force_terminal=color is not None,
        highlight=False, markup=False, legacy_windows=False,
    )  # fmt: skip
    console.print(renderable)
    return stream.getvalue()


@pytest.mark.parametrize("zoom", ["large", "blocks"])
def test_terminal_heat_map(golden, zoom):
    pieces = handmade.PIECES if zoom == "large" else tuple(f"w{i}" for i in range(45))
    look = Look(width=60)
    text = drawn(handmade.run(pieces=pieces, heads=2), look)
    assert not CONTROL.search(text.replace("\x1b", ""))
    golden(f"heatmap-{zoom}.txt", text)


def test_without_colour_there_are_digits(golden):
    text = drawn(handmade.run(), Look(width=60, colour=False), None)
    assert "\x1b" not in text
    assert "▀" not in text
    golden("heatmap-digits.txt", text)


def test_half_blocks_hold_two_cells():
    run = attnscope.run_sentence(" ".join(f"w{i}" for i in range(44)), causal=True)
    (line,) = [text for text in drawn(run, Look(width=60)).splitlines() if text.startswith("2 w2")]
    (upper, _), (lower, _) = (tint(float(run.layers[0].weights[0, row, 0])) for row in (2, 3))
    assert upper != lower
    colours = ";".join(str(part) for part in (38, 2, *upper, 48, 2, *lower))
    assert f"\x1b[{colours}m▀" in line


def test_masked_cells_differ_from_zeros():
    text = drawn(handmade.run(), Look(width=60))
    zero = "48;2;68;1;84m"
    assert zero in text
    assert "·" in text
    assert f"{zero}·" not in text


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("count", [1, 8, 30, 100])
def test_heat_maps_fit_the_width_and_lose_no_cell(width, count):
    from rich.cells import cell_len

    pieces = tuple("人生" * 9 if i % 5 == 0 else "token" for i in range(count))
    look = Look(width=width, colour=False)
    text = drawn(handmade.run(pieces=pieces, heads=3), look, None)
    assert max(cell_len(line) for line in text.splitlines()) <= max(width, 20)
    alone = drawn(handmade.run(pieces=pieces), look, None)
    rows = re.findall(r"^\d+ .*[^\d\s?·] +([\d?· ]+)$", alone, re.MULTILINE)
    cells = "".join(rows).replace(" ", "")
    assert len(cells) == count * count
    assert cells.count("·") == count * (count - 1) // 2


def test_heatmap_on_the_command_line(cli):
    done = cli("run", LESSON_SENTENCE, "--heatmap", "--causal")
    assert done.code == 0
    assert "hidden" in done.out
    assert "agrees with torch" in done.out
    assert "\x1b[" in cli("run", LESSON_SENTENCE, "--heatmap", "--color", "always").out
    for options in (("--json",), ("--query", "1"), ("--show", "weights")):
        assert cli("run", LESSON_SENTENCE, "--heatmap", *options).code == 2
    weights = cli("run", "a b", "--heatmap", "--format", "plain").out
    assert weights.splitlines()[1].startswith("attention weights α, query 0 a: 0 a 0.")


def test_plain_heat_map_has_every_number():
    run = handmade.run(heads=2)
    text = plain.render(parts_of_heatmap(run, Look()), Look())
    assert text.count("attention weights") == 8


def cells_of(svg):
    """Return fill and title of each cell, in order."""
    root = ET.fromstring(svg)
    return [
        (rect.get("fill"), rect.find(f"{SVG}title").text)
        for rect in root.iter(f"{SVG}rect") if rect.find(f"{SVG}title") is not None
    ]  # fmt: skip


def test_svg_cells_carry_the_numbers():
    run = attnscope.run_sentence(LESSON_SENTENCE, causal=True, heads=2)
    cells = cells_of(render_svg(run, Look()))
    weights, seen = run.layers[0].weights.flatten(), run.layers[0].visible.flatten()
    assert len(cells) == 72
    for (fill, note), weight, visible in zip(cells, weights.tolist(), seen.tolist(), strict=True):
        if not visible:
            assert (fill, note) == ("url(#hidden)", "hidden")
        else:
            assert float(note) == pytest.approx(weight, rel=1e-5)
            assert fill == "#{:02x}{:02x}{:02x}".format(*tint(weight)[0])


def test_svg_of_a_handmade_run(golden):
    svg = render_svg(handmade.run(heads=2), Look())
    golden("heatmap.svg", svg)
    assert not CONTROL.search(svg)
    fills = [fill for fill, _ in cells_of(svg)]
    assert fills[0] == "#ff0050"  # NaN


@pytest.mark.parametrize(
    "piece",
    ["</text><script>", "\"&<>'", "]]>", "\x00", "\ufffe\uffff", "\u202eabc", "人" * 60, "&#0;"],
)
def test_svg_is_valid_xml_for_every_token(piece):
    run = handmade.run(pieces=(piece, "b"))
    svg = render_svg(run, Look())
    root = ET.fromstring(svg)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        "svg", "title", "style", "defs", "pattern", "rect", "path", "g", "text"
    }  # fmt: skip
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")


def test_svg_selects_heads_and_rows():
    run = attnscope.run_sentence("a b c", heads=2)
    assert len(cells_of(render_svg(run, Look(head=1)))) == 9
    assert len(cells_of(render_svg(run, Look(head=1, queries=(2,))))) == 3


def test_too_many_cells_are_refused():
    run = handmade.run(pieces=tuple(f"w{i}" for i in range(640)))
    with pytest.raises(SizeError, match="409,600 cells"):
        render_svg(run, Look())


def size_of(png):
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", png[16:24])


def test_png_is_the_svg_at_twice_the_size():
    run = attnscope.run_sentence("a b c", causal=True)
    svg = ET.fromstring(render_svg(run, Look()))
    assert size_of(render_png(run, Look())) == (
        2 * int(svg.get("width")),
        2 * int(svg.get("height")),
    )


def test_pictures_on_the_command_line(cli, tmp_path):
    for ending in ("svg", "png"):
        assert cli("run", "a b", "--output", tmp_path / f"a.{ending}").code == 0
    size_of((tmp_path / "a.png").read_bytes())
    assert (tmp_path / "a.svg").read_text() == cli("run", "a b", "--format", "svg").out
    done = cli("run", "a b", "--format", "png")
    assert done.code == 2
    assert "--output" in done.err
    assert cli("compare", "--output", tmp_path / "b.svg").code == 2


def test_the_extra_is_named_when_it_is_missing(cli, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    done = cli("run", "a b", "--output", tmp_path / "a.png")
    assert done.code == 2
    assert 'pip install "attnscope[png]"' in done.err


def test_weights_of_one_are_not_mistaken_for_nan():
    run = attnscope.run_sentence("a", causal=True)
    assert torch.equal(run.layers[0].weights, torch.ones(1, 1, 1))
    assert cells_of(render_svg(run, Look())) == [("#fde725", "1")]


def test_options_that_would_do_nothing_are_refused(cli):
    for options in (
        ("--budget", "5"), ("--json", "--budget", "1"), ("--format", "svg", "--show", "tokens"),
        ("--format", "html", "--show", "tokens"), ("--format", "svg", "--precision", "2"),
    ):  # fmt: skip
        done = cli("run", "a b", *options)
        assert done.code == 2, options
        assert done.err.count("\n") == 1
