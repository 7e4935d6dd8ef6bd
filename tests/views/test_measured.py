"""Every view of a measured run: tables, JSON, rows that stream, the map."""

import csv
import dataclasses
import json

import jsonschema
import pytest
import torch
from rich.cells import cell_len

from attnscope.attention.mask_kinds import window
from attnscope.attention.masks import CAUSAL, EVERYTHING, from_tensor
from attnscope.attention.result import attend
from attnscope.errors import OptionError
from attnscope.run import Axis, axis_of_positions
from attnscope.views import plain
from attnscope.views.html_page import render_html
from attnscope.views.look import Look
from attnscope.views.measured_json import measured_document, render_measured
from attnscope.views.measured_map import look_at_map, map_run
from attnscope.views.measured_parts import bar, parts_of_measured
from attnscope.views.measured_rows import csv_of_measured, header_line, rows_as_ndjson
from attnscope.views.schema import SCHEMA
from attnscope.views.svg_heatmap import render_svg
from tests.conftest import CONTROL
from tests.views.browser import browser as browser
from tests.views.measured import by_hand, call, even, observed, of_call, site
from tests.views.test_golden import table

VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
NAN = float("nan")


def shown(run, **look):
    return table(parts_of_measured(run, Look(**look)), Look(**look))


RUNS = {
    "short": (by_hand(), Look()),
    "long": (by_hand(40, named=True), Look()),
    "narrow": (by_hand(40, named=True), Look(width=40)),
    "overview": (by_hand(40, 3, 2, named=True), Look()),
    "row": (by_hand(named=True, heads=2), Look(queries=(2,))),
    "rows": (by_hand(40, 3, 2, named=True), Look(queries=(0, 39))),
}


@pytest.mark.parametrize("name", RUNS)
def test_tables(golden, name):
    run, look = RUNS[name]
    text = table(parts_of_measured(run, look), look)
    assert not CONTROL.search(text)
    golden(f"measured-{name}.txt", text)


def test_plain(golden):
    text = plain.render(parts_of_measured(by_hand(), Look(), bars=False), Look())
    assert "█" not in text
    assert not CONTROL.search(text)
    golden("measured-plain.txt", text)


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("name", RUNS)
def test_tables_keep_to_the_width(name, width):
    run, look = RUNS[name]
    look = dataclasses.replace(look, width=width)
    lines = table(parts_of_measured(run, look), look).splitlines()
    assert max(cell_len(line) for line in lines) <= width


def test_bars_are_as_long_as_their_numbers():
    assert [bar(n) for n in (0.0, 1 / 160, 0.5, 1.0, 1.0000001, NAN)] == [
        "", "▏", "█" * 10, "█" * 20, "█" * 20, ""
    ]  # fmt: skip


def test_positions_are_those_of_the_text():
    axis = Axis(("a", "b", "c", "d"), first=700)
    run = dataclasses.replace(by_hand(), queries=axis, keys=axis)
    text = shown(run)
    assert "700 a" in text
    assert "703 d 0.5000, 702 c 0.5000" in text
    assert "query 702 c" in shown(run, queries=(2,))
    document = measured_document(run, Look(queries=(2,)))
    head = document["layers"][0]["heads"][0]
    assert document["rows"] == [702]
    assert head["strongest_keys"] == [[702, 701]]
    assert head["largest_key"] == [702]
    assert head["received_max_query"] == [700, 701, 702, 703]
    assert [row[3] for row in csv.reader(csv_of_measured(run, Look()).splitlines())][1:] == [
        "700", "701", "702", "703"
    ]  # fmt: skip
    assert map_run(run).queries.labels == ("700–701", "702–703")


def test_rows_that_see_nothing_and_nan_are_said():
    measures = even(4)
    measures.blind[0, :2] = True
    measures.strongest_keys[0, :2] = -1
    text = shown(by_hand(measures=measures))
    assert "2 of 4 rows may see no key" in text
    assert text.count("sees no key") == 2
    assert "measures over 2 rows" in text
    measures.entropy[0, :2] = 9.0  # of no row that sees a key
    assert "entropy (nats)                     0.5000  0.5000" in shown(by_hand(measures=measures))
    measures.row_sum[0, 2], measures.entropy[0, 2] = NAN, NAN
    assert "1 row with NaN among the weights" in shown(by_hand(measures=measures))
    assert "NaN" in shown(by_hand(measures=measures)).split("entropy (nats)")[1].splitlines()[0]
    measures.blind[:] = True
    assert "no row sees a key" in shown(by_hand(measures=measures))


