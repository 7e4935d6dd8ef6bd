"""`attnscope heads`, `top`, `who` and `layers`: their formats, options and mistakes."""

import csv
import io
import json
import os
import re
import subprocess
import sys

import jsonschema
import pytest

from attnscope.survey.heads import MEASURES
from attnscope.views.schema import SCHEMA
from tests.conftest import CONTROL
from tests.sources import tiny_models

TEXT = "the cat sat on the mat because the cat was tired"
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    place = tmp_path_factory.mktemp("models")
    return {name: save(place / name) for name, save in tiny_models.FOLDERS.items()}


@pytest.fixture
def ask(cli, models):
    """Run a command over the text with a model, by the model's kind."""

    def run(command, *arguments, kind="decoder", text=TEXT):
        given = [text] if text is not None else []
        return cli(command, *given, "--model", models[kind], *arguments)

    return run


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


COMMANDS = [("heads",), ("heads", "--probe"), ("top", "--token", "2"), ("who", "--token", "2")]


@pytest.mark.parametrize("kind", ["decoder", "encoder", "t5", "bart"])
@pytest.mark.parametrize("command", [*COMMANDS, ("layers",)], ids=" ".join)
def test_json_fits_the_schema(ask, command, kind):
    done = ask(*command, "--json", kind=kind)
    assert done.code == 0, done.err
    VALIDATOR.validate(done.json)
    spoiled = done.json | {"more": 1}
    assert list(VALIDATOR.iter_errors(spoiled))


@pytest.mark.parametrize("width", [40, 80, 120, 160])
@pytest.mark.parametrize("command", [*COMMANDS, ("layers",)], ids=" ".join)
def test_tables_keep_to_the_width(ask, models, command, width):
    done = ask(*command, "--width", str(width))
    assert done.code == 0, done.err
    name = str(models["decoder"])
    for line in done.out.splitlines():
        assert len(line) <= width, line
    assert not CONTROL.search(done.out.replace("\n", ""))
    assert name.split("/")[-1] in done.out.replace("\n", "")
    assert "proven:" in done.out


def test_each_head_stands_beside_its_control(ask):
    done = ask("heads", "--format", "plain", "--width", "200")
    lines = [line for line in done.out.splitlines() if line.startswith("heads: ")]
    assert len(lines) == 2 * 8
    for value, control in zip(lines[::2], lines[1::2], strict=True):
        head = re.match(r"heads: head (\d\.\d), key head (\d)", value)
        assert control.startswith(f"heads: head {head[1]}, key head {head[2]}, name random tokens")
    narrow = ask("heads", "--format", "plain", "--width", "80").out
    numbers = set(re.findall(r"\d\.\d\d", done.out))
    assert numbers == set(re.findall(r"\d\.\d\d", narrow))


def test_csv_is_json_in_a_table(ask):
    document = ask("heads", "--json", "--probe").json
    rows = rows_of(ask("heads", "--format", "csv", "--probe").out)
    assert len(rows) == len(document["heads"]) == 8
    for row, head in zip(rows, document["heads"], strict=True):
        assert (row["layer"], int(row["head"])) == (head["layer"], head["head"])
        for name in (*MEASURES, "most"):
            score = head[name]
            for column, value in ((name, "value"), (f"{name}_control", "control")):
                expected = score[value]
                assert row[column] == "" if expected is None else float(row[column]) == expected
        assert float(row["probe_induction"]) == head["probe"]["induction"]["value"]


def test_sorted_filtered_and_cut(ask):
    every = ask("heads", "--json", "--sort", "entropy").json["heads"]
    sizes = [head["entropy"]["value"] for head in every]
    assert sizes == sorted(sizes, reverse=True)
    some = ask("heads", "--json", "--sort", "entropy", "--min", str(sizes[3])).json["heads"]
    assert some == every[:4]
    assert ask("heads", "--json", "--sort", "entropy", "--limit", "2").json["heads"] == every[:2]
    by_layer = ask("heads", "--json", "--sort", "layer").json["heads"]
    assert [(h["layer"], h["head"]) for h in by_layer] == [
        (str(layer), head) for layer in range(2) for head in range(4)
    ]
    unnamed = ask("heads", "--json", "--only", "none").json["heads"]
    places = [{(h["layer"], h["head"]) for h in found} for found in (unnamed, every)]
    named = {(h["layer"], h["head"]) for h in every if h["name"]}
    assert places[0] == places[1] - named
    assert 0 < len(unnamed) < len(every)
    one = ask("heads", "--json", "--layer", "1").json
    assert {head["layer"] for head in one["heads"]} == {"1"}
    table = ask("heads", "--limit", "3", "--width", "130").out
    assert "3 of 8 heads" in table
    assert table.count("random tokens  ") == 3


