import csv
import io
import json
import re

import jsonschema
import pytest
from markdown_it import MarkdownIt

from attnscope.views.schema import SCHEMA
from tests.conftest import CONTROL, LESSON_SENTENCE, ROOT
from tests.views import handmade

FORMATS = ("table", "plain", "json", "csv", "markdown")
HOSTILE = (
    "<script>alert(1)</script> | `code` *b* _i_ [a](http://x.y) ![i](u) & &lt; ~~s~~ # $x$ "
    "https://evil.example www.evil.example a@b.example :smile: \x1b[31m \u202e \\| {#id} --- 1."
)
LINE = re.compile(r"^(\S+|ω with key \d .+?) = (.+) = (\S+)$")


def four(number):
    return f"{number + 0.0:.4f}"


def factor(number):
    text = four(number)
    return f"({text})" if text.startswith("-") else text


def written_out(name, lefts, rights, result):
    terms = [f"{factor(a)}·{factor(b)}" for a, b in zip(lefts, rights, strict=True)]
    terms[0] = f"{four(lefts[0])}·{factor(rights[0])}"
    return f"{name} = {' + '.join(terms)} = {four(result)}"


def columns(matrix):
    return list(zip(*matrix, strict=True))


@pytest.mark.parametrize("format_", ["table", "plain"])
def test_every_number_of_the_lesson(cli, lesson, format_):
    """Query 1 of the lesson: each sum, as the lesson's own numbers write it out."""
    done = cli("explain", LESSON_SENTENCE, "--query", "1", "--format", format_, "--width", "500")
    assert done.code == 0
    lines = done.out.splitlines()
    walk, x = lesson["walk_query_index_1"], lesson["embedded_sentence"][1]
    labels = ("Life", "is", "short", "eat", "dessert", "first")
    expected = [
        written_out(f"q{i}", x, column, walk["query"][i])
        for i, column in enumerate(columns(lesson["W_query"]))
    ]
    expected += [
        written_out(f"ω with key {j} {labels[j]}", walk["query"], lesson["keys"][j], omega)
        for j, omega in enumerate(walk["omegas"])
    ]
    expected += [
        written_out(f"z{i}", walk["weights"], column, walk["context"][i])
        for i, column in enumerate(columns(lesson["values"]))
    ]
    assert [line for line in lines if LINE.match(line) and "·" in line] == expected
    assert "q0 = 0.1794·0.2961 + 1.8951·0.2517 + 0.4954·0.0740 = 0.5667" in lines
    assert "ω with key 1 is = 0.5667·0.5295 + 1.8269·1.7355 = 3.4707" in lines
    assert f"ω with key 4 dessert = {four(walk['omega_with_key_4'])}"[:20] in done.out


def test_tables_of_the_lesson(cli, lesson):
    done = cli("explain", LESSON_SENTENCE, "--query", "is", "--format", "plain")
    lines = done.out.splitlines()
    assert "token and id: position 1, token is, id 4, text is" in lines
    walk = lesson["walk_query_index_1"]
    labels = ("Life", "is", "short", "eat", "dessert", "first")
    scale = 2**-0.5
    for j, label in enumerate(labels):
        for name, letter, numbers in (
            ("keys k", "k", lesson["keys"][j]),
            ("values v", "v", lesson["values"][j]),
        ):
            shown = ", ".join(f"{letter}{i} {four(number)}" for i, number in enumerate(numbers))
            assert f"query 1 is: {name}, key {j} {label}: {shown}" in lines
        omega, weight = walk["omegas"][j], walk["weights"][j]
        scaled = f"query 1 is: scaled scores, key {j} {label}: ω {four(omega)}"
        assert any(
            line.startswith(scaled) and line.endswith(f"scaled {four(omega * scale)}")
            for line in lines
        )
        (row,) = [line for line in lines if line.startswith(f"query 1 is: softmax, key {j}")]
        assert row.endswith(f"weight {four(weight)}")