def test_the_row_sums_are_checked():
    assert "rows add to 1: largest |row sum − 1| = 0" in shown(by_hand())
    measures = even(4)
    measures.row_sum[0, 1] = 0.75
    text = shown(by_hand(measures=measures), width=200)
    assert "rows add to 0.75 to 1, largest |row sum − 1| = 2.50e-01" in text
    with_sinks = of_call(call(sinks=torch.zeros(4)))
    assert "a learned sink takes its share" in shown(with_sinks)
    assert "|row sum" not in shown(with_sinks)


def test_a_proof_that_does_not_hold_is_said():
    run = by_hand(named=True)
    layer = dataclasses.replace(run.layers[0], site=site(error=0.5))
    assert "NOT proven" in shown(dataclasses.replace(run, layers=(layer,)))
    layer = dataclasses.replace(run.layers[0], site=site(error=NAN))
    assert "NOT proven" in shown(dataclasses.replace(run, layers=(layer,)))


def test_a_head_that_was_asked_for_keeps_its_number():
    run = of_call(call())
    for one in (shown(run, head=3), shown(run.only(3))):
        assert "head 3" in one
        assert "head 0" not in one
    heads = measured_document(run, Look(head=3))["layers"][0]["heads"]
    assert [(head["head"], head["key_head"]) for head in heads] == [(3, 1)]


def test_the_largest_key_stands_in_where_none_were_kept():
    run = by_hand(measures=even(4, top=0))
    assert "3 a␠b 0.5000" in shown(run)
    assert '"strongest_weights":[]' in next(rows_as_ndjson(run.layers[0], run.queries, run.keys))


def documents():
    sinks = torch.tensor([0.0, 1.0, -1.0, 2.0])
    yield "plain", of_call(call())
    yield "sinks, no map", of_call(call(sinks=sinks), grid=None, special=False)
    yield "crossed", of_call(call(4, 9, mask=EVERYTHING))
    yield "observed", of_call(observed())
    yield "words", by_hand(named=True)
    yield "two layers", by_hand(40, 3, 2, named=True)


@pytest.mark.parametrize(
    ("name", "run"), list(documents()), ids=lambda x: x if type(x) is str else ""
)
@pytest.mark.parametrize("look", [Look(), Look(queries=(1,)), Look(head=0, queries=(0, 2))])
def test_documents_keep_to_the_schema(name, run, look):
    text = render_measured(run, look)
    assert not CONTROL.search(text)
    VALIDATOR.validate(json.loads(text))
    assert '"nonfinite":0' in text, name
    VALIDATOR.validate(json.loads(header_line(
        run.settings, run.queries, run.keys, top=run.top, window=run.window)))  # fmt: skip
    for line in rows_as_ndjson(run.layers[0], run.queries, run.keys):
        assert line.endswith("}\n")
        assert not CONTROL.search(line)
        VALIDATOR.validate(json.loads(line))


def test_the_arrays_are_the_measures():
    run = of_call(call(7), top=4)
    dense = attend(call(7))
    document = json.loads(render_measured(run, Look(queries=(1, 5))))
    for head, shown_head in enumerate(document["layers"][0]["heads"]):
        weights = dense.weights[head]
        for name, expected in {
            "entropy": dense.entropy[head, [1, 5]],
            "effective_keys": dense.entropy[head, [1, 5]].exp(),
            "first": weights[[1, 5], 0],
            "logsumexp": dense.steps.logsumexp[head, [1, 5]],
            "received": weights.sum(0),
            "received_max": weights.amax(0),
            "strongest_weights": weights[[1, 5]].topk(4).values,
        }.items():
            torch.testing.assert_close(torch.tensor(shown_head[name]), expected, msg=name)
        assert shown_head["strongest_keys"][0][2:] == [None, None]  # row 1 sees two keys
        assert shown_head["received_max_query"] == weights.argmax(0).tolist()
        assert shown_head["mean"]["largest"] == pytest.approx(float(weights.amax(1).mean()))
        assert shown_head["quantiles"]["largest"][1] == pytest.approx(
            float(weights.amax(1).median())
        )
        assert shown_head["map"]["cell"] == [3, 3]
        assert shown_head["map"]["max"][1][0] == pytest.approx(float(weights[3:6, :3].max()))
        assert sum(shown_head["histogram"]["weight"]) == pytest.approx(7)


def test_one_row_has_its_weights_if_the_call_was_kept():
    run = of_call(call(7))
    weights = attend(call(7)).weights
    heads = json.loads(render_measured(run, Look(queries=(5,))))["layers"][0]["heads"]
    for head, document in enumerate(heads):
        torch.testing.assert_close(torch.tensor(document["weights"]), weights[head, 5])
    assert '"weights"' not in render_measured(run, Look(queries=(4, 5)))
    assert '"weights"' not in render_measured(of_call(call(7), keep=False), Look(queries=(5,)))


