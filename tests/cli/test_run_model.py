"""`attnscope run --model`: real code of real families, tiny weights."""

import json

import jsonschema
import pytest
import torch

from attnscope.views.schema import SCHEMA
from tests.sources import tiny_models

TEXT = "the cat sat on the mat"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folders of tiny models, by kind."""
    place = tmp_path_factory.mktemp("models")
    return {name: save(place / name) for name, save in tiny_models.FOLDERS.items()}


def eager_weights(folder, text, kind="AutoModelForCausalLM", **inputs):
    """Return the weights that transformers itself gives, (layers, heads, queries, keys)."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = getattr(transformers, kind).from_pretrained(folder, attn_implementation="eager")
    with torch.no_grad():
        return model.eval()(
            **tokenizer(text, return_tensors="pt"), **inputs, output_attentions=True
        )


def weights_of(document):
    return torch.tensor([head["weights"] for head in document["heads"]])


def test_weights_of_a_decoder_equal_eager_attention(cli, models):
    done = cli("run", TEXT, "--model", models["decoder"], "--layer", "1", "--json")
    assert done.code == 0, done.err
    jsonschema.validate(done.json, SCHEMA)
    theirs = eager_weights(models["decoder"], TEXT).attentions[1][0]
    mine = weights_of(done.json)
    assert mine.amax(-1).mean() > 0.3
    torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=0)
    (layer,) = done.json["layers"]
    assert layer["module"] == "model.layers.1.self_attn"
    assert layer["proof"]["holds"] is True
    assert layer["proof"]["relative_error"] < 1e-5
    assert [head["key_head"] for head in done.json["heads"]] == [0, 0, 1, 1]
    assert done.json["settings"]["source"] == "model"


def test_weights_of_an_encoder_mark_special_tokens(cli, models):
    done = cli("run", "a cat", "--model", models["encoder"], "--layer", "0", "--json")
    theirs = eager_weights(models["encoder"], "a cat", "AutoModel").attentions[0][0]
    torch.testing.assert_close(weights_of(done.json), theirs, atol=1e-5, rtol=0)
    marks = [token["mark"] for token in done.json["tokens"]]
    assert marks[0] == marks[-1] == "special"


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_cross_attention_of_an_encoder_decoder(cli, models, family):
    done = cli(
        "run", TEXT, "--model", models[family], "--target", "a dog", "--layer", "cross.1", "--json"
    )
    assert done.code == 0, done.err
    jsonschema.validate(done.json, SCHEMA)
    ids = [token["id"] for token in done.json["tokens"]]
    theirs = eager_weights(
        models[family], TEXT, "AutoModelForSeq2SeqLM", decoder_input_ids=torch.tensor([ids])
    ).cross_attentions[1][0]
    torch.testing.assert_close(weights_of(done.json), theirs, atol=1e-5, rtol=0)
    assert "cat" in done.json["key_text"]
    assert done.json["layers"][0]["part"] == "cross"


def test_without_a_layer_there_is_an_overview(cli, models):
    done = cli("run", TEXT, "--model", models["decoder"], "--width", "100")
    assert done.code == 0
    assert "2 attention layers" in done.out
    assert "model.layers.0.self_attn  4 : 2  causal" in done.out
    assert "proven: every record gives the model's own output" in done.out
    document = cli("run", TEXT, "--model", models["decoder"], "--json").json
    jsonschema.validate(document, SCHEMA)
    assert [layer["name"] for layer in document["layers"]] == ["0", "1"]
    assert all(layer["proof"]["holds"] for layer in document["layers"])
    csv = cli("run", TEXT, "--model", models["decoder"], "--format", "csv").out
    assert csv.startswith("layer,module,heads,")


def test_one_head_as_tables(cli, models):
    done = cli("run", TEXT, "--model", models["decoder"], "--layer", "1", "--head", "3")
    assert "attention weights α · head 3" in done.out
    assert "head 2" not in done.out
    assert "layer 1 · model.layers.1.self_attn · 4 heads, 2 key heads" in done.out
    assert "proven: the record gives" in done.out


def test_a_word_is_found_without_its_space(cli, models):
    document = cli("run", TEXT, "--model", models["decoder"], "--json").json
    (place,) = [t["position"] for t in document["tokens"] if t["source"] == " sat"]
    done = cli("run", TEXT, "--model", models["decoder"], "--layer", "0", "--query", "sat")
    assert done.code == 0, done.err
    assert f"query {place} ␠sat" in done.out