def test_causal_lesson_by_both_methods(cli, lesson):
    for method in ("neg-inf", "renormalize"):
        document = cli(
            "explain", "--causal", "--mask-method", method, "--all-queries", "--json"
        ).json
        assert [walk["query"] for walk in document["queries"]] == list(range(6))
        for walk in document["queries"]:
            steps = {step["name"]: step for step in walk["steps"]}
            table = steps["weights"]["tables"][0]
            shown = [row[table["columns"].index("weight")] for row in table["values"]]
            theirs = lesson["causal"]["renormalised_weights"][walk["query"]]
            for j, weight in enumerate(shown):
                if j > walk["query"]:
                    assert weight is None
                    assert table["hidden"][j][table["columns"].index("weight")] is True
                else:
                    assert weight == pytest.approx(theirs[j], abs=1e-5)
            if method == "renormalize":
                (row_sum,) = steps["weights"]["sums"]
                wanted = lesson["causal"]["row_sums"][walk["query"]]
                assert row_sum["result"] == pytest.approx(wanted, abs=1e-5)


def test_the_default_query_is_the_last_token(cli):
    assert cli("explain", "a b c", "--format", "plain").out.startswith("query 2 c: ")
    assert "[the last token]" in " ".join(cli("explain", "--help").out.split())


def test_a_word_that_stands_twice_is_explained_twice(cli):
    document = cli("explain", "to be or not to be", "--query", "be", "--json").json
    assert [walk["query"] for walk in document["queries"]] == [1, 5]
    assert document["selection"] == {"queries": [1, 5], "heads": [0]}


def test_what_each_word_may_see(cli):
    done = cli("explain", LESSON_SENTENCE, "--causal", "--format", "plain")
    assert "Life → is\n" in done.out
    assert "Life is → short\n" in done.out
    document = cli("explain", LESSON_SENTENCE, "--causal", "--json").json
    assert document["visible_prefixes"][1] == {
        "query": 1, "sees": [0, 1], "words": "Life is", "next": "short",
    }  # fmt: skip
    assert "→" not in cli("explain", LESSON_SENTENCE, "--format", "plain").out