def test_numbers_that_are_not_finite_are_null_and_counted():
    measures = even(4)
    measures.entropy[0, 2] = measures.received[0, 1] = NAN
    measures.blind[0, 0], measures.logsumexp[0, 0] = True, -torch.inf
    run = by_hand(measures=measures)
    head = json.loads(render_measured(run, Look()))["layers"][0]["heads"][0]
    assert head["entropy"] == [0.0, 0.5, None, 0.5]
    assert head["logsumexp"][0] is None
    assert head["mean"]["entropy"] is None
    assert head["nonfinite"] == 3  # the effective number of keys is one too
    lines = [json.loads(line) for line in rows_as_ndjson(run.layers[0], run.queries, run.keys)]
    assert [line["nonfinite"] for line in lines] == [0, 0, 2, 0]
    assert lines[2]["entropy"] is None
    assert csv_of_measured(run, Look()).splitlines()[3].split(",")[6] == "NaN"


def test_a_block_of_rows_gives_the_lines_that_the_whole_gives():
    run = of_call(call(6))
    whole = list(rows_as_ndjson(run.layers[0], run.queries, run.keys, "0"))
    measures = run.layers[0].measures
    part = dataclasses.replace(
        measures,
        **{
            field.name: value[:, 2:4]
            for field in dataclasses.fields(measures)
            if isinstance(value := getattr(measures, field.name), torch.Tensor)
            and value.shape[:2] == (4, 6)
        },
    )
    block = dataclasses.replace(run.layers[0], measures=part)
    rows = Axis(run.queries.labels[2:4], first=2)
    assert list(rows_as_ndjson(block, rows, run.keys, "0")) == whole[8:16]
    line = json.loads(whole[8])
    assert (line["query"], line["head"], line["label"]) == (2, 0, "q2")
    dense = attend(call(6))
    torch.testing.assert_close(line["entropy"], float(dense.entropy[0, 2]))
    assert json.loads(whole[0])["strongest_keys"] == [0]


def test_csv_has_every_row_of_every_head():
    run = by_hand(40, 3, 2, named=True)
    header, *rows = csv.reader(csv_of_measured(run, Look()).splitlines())
    assert len(rows) == 2 * 3 * 40
    assert all(len(row) == len(header) for row in rows)
    first = dict(zip(header, rows[0], strict=True))
    last = dict(zip(header, rows[-1], strict=True))
    assert (last["layer"], last["head"], last["query"], last["label"]) == ("17", "2", "39", "q39")
    assert (last["entropy"], last["key_2"], last["weight_2"]) == ("0.5", "38", "0.5")
    assert (first["special"], first["key_1"], first["key_2"]) == ("", "0", "")
    assert len(csv_of_measured(run, Look(head=1, queries=(3,))).splitlines()) == 3


def maps_of(record, grid, **more):
    run = of_call(record, grid=grid, **more)
    return run, map_run(run), attend(record).weights


@pytest.mark.parametrize(("queries", "keys", "grid"), [(7, 7, 3), (5, 9, 4), (6, 6, 6), (1, 1, 4)])
def test_the_map_shows_largest_weights_and_shares(queries, keys, grid):
    record = call(queries, keys, mask=CAUSAL, query_offset=keys - queries)
    run, mapped, weights = maps_of(record, grid)
    rows, columns = run.layers[0].measures.map_cell
    largest, share = (result.weights for result in mapped.layers)
    seen = CAUSAL.visible(torch.arange(queries) + keys - queries, torch.arange(keys))
    for i in range(largest.shape[1]):
        for j in range(largest.shape[2]):
            down, across = slice(i * rows, (i + 1) * rows), slice(j * columns, (j + 1) * columns)
            block = weights[:, down, across]
            torch.testing.assert_close(largest[:, i, j], block.amax((1, 2)))
            torch.testing.assert_close(share[:, i, j], block.sum(2).mean(1))
            for result in mapped.layers:
                assert bool(result.visible[0, i, j]) == bool(seen[down, across].any())
    assert [mapped.layer_name(i) for i in range(2)] == ["largest", "share"]
    assert (len(mapped.queries), len(mapped.keys)) == tuple(largest.shape[1:])
    assert largest.max() <= 1.0


