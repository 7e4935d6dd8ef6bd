"""Formats, files, colour, and the JSON Schema."""

import io
import json
from pathlib import Path

import jsonschema
import pytest

from attnscope.cli.output import write_file
from attnscope.errors import OutputError
from tests.conftest import CONTROL, ROOT

SAMPLES = ROOT / "samples"
HOSTILE = "[red]x[/red] [/x] :smile: \x1b]0;t\x07 \x00 \x85 \x9b31m a\u202eb\u2066 \u200f"
DOCUMENTS = [
    ("run", "a b c"),
    ("run", "a b c", "--causal", "--mask-method", "renormalize", "--heads", "2"),
    ("run", "a b", "--cross", "c d e"),
    ("run", "a b", "--variant", "cross"),
    ("run", "a b c", "--query", "1", "--show", "weights"),
    ("run", "to be", "--tokenizer", SAMPLES / "tokenizer.json"),
    ("run", "the dog", "--vocabulary", SAMPLES / "sentences" / "corpus.txt"),
    ("run", "--qkv", SAMPLES / "qkv.json", "--causal", "--align", "top-left"),
    ("run", "--qkv", SAMPLES / "qkv.safetensors"),
    ("compare",),
    ("compare", "--qkv", SAMPLES / "underflow.json"),
    ("compare", "a b", "--mask-method", "renormalize"),
    ("explain", "a b c", "--causal", "--heads", "2"),
    ("explain", "--qkv", SAMPLES / "qkv.json", "--all-queries", "--flash", "2", "--dims", "1"),
    ("explain", "a b c", "--causal", "--mask-method", "renormalize", "--query", "0"),
    ("tokenize", "人生 🍰", "--tokenizer", SAMPLES / "tokenizer.json"),
    ("tokenize", HOSTILE),
]


@pytest.fixture(scope="session")
def schema():
    from attnscope.views.schema import SCHEMA

    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    return jsonschema.Draft202012Validator(SCHEMA)


@pytest.mark.parametrize("arguments", DOCUMENTS, ids=lambda a: " ".join(map(str, a[:3])))
def test_every_document_is_valid(cli, schema, arguments):
    done = cli(*arguments, "--json")
    assert done.code == 0, done.err
    schema.validate(done.json)
    assert done.out.count("\n") == 1


def test_the_schema_can_fail(cli, schema):
    document = cli("run", "a b", "--json").json
    for change in ({"version": 2}, {"heads": [{}]}, {"extra": 1}, {"tokens": [{"id": -1}]}):
        assert list(schema.iter_errors({**document, **change}))


def test_schema_command(cli):
    from attnscope.views.schema import SCHEMA

    assert cli("schema").json == SCHEMA


@pytest.mark.parametrize("format_", ["table", "plain", "json", "csv"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("run", HOSTILE),
        ("run", "a", "--cross", HOSTILE),
        ("run", HOSTILE, "--keep-punctuation"),
        ("tokenize", HOSTILE),
        ("tokenize", HOSTILE, "--tokenizer", SAMPLES / "tokenizer.json"),
        ("run", HOSTILE, "--tokenizer", SAMPLES / "tokenizer.json"),
        ("compare", HOSTILE),
    ],
)
def test_no_control_byte_is_printed(cli, arguments, format_):
    done = cli(*arguments, "--format", format_)
    assert done.code == 0, done.err
    assert not CONTROL.search(done.out)
    assert not CONTROL.search(done.err)


def test_hostile_text_is_shown_as_it_is(cli):
    shown = cli("tokenize", HOSTILE, "--width", "200").out
    assert "[red]x[/red] [/x] :smile: ␛]0;t␇ ␀ ⟨U+0085⟩ ⟨U+009B⟩31m a⟨U+202E⟩b" in shown
    assert cli("tokenize", HOSTILE, "--json").json["text"] == HOSTILE


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "a", "--query", HOSTILE),
        ("run", "--file", HOSTILE.replace("\x00", "")),
        ("run", "--file", "nul\x00"),
        ("run", "a", "--tokenizer", HOSTILE.replace("\x00", "")),
        ("run", "--qkv", HOSTILE.replace("\x00", "") + ".json"),
        ("run", "a", "--output", HOSTILE.replace("\x00", "").replace("/", "")),
        ("run", "a", "--output", "nul\x00.json"),
        ("run", "a", "--device", HOSTILE),
        ("run", "a", "--show", HOSTILE),
        ("run", "a", "--variant", HOSTILE),
        ("run", "a", f"--{HOSTILE}"),
        (HOSTILE,),
    ],
)
def test_no_control_byte_in_messages(cli, arguments):
    done = cli(*arguments)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert not CONTROL.search(done.err)


@pytest.mark.parametrize("ending", ["json", "csv", "txt"])
def test_output_by_ending(cli, tmp_path, ending):
    path = tmp_path / f"out.{ending}"
    done = cli("run", "a b", "--output", path)
    assert (done.code, done.out) == (0, "")
    format_ = {"txt": "plain"}.get(ending, ending)
    assert path.read_text(encoding="utf-8") == cli("run", "a b", "--format", format_).out
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_table_in_a_file(cli, tmp_path):
    path = tmp_path / "table.out"
    assert cli("run", "a b", "--output", path, "--format", "table").code == 0
    assert "\x1b" not in path.read_text(encoding="utf-8")


def test_files_are_not_overwritten(cli, tmp_path):
    path = tmp_path / "out.json"
    path.write_text("precious")
    done = cli("run", "a b", "--output", path)
    assert done.code == 2
    assert "exists" in done.err
    assert "--force" in done.err
    assert path.read_text() == "precious"
    assert cli("run", "a b", "--output", path, "--force").code == 0
    assert json.loads(path.read_text())["text"] == "a b"