def test_csv_names_the_layer(cli, models):
    done = cli(
        "run", TEXT, "--model", models["decoder"], "--layer", "0,1", "--head", "2", "--format",
        "csv", "--show", "weights",
    )  # fmt: skip
    rows = [line.split(",") for line in done.out.splitlines()]
    assert rows[0][:3] == ["step", "layer", "head"]
    assert {row[1] for row in rows[1:]} == {"0", "1"}
    assert {row[2] for row in rows[1:]} == {"2"}


def test_a_page_holds_every_layer(cli, models, tmp_path):
    page = tmp_path / "page.html"
    assert cli("run", TEXT, "--model", models["decoder"], "-o", page).code == 0
    text = page.read_text(encoding="utf-8")
    assert '"name":"0"' in text
    assert '"name":"1"' in text
    picture = tmp_path / "map.svg"
    done = cli("run", TEXT, "--model", models["decoder"], "--layer", "all", "-o", picture)
    assert done.code == 0
    assert "layer 1, head 3" in picture.read_text(encoding="utf-8")


def test_texts_of_a_batch_equal_the_texts_alone(cli, models, tmp_path):
    lines = ["the cat sat", "a dog ran home; the dog was happy", "the mat"]
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    for kind in ("decoder", "encoder"):
        done = cli(
            "run", "--file", file, "--per-line", "--model", models[kind], "--layer", "1", "--json"
        )
        documents = [json.loads(line) for line in done.out.splitlines()]
        assert [document["text"] for document in documents] == lines
        for document, line in zip(documents, lines, strict=True):
            alone = cli("run", line, "--model", models[kind], "--layer", "1", "--json").json
            assert document["tokens"] == alone["tokens"]
            torch.testing.assert_close(weights_of(document), weights_of(alone), atol=1e-5, rtol=0)
            assert document["layers"][0]["proof"]["holds"]
    both = cli("run", lines[0], "--text", lines[2], "--model", models["decoder"], "--layer", "0")
    assert "text 1 of 2: the cat sat" in both.out
    assert "text 2 of 2: the mat" in both.out


def test_generated_tokens_have_their_attention_too(cli, models):
    done = cli(
        "run", "the cat", "--model", models["decoder"], "--generate", "5", "--layer", "1", "--json"
    )
    assert done.code == 0, done.err
    document = done.json
    before = cli("run", "the cat", "--model", models["decoder"], "--layer", "1", "--json").json
    written = len(document["tokens"]) - len(before["tokens"])
    assert 0 <= written <= 4
    assert f"the model wrote {written + 1} token" in document["notes"][-1]
    ids = torch.tensor([[token["id"] for token in document["tokens"]]])
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(
        models["decoder"], attn_implementation="eager"
    )
    with torch.no_grad():
        theirs = model.eval()(ids, output_attentions=True).attentions[1][0]
    torch.testing.assert_close(weights_of(document), theirs, atol=1e-5, rtol=0)


def test_an_encoder_decoder_writes_with_cross_attention(cli, models):
    done = cli(
        "run", TEXT, "--model", models["t5"], "--generate", "4", "--layer", "cross.0", "--json"
    )
    assert done.code == 0, done.err
    rows, columns = weights_of(done.json).shape[1:]
    assert rows == len(done.json["tokens"])
    assert columns == len(done.json["key_tokens"])


def test_texts_that_end_early_keep_only_their_own_rows(cli, models, tmp_path):
    file = tmp_path / "lines.txt"
    file.write_text("the cat\na dog ran home\n", encoding="utf-8")
    done = cli(
        "run", "--file", file, "--per-line", "--model", models["decoder"], "--generate", "4",
        "--layer", "0", "--json",
    )  # fmt: skip
    for line in done.out.splitlines():
        document = json.loads(line)
        shape = weights_of(document).shape
        assert shape[1] == shape[2] == len(document["tokens"])
        assert document["layers"][0]["proof"]["holds"]


def test_a_chat_template_on_request(cli, models):
    done = cli("run", "the cat", "--model", models["decoder"], "--chat", "--json")
    assert done.json["text"].startswith("<s>user\nthe cat")
    refused = cli("run", "the cat", "--model", models["encoder"], "--chat")
    assert refused.code == 2
    assert "chat template" in refused.err