def test_a_window_hides_on_both_sides_and_a_given_mask_where_nothing_is_known():
    _, mapped, _ = maps_of(call(9, mask=window(2)), 3)
    assert mapped.layers[0].visible[0].tolist() == [
        [True, False, False], [True, True, False], [False, True, True]
    ]  # fmt: skip
    run = of_call(call(9, mask=window(2)), keep=False)
    run = dataclasses.replace(run, settings=dataclasses.replace(run.settings, causal=True))
    assert map_run(run).layers[0].visible[0, 2, 0]  # 0, and shown as 0
    assert not map_run(run).layers[0].visible[0, 0, 2]
    _, mapped, _ = maps_of(call(9, mask=from_tensor(torch.eye(9).bool())), 3)
    assert mapped.layers[0].visible.all()


def test_a_block_that_is_seen_is_shown_though_its_weights_are_0():
    def seen(run):
        run.layers[0].measures.map_max.zero_()
        return map_run(run).layers[0].visible[0].int().tolist()

    assert seen(by_hand(2)) == [[1, 0], [1, 1]]
    assert seen(by_hand(2, measures=even(2, nearest=-2))) == [[1, 1], [1, 1]]  # one place later
    assert seen(of_call(call(9, mask=window(2)))) == [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    assert seen(of_call(call(9, mask=window(5)))) == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert seen(of_call(call(9, mask=EVERYTHING))) == [[1] * 3] * 3


def test_a_nan_in_the_map_is_not_hidden():
    run = by_hand()
    run.layers[0].measures.map_max[0, 0, 1] = NAN
    mapped = map_run(run)
    assert mapped.layers[0].visible[0, 0, 1]
    assert mapped.layers[0].weights[0, 0, 1].isnan()
    assert "#ff0050" in render_svg(map_run(run, ("largest",)), Look())


def test_rounding_makes_no_weight_above_one_but_an_error_stays():
    run = by_hand()
    run.layers[0].measures.map_max[0, 0, 0] = 1.0000002
    run.layers[0].measures.map_max[0, 1, 1] = 1.5
    assert map_run(run).layers[0].weights[0].diagonal().tolist() == [1.0, 1.5]


def test_the_map_of_one_head_keeps_its_number():
    run = of_call(call(6)).only(3)
    mapped, look = map_run(run), look_at_map(run, Look(queries=(5,)))
    assert (look.head, look.queries) == (3, None)
    assert torch.equal(mapped.layers[0].weights[3], map_run(of_call(call(6))).layers[0].weights[3])
    assert not mapped.layers[0].visible[:3].any()
    assert "<title>" in render_svg(map_run(run, ("largest",)), look)


def test_what_a_map_says_of_itself():
    run = by_hand(40, 2, 2, named=True)
    mapped = map_run(run)
    names = ["16 · largest", "16 · share", "17 · largest", "17 · share"]
    assert [mapped.layer_name(i) for i in range(4)] == names
    assert [one.name for one in mapped.sites] == names
    assert mapped.settings.variant == "map of causal"
    assert mapped.notes[0] == (
        "a map of 40 queries × 40 keys: each cell is a block of up to 20 queries × 20 keys"
    )
    assert mapped.queries.labels == ("0–19", "20–39")
    assert map_run(by_hand()).queries.labels == ("0–1 [red]x", "2–3 ␛[0m")
    assert mapped.layers[0].context.isnan().all()
    with pytest.raises(OptionError, match="without a map"):
        map_run(of_call(call(), grid=None))


def test_crossed_maps_have_two_axes():
    run = of_call(call(4, 9, mask=EVERYTHING))
    mapped = map_run(run)
    assert mapped.crossed
    assert mapped.keys.labels == ("0–2", "3–5", "6–8")
    assert not map_run(of_call(call(6))).crossed
    part = dataclasses.replace(by_hand(), keys=axis_of_positions("k", 4))
    assert map_run(part).crossed


def test_the_page_of_a_map(browser, tmp_path):
    run = by_hand(40, 2, 2, named=True)
    run.layers[0].measures.map_max[0, 1, 0] = NAN
    path = tmp_path / "map.html"
    path.write_text(render_html(map_run(run), look_at_map(run, Look())))
    browser.open(path)
    assert browser.problems == []
    assert "each cell is a block of up to 20 queries × 20 keys" in browser.text("notes")
    assert "in the mean over the block's queries" in browser.text("notes")
    cells = browser.do("attnscopeCells(0, 0, [0, 0], [0, 1])")
    assert cells[0]["weight"] == 0.5
    assert [cell["seen"] for cell in cells] == [True, False]
    assert browser.do("attnscopeCells(1, 1, [1], [1])")[0]["weight"] == 0.5
    assert browser.do("attnscopeCells(0, 0, [1], [0]).then((c) => Number.isNaN(c[0].weight))")
    names = browser.do("[...document.getElementById('layer').options].map((o) => o.textContent)")
    assert names == ["16 · largest", "16 · share", "17 · largest", "17 · share"]