@pytest.mark.parametrize(
    "options",
    [
        (), ("--causal",), ("--causal", "--mask-method", "renormalize"), ("--heads", "3"),
        ("--cross", "La vie est courte"), ("--variant", "cross"), ("--flash", "2"),
        ("--dtype", "float16"), ("--d-model", "30", "--d-key", "20", "--dims", "3"),
        ("--all-queries", "--heads", "2", "--head", "1"), ("--step", "omegas"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("format_", FORMATS)
def test_every_variant_in_every_format(cli, options, format_):
    done = cli("explain", LESSON_SENTENCE, *options, "--format", format_)
    assert done.code == 0, done.err
    assert done.out.endswith("\n")
    assert "None" not in done.out
    if format_ == "json":
        assert done.json["schema"] == "attnscope.explanation"
        assert done.json["version"] == 1


@pytest.mark.parametrize("name", ["qkv.json", "qkv.npz", "qkv.safetensors", "underflow.json"])
def test_tensor_files(cli, name):
    document = cli("explain", "--qkv", ROOT / "samples" / name, "--flash", "2", "--json").json
    names = [step["name"] for step in document["queries"][0]["steps"]]
    assert names[0] == "query"
    assert document["text"] is None


def test_dims_says_how_much_is_left_out(cli):
    done = cli(
        "explain", LESSON_SENTENCE, "--d-model", "64", "--query", "1", "--step", "query",
        "--format", "plain", "--precision", "6",
    )  # fmt: skip
    assert "… and 56 more terms that add to" in done.out
    line = next(line for line in done.out.splitlines() if line.startswith("q0 = "))
    numbers = [float(n) for n in re.findall(r"-?\d+\.\d{6}", line)]
    products = sum(a * b for a, b in zip(numbers[:16:2], numbers[1:16:2], strict=True))
    assert products + numbers[16] == pytest.approx(numbers[17], abs=1e-4)
    document = cli("explain", "--d-model", "64", "--dims", "64", "--json").json
    step = next(step for step in document["queries"][0]["steps"] if step["name"] == "query")
    assert step["sums"][0]["terms_left_out"] == 0


def test_the_text_says_that_numbers_are_rounded(cli):
    assert "rounded to 4 decimals" in cli("explain", "a b").out
    assert "rounded to 1 decimal when" in " ".join(
        cli("explain", "a b", "--precision", "1").out.split()
    )
    half = " ".join(cli("explain", "a b", "--dtype", "float16").out.split())
    assert "computes in float16" in half


def test_csv_has_every_number_of_the_json(cli):
    options = ("explain", "a b c", "--causal", "--all-queries", "--flash", "2")
    rows = list(csv.DictReader(io.StringIO(cli(*options, "--format", "csv").out)))
    found = {float(row["value"]) for row in rows if row["value"]}
    for walk in cli(*options, "--json").json["queries"]:
        for step in walk["steps"]:
            numbers = [*step["facts"].values()]
            numbers += [s["result"] for s in step["sums"]]
            numbers += [t["product"] for s in step["sums"] for t in s["terms"]]
            numbers += [v for table in step["tables"] for row in table["values"] for v in row]
            assert {number for number in numbers if number is not None} <= found
    assert {row["step"].split("/")[0] for row in rows} == {"0", "1", "2"}
    assert {row["step"] for row in csv.DictReader(io.StringIO(
        cli("explain", "a b c", "--format", "csv").out))} >= {"query", "weights"}  # fmt: skip


def test_numbers_that_are_not_finite(cli, tmp_path):
    path = tmp_path / "bad.json"
    query = [[1.0, 2.0], [0.5, 1.0]]
    path.write_text(json.dumps({"query": query, "key": query, "value": query, "softcap": 3.0}))
    assert cli("explain", "--qkv", path, "--format", "plain").code == 0
    huge = [[1e30, 1e30]]
    path.write_text(json.dumps({"query": huge, "key": huge, "value": huge}))
    done = cli("explain", "--qkv", path, "--format", "plain")
    assert "ω inf" in done.out
    assert "NaN" in done.out
    document = cli("explain", "--qkv", path, "--json").json
    step = next(s for s in document["queries"][0]["steps"] if s["name"] == "omegas")
    assert step["sums"][0]["result"] is None


@pytest.mark.parametrize("format_", FORMATS)
def test_hostile_text(cli, tmp_path, format_):
    path = tmp_path / "hostile.txt"
    path.write_text(HOSTILE, encoding="utf-8")
    done = cli("explain", "--file", path, "--keep-punctuation", "--causal", "--all-queries",
               "--format", format_)  # fmt: skip
    assert done.code == 0, done.err
    assert not CONTROL.search(done.out)
    assert not CONTROL.search(done.err)


@pytest.mark.parametrize("format_", FORMATS)
def test_hostile_pieces(cli, monkeypatch, tmp_path, format_):
    """Whole pieces that attack, as a tokenizer may hold them: none is markup or a command."""
    from attnscope.cli.source import Asked

    pieces = (*HOSTILE.split(" "), "a|b", "line\nbreak", "\x00", "<b>", "`", "x\\")
    monkeypatch.setattr(Asked, "make", lambda *_: handmade.run(pieces=pieces))
    output = tmp_path / "out"
    done = cli("explain", "--all-queries", "--format", format_, "--output", output)
    assert done.code == 0, done.err
    text = output.read_text(encoding="utf-8")
    assert not CONTROL.search(text)
    if format_ == "markdown":
        tokens = MarkdownIt("commonmark").enable("table").parse(text)
        kinds = {t.type for token in tokens for t in [token, *(token.children or [])]}
        allowed = re.compile(
            "(heading|paragraph|table|thead|tbody|tr|th|td|strong)_(open|close)|inline|text|text_special"
        )
        assert all(allowed.fullmatch(kind) for kind in kinds), kinds
        shown = "".join(
            t.content for token in tokens for t in token.children or [] if "text" in t.type
        )
        labels = handmade.run(pieces=pieces).queries.labels
        assert all(label in shown for label in labels)
        cells = [
            len(re.findall(r"(?<!\\)(?:\\\\)*\|", line))
            for block in text.split("\n\n") if block.startswith("| ")
            for line in block.splitlines()
            if line.count("|") and len(block.splitlines()[0].split(" | ")) == 4
        ]  # fmt: skip
        assert set(cells) == {5}  # a pipe in a token adds no cell
        assert "http\\:" in text
        assert "www&#46;" in text


@pytest.mark.parametrize(
    ("name", "method", "heads", "options"),
    [
        ("explain.md", "neg-inf", 1, ("--query", "1", "--flash", "3")),
        ("explain.txt", "neg-inf", 1, ("--query", "2", "--width", "80")),
        ("explain-renormalize.txt", "renormalize", 2, ("--query", "3", "--width", "60")),
    ],
)
def test_golden_files(cli, golden, monkeypatch, tmp_path, name, method, heads, options):
    """A run written by hand, whose numbers no machine computes otherwise."""
    from attnscope.attention.engine import MaskMethod
    from attnscope.cli.source import Asked

    run = handmade.run(MaskMethod(method), heads=heads)
    monkeypatch.setattr(Asked, "make", lambda *_: run)
    output = tmp_path / name
    format_ = () if name.endswith(".md") else ("--format", "table")
    done = cli("explain", *options, *format_, "--output", output)
    assert (done.code, done.out) == (0, "")
    golden(name, output.read_text(encoding="utf-8"))


def test_ending_and_format(cli, tmp_path):
    for name, start in (("a.md", "# query"), ("a.json", "{"), ("a.txt", "query "), ("a.csv", "st")):
        assert cli("explain", "a b", "--output", tmp_path / name).code == 0
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--dims", "0"), "--dims 0 is not positive"),
        (("--flash", "0"), "--flash 0 is not positive"),
        (("--step", "99"), '--step "99" is not a step. Give one of: 1 token, 2 embedding'),
        (("--query", "zz"), '--query "zz" is not a token'),
        (("--query", "6"), "--query 6 is out of range"),
        (("--query", "1", "--all-queries"), "--query and --all-queries contradict each other"),
        (("--head", "1"), "--head 1 is out of range"),
        (("--json", "--format", "markdown"), "--json and --format markdown contradict"),
        (("--format", "html"), "this command writes no html"),
        (("--output", "x.doc"), "has none of the endings"),
        (("--precision", "99"), "--precision 99 is out of range"),
        (("--dims", "many"), "many"),
        (("--qkv", "none.json"), "none.json"),
        (("--variant", "self", "--causal"), "--causal is given"),
    ],
)
def test_wrong_input(cli, arguments, words):
    done = cli("explain", *arguments)
    assert done.code == 2
    assert done.out == ""
    assert words in done.err
    assert done.err.count("\n") == 1


def test_wrong_values_are_found_before_the_work(cli, monkeypatch):
    from attnscope.cli.source import Asked

    monkeypatch.setattr(Asked, "make", lambda *_: pytest.fail("the run was made"))
    for arguments in (("--dims", "0"), ("--flash", "0"), ("--query", "1", "--all-queries")):
        assert cli("explain", *arguments).code == 2


@pytest.mark.parametrize(
    "text", ["- a", "+ a", "= a", "---", "12. a", "3) a", "  - a", "1.", "> a"]
)
def test_a_line_of_markdown_begins_nothing(text):
    from attnscope.views import markdown
    from attnscope.views.look import Look
    from attnscope.views.parts import Line

    tokens = MarkdownIt("commonmark").parse(markdown.render([Line(text)], Look()))
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]


def test_a_head_of_a_model_is_worked_out(cli, tmp_path):
    from tests.sources import tiny_models

    folder = tiny_models.save_decoder(tmp_path / "decoder")
    asked = ("explain", "the cat sat", "--model", folder, "--layer", "1", "--head", "3")
    done = cli(*asked, "--json")
    assert done.code == 0, done.err
    jsonschema.validate(done.json, SCHEMA)
    weights = cli("run", *asked[1:], "--json").json["heads"][0]["weights"][-1]
    (walk,) = done.json["queries"]
    step = next(step for step in walk["steps"] if step["name"] == "weights")
    column = step["tables"][-1]["columns"].index("weight")
    assert [row[column] for row in step["tables"][-1]["values"]] == pytest.approx(weights, abs=1e-6)
    assert "the model computed it" in cli(*asked).out
    for arguments, said in (
        (asked[:4], "a model has many layers"),
        ((*asked[:4], "--layer", "0,1"), "names 2 calls, and one is explained"),
        ((*asked, "--seed", "1"), "--seed is given"),
    ):
        refused = cli(*arguments)
        assert refused.code == 2
        assert said in refused.err
