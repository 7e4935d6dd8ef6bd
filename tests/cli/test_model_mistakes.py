"""Commands about models: what contradicts itself or says nothing is refused, never ignored."""

import json
import shutil

import pytest
import safetensors.torch
import torch

import attnscope
from attnscope.sources.model.error import ModelError, running
from tests.sources import tiny_models

TEXT = "the cat sat on the mat"
LONG = " ".join([TEXT] * 7)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_models.save_decoder(tmp_path_factory.mktemp("models") / "decoder")


def refused(done, *words):
    assert done.code == 2, done.err
    assert not done.out
    assert "Traceback" not in done.err
    for word in words:
        assert word in done.err


def test_an_empty_text_is_not_the_lesson(cli, model):
    refused(cli("explain", "", "--model", model, "--layer", "0"), 'no tokens in ""')


def test_an_empty_layer_is_no_layer(cli, model):
    refused(cli("run", TEXT, "--model", model, "--layer", ""), '--layer ""', "0, 1")
    refused(cli("run", TEXT, "--model", model, "--layer", "", "--measures"), '--layer ""')
    refused(cli("run", TEXT, "--model", model, "--layer", "", "--rows", "0:2"), '--layer ""')


@pytest.mark.parametrize("drawn", [["--heatmap"], ["--format", "svg"], ["--format", "html"]])
def test_heat_maps_have_no_lengths(cli, model, drawn):
    done = cli("run", TEXT, "--model", model, "--layer", "0", "--norms", *drawn)
    refused(done, "--norms", "--format json")


def test_lengths_stand_beside_the_steps_that_are_shown(cli, model):
    asked = ["run", TEXT, "--model", model, "--layer", "0", "--head", "0", "--show", "weights"]
    done = cli(*asked, "--norms")
    assert done.code == 0, done.err
    assert "attention weights" in done.out
    assert "‖α·v‖" in done.out
    assert "‖α·v·W_O‖" in done.out
    assert "‖α·v‖" not in cli(*asked).out


def test_a_summary_says_where_the_lengths_are(cli, model):
    asked = ["run", LONG, "--model", model, "--layer", "0", "--head", "0"]
    assert "--show norms,output-norms" in cli(*asked, "--norms").out
    assert "--show norms,output-norms" not in cli(*asked).out
    shown = cli(*asked, "--norms", "--show", "weights", "--width", "200").out
    assert "‖α·v‖" in shown


def test_measured_texts_have_no_lengths(cli, model):
    done = cli("run", TEXT, "--model", model, "--layer", "0", "--norms", "--max-memory", "9KB")
    refused(done, "--norms", "6 tokens")


@pytest.mark.parametrize("more", [["--text", TEXT], ["--generate", "3"]])
def test_texts_that_are_kept_together_must_fit(cli, model, more):
    asked = ["run", TEXT, "--model", model, *more, "--max-memory"]
    refused(cli(*asked, "8KB"), "need", "--max-memory is 8.0 KB", "shorter texts")
    assert cli(*asked, "80KB").code == 0


def test_a_model_that_fails_as_it_runs_is_one_line(cli, model, monkeypatch):
    def fails(*_):
        return torch.ones(2) + torch.ones(3)

    monkeypatch.setattr("transformers.models.llama.modeling_llama.LlamaMLP.forward", fails)
    for command in (["layers"], ["run", TEXT], ["run", TEXT, "--generate", "2"]):
        done = cli(*command, "--model", model)
        refused(done, "decoder (LlamaForCausalLM) failed as it ran: RuntimeError The size of")
        assert "config.json" in done.err
        assert len(done.err.splitlines()) == 1


def test_layers_without_end_are_not_made(cli, model, tmp_path):
    folder = shutil.copytree(model, tmp_path / "deep")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 20_000}))
    refused(cli("run", TEXT, "--model", folder), "20,000 layers", "num_hidden_layers")


def test_what_is_ours_is_no_fault_of_the_model(cli, model, monkeypatch):
    def broken(_):
        raise RuntimeError("a mistake of attnscope")

    monkeypatch.setattr("attnscope.sources.model.layers.verify", broken)
    with pytest.raises(RuntimeError, match="a mistake of attnscope"):
        cli("layers", "--model", model)


def test_want_of_memory_keeps_its_own_words():
    with pytest.raises(RuntimeError, match="not enough memory"), running("m"):
        raise RuntimeError("not enough memory: you tried to allocate 8 bytes")
    with pytest.raises(ModelError, match="m failed as it ran: ValueError no such"), running("m"):
        raise ValueError("no such thing")


def test_a_proof_that_is_no_number_says_so(cli, model, tmp_path):
    folder = shutil.copytree(model, tmp_path / "broken")
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    weights["model.layers.1.self_attn.q_proj.weight"][:8] = float("nan")
    safetensors.torch.save_file(weights, folder / "model.safetensors", {"format": "pt"})
    done = cli("run", TEXT, "--model", folder, "--strict")
    assert done.code == 1
    assert "layer 1 has relative error NaN, tolerance 1e-05" in done.err
    assert "own output: relative error NaN, tolerance" in done.err
    assert "nan" not in done.err


def test_sorting_by_what_is_not_there_is_said(cli, model):
    done = cli("heads", TEXT, "--model", model, "--sort", "special")
    assert done.code == 0
    assert "note: --sort special changes nothing" in done.err
    assert "note" not in cli("heads", TEXT, "--model", model, "--sort", "first").err


@pytest.mark.parametrize("command", ["heads", "top"])
def test_a_text_of_one_token_has_nothing_but_the_first(cli, model, command):
    token = ["--token", "0"] if command == "top" else []
    done = cli(command, "a", "--model", model, "--no-sink", *token)
    refused(done, "--no-sink leaves nothing of a text of 1 token")


def test_the_first_token_is_not_asked_about_without_it(cli, model):
    asked = ["the cat", "--model", model, "--token", "0", "--no-sink"]
    refused(cli("who", *asked), "--no-sink", '--token "0" is it')
    refused(cli("top", *asked), "--no-sink", 'token "0" sees nothing but the first token')


def test_a_text_without_words_has_no_colon(cli, tmp_path):
    attention, x = torch.nn.MultiheadAttention(8, 2), torch.randn(3, 2, 8)
    with attnscope.capture(attention) as captured:
        attention(x, x, x)
    record = tmp_path / "record.safetensors"
    attnscope.save_record(captured.runs, record)
    done = cli("show", record, "--run", "all", "--format", "plain")
    assert "text 2 of 2\n" in done.out