def test_a_failed_run_leaves_no_file(cli, tmp_path):
    assert cli("run", "?!", "--output", tmp_path / "out.json").code == 2
    assert cli("run", "a", "--query", "9", "--output", tmp_path / "out.json").code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["none/out.json", "out.xyz", "."])
def test_places_that_cannot_be_written(cli, tmp_path, name):
    done = cli("run", "a b", "--output", tmp_path / name)
    assert done.code == 2
    assert done.err.count("\n") == 1


def test_a_write_that_fails_changes_nothing(tmp_path, monkeypatch):
    path = tmp_path / "out.json"
    path.write_text("precious")

    class Full(io.BytesIO):
        def write(self, _):
            raise OSError(28, "No space left on device")

    plain = Path.open
    monkeypatch.setattr(
        Path,
        "open",
        lambda self, mode="r", **more: Full() if mode == "wb" else plain(self, mode, **more),
    )
    with pytest.raises(OutputError, match="No space left on device"):
        write_file(path, b"new", force=True)
    assert path.read_text() == "precious"
    assert [p.name for p in tmp_path.iterdir()] == ["out.json"]


def test_colour(cli, monkeypatch):
    words = ("run", "a b")
    assert "\x1b" not in cli(*words).out  # not a terminal
    assert "\x1b[" in cli(*words, "--color", "always").out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in cli(*words).out
    assert "\x1b" not in cli(*words, "--color", "never").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in cli(*words).out
    assert "\x1b[" in cli(*words, "--color", "always").out


@pytest.mark.parametrize("format_", ["plain", "json", "csv"])
def test_only_tables_are_coloured(cli, format_):
    assert "\x1b" not in cli("run", "a b", "--format", format_, "--color", "always").out


def test_the_numbers_are_there_with_and_without_colour(cli):
    import re

    plain = cli("run", "a b").out
    coloured = cli("run", "a b", "--color", "always").out
    uncoloured = re.sub(r"\x1b\[[0-9;]*m", "", coloured).splitlines()
    assert [line.rstrip() for line in uncoloured] == plain.splitlines()


def test_save_tokenizer(cli, tmp_path):
    path = tmp_path / "words.json"
    assert cli("tokenize", "to be or not", "--save-tokenizer", path).code == 0
    document = cli("tokenize", "to see", "--tokenizer", path, "--json").json
    assert [token["piece"] for token in document["tokens"]] == ["to", "[UNK]"]
    assert [token["mark"] for token in document["tokens"]] == [None, "unknown"]
    assert cli("tokenize", "x", "--save-tokenizer", path).code == 2
    assert cli("tokenize", "x", "--save-tokenizer", path, "--force").code == 0


def test_a_large_vocabulary_widens_the_table(cli, tmp_path):
    words = {f"w{i}": i for i in range(50_010)}
    model = {"type": "WordLevel", "vocab": words, "unk_token": "w0"}
    whitespace = {"type": "Whitespace"}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"version": "1.0", "model": model, "pre_tokenizer": whitespace}))
    done = cli("run", "w50009", "--tokenizer", path, "--json")
    assert "the embedding table has 50010 rows, not 50000" in done.err
    vocabulary = done.json["vocabulary"]
    assert (vocabulary["complete"], vocabulary["entries"]) == (False, {"w50009": 50009})
    done = cli("run", "w50009", "--tokenizer", path, "--vocabulary-size", "50000")
    assert "--vocabulary-size 50000 is too small" in done.err


def test_devices_and_links_are_written_to_and_not_replaced(cli, tmp_path):
    import os
    import stat
    import threading

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    assert cli("run", "a b", "--output", pipe, "--format", "json").code == 0
    reader.join(30)
    assert json.loads(read[0])["text"] == "a b"
    assert stat.S_ISFIFO(pipe.stat().st_mode)

    target, link = tmp_path / "target.json", tmp_path / "link.json"
    link.symlink_to(target)
    assert cli("run", "a b", "--output", link).code == 0
    assert link.is_symlink()
    assert json.loads(target.read_text())["text"] == "a b"
    assert cli("run", "a b", "--output", link).code == 2


def test_a_tokenizer_is_not_saved_when_the_run_fails(cli, tmp_path):
    path = tmp_path / "words.json"
    for options in (("--query", "zzz"), ("--device", "cuda:99"), ("--vocabulary-size", "1")):
        assert cli("run", "a b", "--save-tokenizer", path, *options).code == 2
        assert not path.exists()
    done = cli("run", "a b", "--save-tokenizer", path, "--output", path)
    assert "two files have the name" in done.err


def test_names_that_are_no_unicode(cli, tmp_path):
    path = tmp_path / "b\udcff.json"
    path.write_text('{"q": [[1.0]], "k": [[1.0]], "v": [[1.0]]}')
    assert cli("run", "--qkv", path, "--json").json["settings"]["file"].endswith("b⟨U+DCFF⟩.json")
    path.write_text("some words")
    name = cli("tokenize", "some", "--vocabulary", path, "--json").json["vocabulary"]["name"]
    assert name.endswith("b⟨U+DCFF⟩.json")


def test_long_names_are_one_line(cli):
    for option in ("--tokenizer", "--save-tokenizer", "--output", "--file", "--vocabulary"):
        done = cli("run", "a", option, "x" * 600)
        assert done.code == 2, option
        assert done.err.count("\n") == 1