def test_nothing_that_was_asked_for_is_said(ask):
    done = ask("heads", "--min", "1.5")
    assert done.code == 0
    assert "no head is what was asked for" in done.out
    assert ask("heads", "--min", "1.5", "--json").json["heads"] == []


def test_without_the_first_token(ask):
    document = ask("heads", "--json", "--no-sink").json
    assert document["settings"]["no_sink"] is True
    assert all(head["first"]["value"] is None for head in document["heads"])
    assert "without the first token" in ask("heads", "--no-sink").out
    assert "first  " not in ask("heads", "--no-sink").out


def test_the_same_seed_draws_the_same_control(ask):
    one, two, three = (ask("heads", "--json", "--seed", seed).json for seed in ("1", "1", "2"))
    assert one == two
    assert one["heads"] != three["heads"]
    for a in one["heads"]:
        (b,) = (h for h in three["heads"] if (h["layer"], h["head"]) == (a["layer"], a["head"]))
        assert a["entropy"]["value"] == b["entropy"]["value"]
        assert a["entropy"]["control"] != b["entropy"]["control"]


def test_several_texts(ask, tmp_path):
    lines = tmp_path / "lines.txt"
    lines.write_text("the cat sat\na dog ran home\n")
    done = ask("heads", "--file", lines, "--per-line", "--text", "happy", "--json", text=None)
    assert [text["text"] for text in done.json["texts"]] == [
        "the cat sat", "a dog ran home", "happy",
    ]  # fmt: skip
    linked = ask("top", "--text", "a cat", "--token", "cat", "--words", "--format", "csv")
    assert {row["text"] for row in rows_of(linked.out)} == {"0", "1"}


@pytest.mark.parametrize("command", ["top", "who"])
def test_links_are_in_order_and_complete(ask, command):
    document = ask(command, "--token", "3", "--limit", "5", "--json").json
    (focus,) = document["tokens"]
    weights = [link["weight"] for link in focus["links"]]
    assert len(weights) == 5
    assert weights == sorted(weights, reverse=True)
    rows = rows_of(ask(command, "--token", "3", "--limit", "5", "--format", "csv").out)
    assert [float(row["weight"]) for row in rows] == weights
    assert [row["rank"] for row in rows] == list("01234")
    assert (focus["mean_first_token"] is None) == (command == "who")


def test_what_a_row_gives_is_what_run_shows(ask):
    run = ask("run", "--layer", "all", "--json").json
    dense = {(h["layer"], h["head"]): h["weights"] for h in run["heads"]}
    (focus,) = ask("top", "--token", "5", "--json", "--limit", "1000").json["tokens"]
    for link in focus["links"]:
        (key,) = link["positions"]
        expected = dense[int(link["layer"]), link["head"]][5][key]
        assert link["weight"] == pytest.approx(expected, abs=1e-5)
    assert len(focus["links"]) == 8 * 6


def test_a_first_token_that_leads_is_hinted_at(ask):
    assert "--no-sink" in ask("top", "--token", "0").out
    assert "--no-sink" not in ask("top", "--token", "4", "--no-sink").out


def test_layers_without_a_text_read_a_built_in_one_or_its_beginning(ask):
    done = ask("layers", "--json", text=None)
    assert done.code == 0, done.err
    assert 30 < done.json["tokens"] <= 64  # the model has 64 positions
    assert [layer["sees"] for layer in done.json["layers"]] == ["causal", "causal"]
    assert ask("layers", text=TEXT * 9).code == 2


def test_layers_in_a_table(ask):
    rows = rows_of(ask("layers", "--format", "csv").out)
    assert [row["positions"] for row in rows] == ["rope θ 10000"] * 2
    assert [(row["heads"], row["key_heads"]) for row in rows] == [("4", "2")] * 2


@pytest.mark.parametrize("kind", ["t5", "bart"])
def test_layers_of_an_encoder_decoder_read_the_text_twice(ask, kind):
    document = ask("layers", "--json", kind=kind).json
    sees = {layer["part"]: layer["sees"] for layer in document["layers"]}
    assert sees == {"encoder": "full", "decoder": "causal", "cross": "cross"}
    assert document["tokens"] > 5