def test_norms_are_the_lengths_of_what_moves(cli, models):
    done = cli("run", TEXT, "--model", models["decoder"], "--layer", "1", "--norms", "--json")
    jsonschema.validate(done.json, SCHEMA)
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(models["decoder"])
    projection = model.model.layers[1].self_attn.o_proj.weight.detach()  # (d_model, heads·d)
    for number, head in enumerate(done.json["heads"]):
        value, weights = torch.tensor(head["value"]), torch.tensor(head["weights"])
        width = value.shape[1]
        part = projection[:, number * width : (number + 1) * width]
        torch.testing.assert_close(torch.tensor(head["norms"]), weights * value.norm(dim=1))
        torch.testing.assert_close(
            torch.tensor(head["output_norms"]), weights * (value @ part.T).norm(dim=1)
        )
    tables = cli(
        "run", TEXT, "--model", models["decoder"], "--layer", "1", "--norms", "--query", "1"
    ).out
    assert "‖α·v·W_O‖" in tables
    assert "norms" not in cli("run", TEXT, "--json").json["heads"][0]
    assert "‖α·v‖" in cli("run", TEXT, "--norms", "--show", "norms").out


def test_strict_fails_when_a_record_is_not_proven(cli, models, monkeypatch):
    arguments = ("run", TEXT, "--model", models["decoder"], "--strict")
    assert cli(*arguments).code == 0
    monkeypatch.setattr("attnscope.sources.capture.assemble.verify", lambda _: 0.5)
    loose = cli(*arguments[:-1])
    assert loose.code == 0
    assert "layer 0: the record does not reproduce the model's own output" in loose.err
    assert "NOT proven" in loose.out
    done = cli(*arguments)
    assert done.code == 1
    assert "2 of 2 attention calls are not proven: layer 0 has relative error 0.5" in done.err
    assert done.out == loose.out
    document = cli(*arguments[:-1], "--json").json
    assert document["layers"][0]["proof"] == {
        "relative_error": 0.5, "tolerance": 1e-5, "holds": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--layer", "7"), '--layer "7" is no layer with attention. There are: 0, 1; or all'),
        (("--head", "0"), "--head is about weights, and a model has many layers"),
        (("--show", "weights"), "--show is about weights"),
        (("--heatmap",), "--heatmap is about weights"),
        (("--layer", "0", "--head", "9"), "--head 9 is out of range"),
        (("--heads", "2"), "--model brings its own weights and tokenizer, and --heads is given"),
        (("--causal",), "--causal is given"),
        (("--generate", "0"), "--generate 0 is not positive"),
        (("--per-line",), "--per-line without --file"),
        (("--target", "x"), "it takes no target"),
        (("--generate", "99"), "the context of"),
        (("--device", "cuda:99"), "device cuda:99 is not there"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_is_one_line(cli, models, arguments, said):
    done = cli("run", TEXT, "--model", models["decoder"], *arguments)
    assert done.code == 2
    assert said in done.err
    assert done.out == ""
    assert done.err.count("\n") == 1


def test_options_of_models_need_one(cli):
    for arguments in (["--layer", "0"], ["--strict"], ["--text", "b"], ["--chat"], ["--offline"]):
        done = cli("run", "a", *arguments)
        assert done.code == 2
        assert f"{arguments[0]} is about a real model. Name one with --model PATH" in done.err


def test_an_ambiguous_layer_names_the_calls(cli, models):
    done = cli("run", TEXT, "--model", models["t5"], "--target", "a dog", "--layer", "0")
    assert done.code == 2
    assert "encoder.0, decoder.0, cross.0" in done.err


def test_an_empty_line_is_an_error(cli, models, tmp_path):
    file = tmp_path / "lines.txt"
    file.write_text("a\n\nb\n", encoding="utf-8")
    done = cli("run", "--file", file, "--per-line", "--model", models["decoder"])
    assert done.code == 2
    assert "line 2 of" in done.err


def test_half_types_are_proven_with_their_tolerance(cli, models):
    done = cli("run", TEXT, "--model", models["decoder"], "--dtype", "bfloat16", "--json")
    assert done.code == 0, done.err
    assert {layer["proof"]["tolerance"] for layer in done.json["layers"]} == {2e-2}
    assert all(layer["proof"]["holds"] for layer in done.json["layers"])


def test_the_library_runs_a_model_too(models):
    import attnscope

    run = attnscope.run_model(TEXT, models["decoder"], offline=True)
    theirs = eager_weights(models["decoder"], TEXT).attentions[1][0]
    torch.testing.assert_close(run.layer(1).layers[0].weights, theirs, atol=1e-5, rtol=0)
    pair = attnscope.run_model(TEXT, models["t5"], target="a dog", generate=2)
    assert pair.layer(0, "cross").head(1).weights.shape[1] == len(pair.source)