@pytest.mark.parametrize("command", [*COMMANDS, ("layers",)], ids=" ".join)
def test_unproven_layers_warn_and_strict_fails(ask, monkeypatch, command):
    from attnscope.sources.capture import document

    assert ask(*command, "--strict").code == 0
    monkeypatch.setattr(document, "TOLERANCES", dict.fromkeys(document.TOLERANCES, -1.0))
    done = ask(*command)
    assert done.code == 0
    assert "warning: layer 0: the record does not reproduce" in done.err
    assert "2 of 2 calls are NOT proven" in done.out
    strict = ask(*command, "--strict")
    assert strict.code == 1
    assert strict.out == done.out
    assert "2 of 2 attention calls are not proven" in strict.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["heads", TEXT], "--model"),
        (["top", TEXT, "--model", "m"], "--token"),
        (["heads", "--model", "m"], "there is no text"),
        (["heads", TEXT, "--model", "m", "--sort", "size"], '"size" is no measure'),
        (["heads", TEXT, "--model", "m", "--only", "sink"], '"sink" is no kind'),
        (["heads", TEXT, "--model", "m", "--limit", "0"], "0 is not positive"),
        (["heads", TEXT, "--model", "m", "--sort", "probe"], "Add --probe"),
        (["heads", TEXT, "--model", "m", "--format", "html"], "writes no html"),
        (["who", TEXT, "--model", "m", "--token", "a", "--limit", "0"], "0 is not positive"),
        (["layers", "--model", "nowhere/at/all"], "nowhere/at/all"),
        (["layers", "--model", "m", "--precision", "99"], "99 is out of range"),
    ],
)
def test_mistakes_are_one_line(cli, arguments, words):
    done = cli(*arguments)
    assert done.code == 2
    assert words in done.err
    assert done.err.count("\n") == 1
    assert done.out == ""


def test_mistakes_that_need_the_model(ask):
    for arguments, words in (
        (["heads", "--layer", "7"], '--layer "7" is no layer'),
        (["top", "--token", "zebu"], '"zebu" is not a token'),
        (["top", "--token", "1", "--head", "4"], "--head 4 is out of range"),
        (["heads", "--target", "a cat"], "takes no target"),
    ):
        done = ask(*arguments)
        assert done.code == 2
        assert words in done.err


def test_text_that_acts_on_a_terminal_is_made_visible(ask):
    text = "a \x1b[31mcat\x1b[0m \u202e sat"
    for command in (["top", "--token", "0"], ["who", "--token", "0"], ["heads"]):
        for form in ("table", "plain", "csv"):
            done = ask(*command, "--format", form, text=text)
            assert done.code == 0
            assert not CONTROL.search(done.out.replace("\n", "")), (command, form)
    json.loads(ask("heads", "--json", text=text).out)


@pytest.mark.parametrize("command", ["heads", "top", "who", "layers"])
def test_files_are_written_by_their_ending(ask, tmp_path, command):
    more = ["--token", "1"] if command in ("top", "who") else []
    for ending, start in ((".json", '{"schema":"attnscope.'), (".csv", ""), (".txt", "")):
        path = tmp_path / f"{command}{ending}"
        done = ask(command, *more, "--output", path)
        assert done.code == 0, done.err
        assert done.out == ""
        assert path.read_text().startswith(start)
    assert ask(command, *more, "--output", path).code == 2


@pytest.mark.parametrize("command", ["heads", "top", "who", "layers"])
def test_help_fits_and_says_what_each_option_does(cli, monkeypatch, command):
    for width in ("40", "80"):
        monkeypatch.setenv("COLUMNS", width)
        done = cli(command, "--help")
        assert done.code == 0
        assert all(len(line) <= int(width) for line in done.out.splitlines())
        listed = done.out.split("\nOptions:", 1)[1]
        for name in re.findall(r"^  (?:-\w, )?--([\w-]+)", listed, re.MULTILINE):
            (about,) = re.findall(
                rf"\n  (?:-\w, )?--{name}(?![\w-])(.*?)(?=\n  -|\Z)", listed, re.DOTALL
            )
            assert len(re.findall(r"[A-Za-z]{2,}", about)) >= 3, name


def test_help_and_mistakes_do_not_load_torch(tmp_path):
    program = (
        "import sys; from attnscope.cli import main; main(sys.argv[1:]); "
        "sys.exit('torch' in sys.modules)"
    )
    for arguments in (["heads", "--help"], ["top", "a"], ["layers", "--model", str(tmp_path)]):
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            capture_output=True,
            env=os.environ | {"COLUMNS": "80"},
        )
        assert done.returncode == 0, done.stderr
