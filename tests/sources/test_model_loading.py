"""A model folder or .gguf file is found, checked, loaded and fed; nothing in it ever runs."""

import json
import logging
import pickle
import shutil
import socket
import struct
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from attnscope.errors import (
    DeviceError,
    MissingExtraError,
    OptionError,
    SizeError,
    TextError,
    TokenizerError,
)
from attnscope.sources.model import hub
from attnscope.sources.model.architecture import Kind, choose
from attnscope.sources.model.batch import batch, forward
from attnscope.sources.model.cut import cut
from attnscope.sources.model.error import ModelError
from attnscope.sources.model.generate import continued, generate
from attnscope.sources.model.loaded import load_model
from attnscope.sources.model.place import check_extras, find_model
from attnscope.sources.model.quiet import Bar, quiet
from attnscope.sources.model.size import bytes_of, choose_dtype
from attnscope.sources.model.weights import Weights
from tests.sources import tiny_models as tiny

transformers = tiny.transformers

KINDS = {
    "decoder": Kind.DECODER,
    "encoder": Kind.ENCODER,
    "t5": Kind.ENCODER_DECODER,
    "bart": Kind.ENCODER_DECODER,
}
TEXTS = ["the cat sat", "the cat sat on the mat", "the"]


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*_):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    return {name: save(root / name) for name, save in tiny.FOLDERS.items()}


@pytest.fixture(scope="module")
def loaded(folders):
    return {name: load_model(find_model(str(folder))) for name, folder in folders.items()}


@pytest.fixture
def copy(folders, tmp_path):
    """Return a copy of a model folder to spoil."""

    def make(name="decoder", **config):
        folder = shutil.copytree(folders[name], tmp_path / "m")
        if config:
            edit(folder / "config.json", **config)
        return folder

    return make


def edit(file, **changes):
    settings = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({k: v for k, v in settings.items() if v is not ...}))


def fails(work, *words, kind=ModelError):
    """Assert that one clear line of an error says every one of `words`."""
    with pytest.raises(kind) as caught:
        work()
    line = str(caught.value)
    assert "\n" not in line
    for word in words:
        assert word in line
    assert caught.value.hint
    return line


def finding(path, *words, **options):
    return fails(lambda: find_model(str(path), **options), *words)


# Finding


def test_finding_measures_and_loads_nothing_heavy(folders):
    model = transformers.AutoModelForCausalLM.from_pretrained(folders["decoder"])
    count = sum(p.numel() for p in model.parameters())
    place = find_model(str(folders["decoder"]))
    assert place.weights.numbers == {"float32": count}
    assert place.name == str(folders["decoder"])
    program = (
        "import sys; from attnscope.sources.model.place import find_model; "
        f"find_model({str(folders['decoder'])!r}); "
        "sys.exit(', '.join({'torch', 'transformers', 'huggingface_hub'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_is_not_there(tmp_path):
    finding(tmp_path / "none", "there is no model")
    finding("a\0b", "there is no model a␀b")
    finding("", "empty")
    finding("x" * 5000, "there is no model")
    finding(tmp_path, "has no config.json")
    (tmp_path / "some.gguf").touch()
    finding(tmp_path, "Give the .gguf file itself", "some.gguf")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "config.json").touch()
    finding(tmp_path / "some.txt", "there is no model")
    (tmp_path / "some.txt").touch()
    finding(tmp_path / "some.txt", "neither a model folder nor a .gguf")


def test_the_folder_inside_is_named(tmp_path):
    (tmp_path / "inn\x1ber").mkdir()
    (tmp_path / "inn\x1ber" / "config.json").touch()
    finding(tmp_path, "There is one in: inn␛er")


@pytest.mark.parametrize(
    ("removed", "words"),
    [
        ("config.json", "has no config.json"),
        ("model.safetensors", "has no weights"),
        ("tokenizer.json", "has no tokenizer"),
    ],
)
def test_a_folder_without_a_part(copy, removed, words):
    folder = copy()
    (folder / removed).unlink()
    finding(folder, words)


def test_weights_of_another_name_are_named(copy):
    folder = copy()
    (folder / "model.safetensors").rename(folder / "weights.safetensors")
    finding(folder, "has no weights", "there is weights.safetensors")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", 'has no "model_type"'),
        ("{}", 'has no "model_type"'),
        ('{"model_type": 3}', 'has no "model_type"'),
        ('{"model_type": "llama", "attn_implementation": "a/b"}', "code from the hub: a/b"),
        ('{"model_type": "llama", "text": {"_attn_implementation": "a/b"}}', "code from the hub"),
        ('{"model_type": "llama", "attn_implementation": {"": "a/b"}}', "code from the hub"),
        ('{"model_type": "llama", "experts_implementation": "a/b"}', "code from the hub"),
    ],
)
def test_a_damaged_configuration(copy, text, words):
    folder = copy()
    (folder / "config.json").write_text(text)
    finding(folder, words)


def test_what_brings_code_or_is_no_model(copy):
    folder = copy()
    (folder / "custom_generate").mkdir()
    finding(folder, "custom_generate", "never runs code")
    (folder / "adapter_config.json").write_text("{}")
    finding(folder, "adapter", "merge_and_unload")


def header(entries, length=None, data=8):
    text = json.dumps(entries).encode() if not isinstance(entries, bytes) else entries
    return struct.pack("<Q", len(text) if length is None else length) + text + bytes(data)


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "its header should take 0 bytes, and the file has 0"),
        (b"abc", "the file has 3"),
        (header({}, length=1 << 60), "its header should take"),
        (header(b"{", data=0), "are not JSON"),
        (header([]), "not an object"),
        (header({"w": ENTRY}, data=7), "promises 8 bytes of weights, and there are 7"),
        (header({"w": ENTRY}, data=9), "there are 9"),
        (header({"w": ENTRY | {"shape": [3]}}), "of shape [3] as F32 does not take 8 bytes"),
        (header({"\x1bw": {}}), "its entry for ␛w"),
        (header({"w": ENTRY | {"dtype": []}}), "its entry for w"),
        (header({"w": ENTRY | {"data_offsets": [8, 0]}}), "its entry for w"),
        (b"version https://git-lfs.github.com/spec/v1\noid 1", "Git LFS pointer"),
    ],
)
def test_a_damaged_safetensors_file(copy, data, words):
    folder = copy()
    (folder / "model.safetensors").write_bytes(data)
    finding(folder, words, "model.safetensors")


def test_shards_are_all_there(copy):
    folder = copy()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="20KB")
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 1
    place = find_model(str(folder))
    assert place.weights.files == tuple(shards)
    assert sum(place.weights.numbers.values()) == sum(p.numel() for p in model.parameters())
    again = load_model(place).model
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), model.parameters(), strict=1))
    shards[0].unlink()
    finding(folder, shards[0].name, "is missing")
    index = folder / "model.safetensors.index.json"
    for text in ("{}", "[]", '{"weight_map": {}}', '{"weight_map": {"a": "../b.safetensors"}}'):
        index.write_text(text)
        finding(folder, "is not an index")


# .gguf files


@pytest.fixture
def gguf_installed(monkeypatch):
    """Pretend that what .gguf files need is installed: their header is read without it."""
    monkeypatch.setattr("attnscope.sources.model.place.check_extras", lambda *_: None)


def gguf_file(tmp_path, **parts):
    file = tmp_path / "m.gguf"
    metadata = [
        ("general.architecture", 8, struct.pack("<Q", 5) + b"llama"),
        ("llama.block_count", 4, struct.pack("<I", 7)),
        ("some.numbers", 9, struct.pack("<IQ", 6, 3) + bytes(12)),
        tiny.tokens_of_gguf("a", "b"),
    ]
    given = {"metadata": metadata, "tensors": [("w", (3, 4)), ("b", (5,))]} | parts
    file.write_bytes(tiny.gguf_bytes(**given))
    return file


@pytest.mark.usefixtures("gguf_installed")
def test_a_gguf_header_is_read(tmp_path):
    place = find_model(str(gguf_file(tmp_path)))
    assert place.is_gguf
    assert place.weights.numbers == {"float32": 17}
    assert place.config["general.architecture"] == "llama"
    assert place.config["llama.block_count"] == 7
    assert place.config["tokenizer.ggml.tokens"] == 2


@pytest.mark.usefixtures("gguf_installed")
@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"magic": b"GGML"}, "is not a GGUF file"),
        ({"version": 1}, "GGUF version 1"),
        ({"data": 0}, "cut short"),
        ({"tensors": ()}, "has no weights"),
        ({"metadata": ()}, "has no tokenizer"),
        ({"metadata": [("a", 77, b"")]}, "unknown type 77"),
        ({"metadata": [("a", 8, struct.pack("<Q", 1 << 60))]}, "damaged or cut short"),
        ({"metadata": [("a", 9, struct.pack("<IQ", 8, 1 << 60))]}, "damaged or cut short"),
        ({"metadata": [("a", 9, struct.pack("<IQ", 0, 1 << 63))]}, "damaged or cut short"),
        ({"metadata": [("a", 9, struct.pack("<IQ", 9, 1) * 9999)]}, "damaged or cut short"),
        ({"metadata": [("split.count", 2, struct.pack("<H", 3))]}, "one of 3 parts"),
    ],
)
def test_a_damaged_gguf_file(tmp_path, parts, words):
    finding(gguf_file(tmp_path, **parts), words, "m.gguf")


@pytest.mark.usefixtures("gguf_installed")
def test_a_gguf_that_git_did_not_fetch(tmp_path):
    (tmp_path / "m.gguf").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    finding(tmp_path / "m.gguf", "Git LFS pointer")


# What must be installed


@pytest.mark.parametrize("missing", ["transformers", "gguf", "accelerate"])
def test_a_missing_extra_is_named(tmp_path, folders, monkeypatch, missing):
    there = {"transformers", "gguf", "accelerate"} - {missing}
    monkeypatch.setattr("importlib.util.find_spec", lambda module: module in there or None)
    path = folders["decoder"] if missing == "transformers" else gguf_file(tmp_path)
    with pytest.raises(MissingExtraError, match=f"{missing} is not installed") as caught:
        find_model(str(path))
    assert caught.value.hint == 'Install the extra: pip install "attnscope[models]"'


def test_an_old_transformers_is_refused(monkeypatch):
    monkeypatch.setattr("attnscope.sources.model.place.version", lambda _: "4.57.1")
    with pytest.raises(MissingExtraError, match=r"transformers 4\.57\.1 .* 5\.1 or newer"):
        check_extras("transformers")


# Names of the hub


@pytest.fixture
def hub_cache(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.file_download.HF_HUB_CACHE", None, raising=False)
    return tmp_path / "cache"


@pytest.mark.parametrize("path", ["a", "/a/b", "./a/b", "a/b/c", "-a/b", "a/b c", "a\\b", "~/a"])
def test_what_is_no_hub_name(path, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    finding(path, "there is no model")


def test_a_mistyped_path_is_no_hub_name(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert hub.is_name("models/none")
    (tmp_path / "models").mkdir()
    finding("models/none", "there is no model")


@pytest.mark.usefixtures("hub_cache")
def test_a_hub_name_is_not_asked_for_before_loading():
    assert find_model("owner/name").path is None
    finding("owner/name", "local cache", "--offline", offline=True)


@pytest.mark.usefixtures("hub_cache")
def test_the_environment_may_switch_the_hub_off(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    finding("owner/name", "local cache")


def test_a_cached_hub_model_is_found_offline(hub_cache, folders):
    repository = hub_cache / "models--owner--name"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc")
    shutil.copytree(folders["encoder"], repository / "snapshots" / "abc")
    place = find_model("owner/name", offline=True)
    assert place.name == "owner/name"
    assert load_model(place).kind is Kind.ENCODER


@pytest.mark.usefixtures("hub_cache")
def test_fetching_takes_no_code(monkeypatch, folders):
    asked = []
    files = ["config.json", "model.safetensors", "pytorch_model.bin", "modeling_x.py", "a/b.json"]

    def snapshot(_, allow_patterns):
        asked.extend(allow_patterns)
        return str(folders["encoder"])

    monkeypatch.setattr(
        "huggingface_hub.hf_hub_download", lambda *_: str(folders["encoder"] / "config.json")
    )
    monkeypatch.setattr("huggingface_hub.list_repo_files", lambda _: files)
    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    place = find_model("owner/name")
    assert load_model(place).name == "owner/name"
    assert asked == ["model.safetensors", "config.json"]
    files.remove("model.safetensors")
    asked.clear()
    hub.fetch("owner/name")
    assert asked == ["pytorch_model.bin", "config.json"]


@pytest.mark.usefixtures("hub_cache")
def test_code_of_a_hub_model_is_refused_before_its_weights_come(monkeypatch, copy):
    folder = copy(model_type="mine", auto_map={"AutoModel": "mine.Mine"})
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda *_: str(folder / "config.json"))
    fails(lambda: load_model(find_model("owner/name")), "never runs code")


@pytest.mark.usefixtures("hub_cache")
def test_mistakes_are_found_before_the_hub_is_asked():
    place = find_model("owner/name")
    fails(lambda: load_model(place, dtype="int3"), "unknown dtype", kind=OptionError)
    fails(lambda: load_model(place, device="abacus"), "no device", kind=DeviceError)


@pytest.mark.usefixtures("hub_cache")
def test_no_network_is_one_clear_line():
    fails(lambda: load_model(find_model("owner/name")), "model owner/name of the hub", "network")


# Loading


@pytest.mark.parametrize("name", KINDS)
def test_a_model_is_loaded_as_it_is(loaded, folders, name):
    mine = loaded[name]
    opened = getattr(transformers, type(mine.model).__name__)
    reference = opened.from_pretrained(folders[name]).eval()
    assert mine.kind is KINDS[name]
    assert mine.notes == ()
    assert mine.context_length == (None if name == "t5" else 64)
    assert not mine.model.training
    assert not any(p.requires_grad for p in mine.model.parameters())
    assert mine.model.config._attn_implementation == reference.config._attn_implementation
    inputs = batch(mine, [cut(mine, TEXTS[0])]).inputs
    with torch.no_grad():
        wanted = reference(**inputs, **({"logits_to_keep": 1} if name == "decoder" else {}))[0]
    assert torch.equal(forward(mine, batch(mine, [cut(mine, TEXTS[0])]))[0], wanted)


def test_loading_is_silent_and_leaves_no_trace(folders, capfd):
    bars, log = transformers.utils.logging, logging.getLogger("transformers")
    state = [torch.get_rng_state(), log.level, bars.is_progress_bar_enabled(), warnings.filters[:]]
    heard = []
    load_model(find_model(str(folders["decoder"])), progress=lambda *what: heard.append(what))
    after = [torch.get_rng_state(), log.level, bars.is_progress_bar_enabled(), warnings.filters[:]]
    assert torch.equal(state[0], after[0])
    assert state[1:] == after[1:]
    out, err = capfd.readouterr()
    assert out == err == ""
    assert ("reading the tokenizer", None) in heard
    shares = [share for doing, share in heard if doing == "reading the weights"]
    assert shares == sorted(shares)
    assert shares[0] == 0.0
    assert shares[-1] == 1.0
    assert len(shares) > 10


@pytest.mark.parametrize("enabled", [True, False])
def test_the_bars_of_others_are_restored(enabled):
    bars = transformers.utils.logging
    before = bars.is_progress_bar_enabled()
    try:
        (bars.enable_progress_bar if enabled else bars.disable_progress_bar)()
        with quiet(lambda *_: None, "x"):
            assert not bars.is_progress_bar_enabled()
        assert bars.is_progress_bar_enabled() is enabled
    finally:
        (bars.enable_progress_bar if before else bars.disable_progress_bar)()


@pytest.mark.parametrize("name", ["transformers", "huggingface_hub", "accelerate", "gguf"])
def test_the_logs_of_others_are_restored(name):
    log, below = logging.getLogger(name), logging.getLogger(f"{name}.inner")
    before = log.level
    try:
        log.setLevel(logging.WARNING)
        with quiet():
            assert not below.isEnabledFor(logging.CRITICAL)
            warnings.warn("nobody hears this", stacklevel=1)
        assert log.level == logging.WARNING
    finally:
        log.setLevel(before)


def test_a_bar_counts():
    heard = []
    bar = Bar(lambda *what: heard.append(what), "x", total=4)
    with bar:
        bar.set_postfix(a=1)
        bar.update(2)
        bar.update(9)
    assert heard == [("x", 0.5), ("x", 1.0)]
    assert list(Bar(lambda *what: heard.append(what), "y", iter("ab"))) == ["a", "b"]
    assert heard[-1] == ("y", None)


def loading(folder, *words, kind=ModelError, **options):
    return fails(lambda: load_model(find_model(str(folder)), **options), *words, kind=kind)


def test_unknown_architectures_and_remote_code(copy):
    folder = copy(model_type="mi\x1bne", architectures=["Mine"])
    loading(folder, 'does not know the architecture "mi␛ne"', "attnscope.capture")
    edit(folder / "config.json", auto_map={"AutoConfig": "code.Mine", "AutoModel": "code.Mine"})
    (folder / "code.py").write_text(f"open({str(folder / 'ran')!r}, 'w')")
    loading(folder, "is code in the model folder", "attnscope never runs code from a model folder")
    assert not (folder / "ran").exists()


def test_known_architectures_need_no_code_of_the_folder(copy):
    folder = copy(auto_map={"AutoModelForCausalLM": "code.Mine"})
    (folder / "code.py").write_text(f"open({str(folder / 'ran')!r}, 'w')")
    assert type(load_model(find_model(str(folder))).model).__name__ == "LlamaForCausalLM"
    assert not (folder / "ran").exists()


@pytest.mark.parametrize(
    ("config", "architecture", "words"),
    [
        ("ViTConfig", "ViTModel", "pixel_values"),
        ("WhisperConfig", "WhisperForConditionalGeneration", "input_features"),
        ("CLIPConfig", "CLIPModel", "image and text"),
    ],
)
def test_models_that_read_no_text(config, architecture, words):
    made = getattr(transformers, config)(architectures=[architecture])
    fails(lambda: choose(made, "m"), "is not text", words, "attnscope.capture")


def test_the_main_input_says_enough(monkeypatch):
    monkeypatch.setattr(transformers.ViTModel, "input_modalities", "text")
    made = transformers.ViTConfig(architectures=["ViTModel"])
    fails(lambda: choose(made, "m"), "is not text", "pixel_values")


@pytest.mark.parametrize(
    ("config", "architectures", "auto_class", "kind"),
    [
        ("GPT2Config", ["GPT2LMHeadModel"], "AutoModelForCausalLM", Kind.DECODER),
        ("GPT2Config", None, "AutoModelForCausalLM", Kind.DECODER),
        ("GPT2Config", ["GPT2Model"], "AutoModel", Kind.DECODER),
        ("LlamaConfig", ["LlamaForSequenceClassification"], "AutoModel", Kind.DECODER),
        ("BertConfig", ["BertForMaskedLM"], "AutoModel", Kind.ENCODER),
        ("BertConfig", None, "AutoModel", Kind.ENCODER),
        ("BertConfig", ["BertLMHeadModel"], "AutoModelForCausalLM", Kind.DECODER),
        ("AlbertConfig", ["AlbertForMaskedLM"], "AutoModel", Kind.ENCODER),
        ("MarianConfig", ["MarianMTModel"], "AutoModelForSeq2SeqLM", Kind.ENCODER_DECODER),
        ("T5Config", None, "AutoModelForSeq2SeqLM", Kind.ENCODER_DECODER),
        ("T5Config", ["T5EncoderModel"], "AutoModelForTextEncoding", Kind.ENCODER),
        ("BartConfig", ["BartModel"], "AutoModel", Kind.ENCODER_DECODER),
        ("BartConfig", ["BartForCausalLM"], "AutoModelForCausalLM", Kind.DECODER),
        ("Gemma3Config", ["Gemma3ForConditionalGeneration"], "AutoModelForCausalLM", Kind.DECODER),
    ],
)
def test_the_class_that_opens_a_model(config, architectures, auto_class, kind):
    found = choose(getattr(transformers, config)(architectures=architectures), "m")
    assert found.auto_class is getattr(transformers, auto_class)
    assert found.kind is kind


def save_weights(folder, state):
    from safetensors.torch import save_file

    save_file({k: v.contiguous() for k, v in state.items()}, folder / "model.safetensors")


def test_weights_that_would_be_drawn_at_random_are_an_error(copy, loaded):
    folder = copy()
    state = tiny.state_of(loaded["decoder"].model)
    gone = "model.layers.1.self_attn.k_proj.weight"
    save_weights(folder, {k: v for k, v in state.items() if k != gone})
    loading(folder, "lacks 1 weight", gone, "random")
    save_weights(folder, state | {gone: torch.zeros(3, 3)})
    loading(folder, gone, "has shape (3, 3)", "needs (16, 32)")


def test_weights_that_attention_does_not_need_are_a_note(copy, loaded):
    folder = copy("encoder", architectures=["BertForMaskedLM"])
    state = tiny.state_of(loaded["encoder"].model)
    body = {f"bert.{k}": v for k, v in state.items() if "pooler" not in k}
    save_weights(folder, body | {"cls.predictions.bi\x1bas": torch.zeros(3)})
    random = torch.get_rng_state()
    mine = load_model(find_model(str(folder)))
    assert torch.equal(random, torch.get_rng_state())
    missing, unused = mine.notes
    assert "lack 2 weights (pooler" in missing
    assert "BertModel does not use 1 weight (cls.predictions.bi␛as)" in unused
    tokens = cut(mine, TEXTS[1])
    same = [forward(m, batch(m, [tokens])).last_hidden_state for m in (mine, loaded["encoder"])]
    assert torch.equal(*same)


def test_pickled_weights_are_read_but_never_run(copy, loaded, tmp_path):
    folder = copy()
    state = tiny.state_of(loaded["decoder"].model)
    (folder / "model.safetensors").unlink()
    torch.save(state, folder / "pytorch_model.bin")
    place = find_model(str(folder))
    assert place.weights.stored == "float32"
    assert torch.equal(
        load_model(place).model.lm_head.weight, loaded["decoder"].model.lm_head.weight
    )
    target = tmp_path / "ran"
    evil = state | {"model.norm.weight": tiny.Payload(target)}
    for save in (torch.save, lambda x, file: Path(file).write_bytes(pickle.dumps(x))):
        save(evil, folder / "pytorch_model.bin")
        line = loading(folder, "holds code", "safetensors")
        assert "weights_only=False" not in line
    assert not target.exists()
    pickle.loads((folder / "pytorch_model.bin").read_bytes())
    assert target.exists()  # it works, but nobody ran it


def test_a_damaged_tokenizer_is_one_clear_line(copy):
    folder = copy()
    (folder / "tokenizer.json").write_text('{"model": ')
    loading(folder, "the tokenizer of", "tokenizer.json")


def test_a_tokenizer_without_vocabulary(copy):
    folder = copy()
    file = folder / "tokenizer.json"
    settings = json.loads(file.read_text())
    settings["model"] |= {"vocab": {}, "merges": []}
    file.write_text(json.dumps(settings))
    loading(folder, "knows no tokens", kind=TokenizerError)


def test_devices_and_dtypes(folders, copy):
    loading(folders["decoder"], "no device", kind=DeviceError, device="abacus")
    loading(folders["decoder"], "unknown dtype", kind=OptionError, dtype="int3")
    half = load_model(find_model(str(folders["decoder"])), dtype="bfloat16")
    assert half.dtype is half.model.dtype is torch.bfloat16
    folder = copy()
    half.model.save_pretrained(folder)
    place = find_model(str(folder))
    assert place.weights.stored == "bfloat16"
    assert load_model(place).model.dtype is torch.float32


@pytest.mark.parametrize(
    ("stored", "device", "wanted"),
    [
        ("float16", "cpu", torch.float32),
        ("float64", "cpu", torch.float64),
        ("bfloat16", "cuda", torch.bfloat16),
        ("float64", "mps", torch.float32),
        (None, "cuda", torch.float32),
    ],
)
def test_the_dtype_without_a_wish(stored, device, wanted):
    weights = Weights((), {stored: 5} if stored else {})
    assert choose_dtype(None, weights, torch.device(device)) is wanted


def test_bytes_are_counted_in_the_dtype_of_the_run():
    weights = Weights((), {"float16": 100, "float32": 10}, other_bytes=7)
    assert bytes_of(weights, torch.float32) == 447
    assert bytes_of(weights, torch.bfloat16) == 227
    assert bytes_of(weights, torch.float32, quantised=True) == 247


def test_a_model_too_large_is_refused_before_it_is_read(folders, monkeypatch):
    place = find_model(str(folders["decoder"]))
    needed = bytes_of(place.weights, torch.float32)
    monkeypatch.setattr("attnscope.attention.device.free_bytes", lambda: needed - 1)
    monkeypatch.setattr(transformers.PreTrainedModel, "from_pretrained", None)
    line = loading(folders["decoder"], "GB", "as float32", "--dtype bfloat16", kind=SizeError)
    assert "fewer heads" not in line
    with pytest.raises(ModelError):  # half as many bytes fit: reading began
        load_model(place, dtype="bfloat16")


def test_running_out_of_memory_is_said(folders, monkeypatch):
    def full(*_, **__):
        raise torch.OutOfMemoryError("no")

    monkeypatch.setattr(transformers.PreTrainedModel, "from_pretrained", full)
    loading(folders["decoder"], "not enough memory", kind=SizeError)


# Cutting


@pytest.mark.parametrize("name", KINDS)
def test_texts_are_cut_as_the_model_cuts_them(loaded, name):
    mine = loaded[name]
    text = "The cat  sat, é 猫 \x1b"
    tokens = cut(mine, text)
    reference = mine.tokenizer(text, return_offsets_mapping=True)
    assert list(tokens.ids) == reference["input_ids"]
    assert tokens.text == text
    assert len(tokens) == len(tokens.labels) == len(tokens.spans) == len(tokens.special)
    assert "\x1b" not in "".join(tokens.labels)
    put_in = [i for i, mark in enumerate(tokens.special) if mark and not tokens.unknown[i]]
    ends = {"decoder": [], "encoder": [0, -1], "t5": [-1], "bart": [0, -1]}[name]
    assert put_in == [i % len(tokens) for i in ends]
    bare = cut(mine, text, add_special=False)
    assert bare.ids == tuple(t for i, t in enumerate(tokens.ids) if i not in put_in)
    assert tokens.vocabulary.complete
    assert tokens.vocabulary.entries == mine.tokenizer.get_vocab()
    assert tokens.vocabulary.rows == len(mine.tokenizer)


def test_labels_and_spans(loaded):
    tokens = cut(loaded["encoder"], "The CATS dog")
    assert tokens.labels == ("[CLS]", "the", "cat", "##s", "[UNK] dog", "[SEP]")
    assert tokens.unknown == (False, False, False, False, True, False)
    assert tokens.special == (True, False, False, False, True, True)
    assert [tokens.source(i) for i in range(6)] == ["", "The", "CAT", "S", "dog", ""]
    tokens = cut(loaded["bart"], "the  cat 猫犬")
    assert tokens.labels[:5] == ("<s>", "the", "␠", "␠cat", "␠猫")
    assert tokens.labels[5:] == ("⟨E7⟩", "⟨8A⟩", "⟨AC⟩", "</s>")
    assert tokens.source(2) == " "


def test_spaces_keep_their_spans(copy):
    folder = copy("bart")
    file = folder / "tokenizer.json"
    settings = json.loads(file.read_text())
    inner = settings["post_processor"]
    trimming = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}
    for ending in (
        {"type": "Sequence", "processors": [trimming | {"use_regex": True}, inner]},
        {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1]}
        | {"trim_offsets": True, "add_prefix_space": True},
    ):
        file.write_text(json.dumps(settings | {"post_processor": ending}))
        mine = load_model(find_model(str(folder)))
        tokens = cut(mine, "a  b")
        assert [tokens.source(i) for i in range(len(tokens))] == ["", "a", " ", " ", "b", ""]


def test_what_a_tokenizer_puts_in_is_special_and_what_it_knows_is_not_unknown(copy):
    folder = copy("bart")
    file = folder / "tokenizer.json"
    settings = json.loads(file.read_text())
    number = settings["model"]["vocab"]["the"]
    first = settings["post_processor"]["single"][0]["SpecialToken"]
    first["id"] = "the"
    marks = settings["post_processor"]["special_tokens"]
    marks["the"] = {"id": "the", "ids": [number], "tokens": ["the"]}
    added = settings["added_tokens"][0] | {"id": 100, "special": False}
    settings["model"]["vocab"] = {
        "a\x1bb" if i == 100 else piece: i for piece, i in settings["model"]["vocab"].items()
    }
    settings["model"]["merges"] = []
    settings["added_tokens"].append(added | {"content": "a\x1bb"})
    file.write_text(json.dumps(settings))
    edit(folder / "tokenizer_config.json", unk_token="</s>")
    mine = load_model(find_model(str(folder)))
    tokens = cut(mine, "a\x1bb!")
    assert tokens.labels == ("the", "a␛b", "!", "</s>")
    assert tokens.special == (True, False, False, True)
    assert tokens.unknown == (False,) * 4


def test_nothing_is_cut_off_or_filled_in(copy):
    folder = copy()
    file = folder / "tokenizer.json"
    padding = {"strategy": {"Fixed": 32}, "direction": "Right", "pad_to_multiple_of": None}
    padding |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "<pad>"}
    truncation = {"max_length": 2, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    edit(file, padding=padding, truncation=truncation)
    mine = load_model(find_model(str(folder)))
    tokens = cut(mine, TEXTS[1])
    assert mine.tokenizer.decode(tokens.ids) == TEXTS[1]


def test_texts_that_do_not_fit(loaded):
    mine = loaded["decoder"]
    long = "~" * 65
    count = len(mine.tokenizer(long)["input_ids"])
    assert count > 64
    fails(
        lambda: cut(mine, long),
        f"{count} tokens",
        f"{mine.name} is 64",
        "none is cut",
        kind=TextError,
    )
    text = "~" * 30
    count = len(mine.tokenizer(text)["input_ids"])
    assert cut(mine, text, generate=64 - count)
    fails(
        lambda: cut(mine, text, generate=65 - count),
        f"{count} tokens",
        "they are 65",
        f"at most {64 - count}",
        kind=TextError,
    )
    assert cut(loaded["bart"], "~" * 30, generate=60)  # written elsewhere than it is read
    assert cut(loaded["t5"], "~" * 500)  # positions without end


def test_texts_without_tokens_or_unicode(loaded):
    fails(lambda: cut(loaded["decoder"], ""), "no tokens", kind=TextError)
    fails(lambda: cut(loaded["decoder"], "a\ud800"), "surrogate", kind=TextError)
    assert len(cut(loaded["encoder"], "")) == 2


def test_a_chat_template_on_request(loaded, copy):
    mine = loaded["decoder"]
    tokens = cut(mine, "hi", chat=True)
    assert tokens.text == "<s>user\nhi</s>\n<s>assistant\n"
    assert tokens.labels[0] == "<s>"
    assert [label for label, s in zip(tokens.labels, tokens.special, strict=True) if s] == [
        "<s>",
        "</s>",
        "<s>",
    ]
    assert "".join(tokens.source(i) for i in range(len(tokens))) == tokens.text
    fails(lambda: cut(loaded["bart"], "hi", chat=True), "has no chat template", kind=OptionError)
    folder = copy("bart")
    (folder / "chat_template.jinja").write_text(tiny.CHAT)
    framed = cut(load_model(find_model(str(folder))), "hi", chat=True)
    assert framed.labels.count("<s>") == 2  # the template puts in all there is
    (folder / "chat_template.jinja").write_text("{{ raise_exception('not\x1b me') }}")
    broken = load_model(find_model(str(folder)))
    fails(lambda: cut(broken, "hi", chat=True), "not␛ me", kind=TokenizerError)


def test_a_tokenizer_of_another_model(copy):
    folder = copy()
    file = folder / "tokenizer.json"
    settings = json.loads(file.read_text())
    added = settings["added_tokens"][0] | {"id": 4000, "content": "<far>", "special": False}
    file.write_text(json.dumps(settings | {"added_tokens": [*settings["added_tokens"], added]}))
    mine = load_model(find_model(str(folder)))
    assert cut(mine, "the cat")
    fails(lambda: cut(mine, "the <far>"), "<far>", "embeddings", "belongs to the model")


def test_a_tokenizer_that_cannot_tell_where_pieces_come_from(copy):
    folder = copy("t5")
    for file in folder.glob("token*"):
        file.unlink()
    transformers.ByT5Tokenizer().save_pretrained(folder)
    (folder / "tokenizer.json").unlink(missing_ok=True)
    mine = load_model(find_model(str(folder)))
    tokens = cut(mine, "é a", add_special=False)
    assert len(tokens) == 4
    assert set(tokens.spans) == {(0, 0)}
    assert tokens.special == (False,) * 4


def test_roberta_counts_positions_after_its_padding(tmp_path):
    config = transformers.RobertaConfig(
        **tiny.BODY | {"vocab_size": 400, "pad_token_id": 1, "max_position_embeddings": 12}
    )
    folder = tiny.save(
        tmp_path / "roberta",
        transformers.RobertaModel(config),
        tiny.byte_level("<s>", "</s>"),
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
    )
    mine = load_model(find_model(str(folder)))
    assert mine.context_length == 10
    tokens = cut(mine, "~" * 8)
    assert len(tokens) == 10
    assert forward(mine, batch(mine, [tokens])).last_hidden_state.shape[1] == 10


# Batches


def states(mine, tokens, targets=None):
    """Return for each text of a batch what the last layer (of the decoder) says of its tokens."""
    made = batch(mine, tokens, targets)
    with torch.no_grad():
        out = mine.model(**made.inputs, output_hidden_states=True, use_cache=False)
    if mine.kind is Kind.ENCODER_DECODER:
        hidden, rows = out.decoder_hidden_states[-1], made.targets
        starts = (0,) * len(rows)
    else:
        hidden, rows, starts = out.hidden_states[-1], made.texts, made.starts
    return [h[s : s + len(row)] for h, row, s in zip(hidden, rows, starts, strict=True)]


@pytest.mark.parametrize("name", KINDS)
def test_padding_changes_no_number(loaded, name):
    mine = loaded[name]
    tokens = [cut(mine, text) for text in TEXTS]
    targets = [cut(mine, text, target=True) for text in reversed(TEXTS[1:] + TEXTS[:1])]
    if KINDS[name] is not Kind.ENCODER_DECODER:
        targets = None
    together = states(mine, tokens, targets)
    for i, text in enumerate(tokens):
        (alone,) = states(mine, [text], targets and [targets[i]])
        assert alone.abs().max() > 0.1
        torch.testing.assert_close(together[i], alone, atol=1e-5, rtol=1e-5)


def test_decoders_are_filled_on_the_left_and_others_on_the_right(loaded):
    mine = loaded["decoder"]
    short, long = cut(mine, TEXTS[2]), cut(mine, TEXTS[1])
    made = batch(mine, [short, long])
    gap = len(long) - len(short)
    assert made.starts == (gap, 0)
    assert made.lengths == (len(short), len(long))
    assert made.inputs["attention_mask"][0].tolist() == [0] * gap + [1] * len(short)
    assert made.inputs["position_ids"][0].tolist() == [0] * gap + list(range(len(short)))
    assert made.inputs["input_ids"][0, gap:].tolist() == list(short.ids)
    other = loaded["encoder"]
    made = batch(other, [cut(other, TEXTS[2]), cut(other, TEXTS[1])])
    assert made.starts == (0, 0)
    assert made.inputs["attention_mask"][0].tolist() == [1, 1, 1, 0, 0, 0, 0, 0]
    assert set(made.inputs) == {"input_ids", "attention_mask"}
    assert set(batch(mine, [long]).inputs) == {"input_ids"}
    assert set(batch(mine, [long, long]).inputs) == {"input_ids"}


def test_a_decoder_that_counts_positions_itself_is_filled_on_the_right(copy):
    folder = copy("bart")
    model = transformers.BartForCausalLM.from_pretrained(folder)
    tiny.redrawn(model, 0.35).save_pretrained(folder)
    mine = load_model(find_model(str(folder)))
    assert mine.kind is Kind.DECODER
    tokens = [cut(mine, text) for text in TEXTS]
    assert batch(mine, tokens).starts == (0, 0, 0)
    for together, text in zip(states(mine, tokens), tokens, strict=True):
        torch.testing.assert_close(together, states(mine, [text])[0], atol=1e-5, rtol=1e-5)
    words = ("cannot be continued together by BartForCausalLM", "one at a time")
    fails(lambda: generate(mine, batch(mine, tokens), 2), *words, kind=OptionError)
    assert generate(mine, batch(mine, tokens[:1]), 2).ids.shape[0] == 1


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_a_decoder_reads_targets_as_the_model_shifts_them(loaded, name):
    mine = loaded[name]
    source, target = cut(mine, TEXTS[0]), cut(mine, TEXTS[1], target=True)
    made = batch(mine, [source], [target])
    labels = torch.tensor([target.ids])
    shifted = mine.model.prepare_decoder_input_ids_from_labels(labels=labels)
    assert made.inputs["decoder_input_ids"].tolist() == shifted.tolist()
    (row,) = made.targets
    assert row.ids == tuple(shifted[0].tolist())
    assert row.labels[0] == {"t5": "<pad>", "bart": "</s>"}[name]
    assert row.special[0]
    assert row.labels[1:] == target.labels[:-1]
    assert made.target_lengths == (len(target),)
    bare = cut(mine, TEXTS[1], add_special=False)
    assert batch(mine, [source], [bare]).targets[0].ids[1:] == bare.ids
    alone = batch(mine, [source, source])
    assert alone.inputs["decoder_input_ids"].tolist() == [[row.ids[0]]] * 2
    uneven = batch(mine, [source, source], [target, bare])
    assert "decoder_attention_mask" not in batch(mine, [source], [target]).inputs
    assert ("decoder_attention_mask" in uneven.inputs) is (len(set(uneven.target_lengths)) > 1)


def test_batches_that_make_no_sense(loaded):
    decoder, bart = loaded["decoder"], loaded["bart"]
    text = cut(decoder, "the")
    fails(lambda: batch(decoder, []), "no text", kind=OptionError)
    fails(lambda: batch(decoder, [text], [text]), "a decoder", "no target", kind=OptionError)
    source = cut(bart, "the")
    fails(lambda: batch(bart, [source], []), "1 texts and 0 targets", kind=OptionError)
    long = cut(loaded["t5"], "~" * 70)
    fails(lambda: batch(bart, [source], [long]), "is 64", "target", kind=TextError)


def test_a_run_keeps_and_scores_no_more_than_needed(loaded):
    for name, mine in loaded.items():
        out = forward(mine, batch(mine, [cut(mine, TEXTS[1])]))
        assert out.get("past_key_values") is None
        if name == "decoder":
            assert out.logits.shape[1] == 1
        assert not out[0].requires_grad


# Writing


def test_writing_takes_the_likeliest_token(loaded):
    mine = loaded["decoder"]
    tokens = [cut(mine, text) for text in TEXTS]
    made = generate(mine, batch(mine, tokens), 6)
    for i, text in enumerate(tokens):
        by_hand = tiny.greedy(mine.model, list(text.ids), 6)
        assert list(made.written(i)) == by_hand[: made.lengths[i]]
        alone = generate(mine, batch(mine, [text]), 6)
        assert alone.written(0) == made.written(i)
    assert torch.equal(generate(mine, batch(mine, tokens), 6).ids, made.ids)


def test_saved_settings_for_sampling_are_not_followed(copy, capfd):
    folder = copy()
    settings = {"do_sample": True, "temperature": 5.0, "top_p": 0.5, "repetition_penalty": 9.0}
    settings |= {"num_beams": 3, "no_repeat_ngram_size": 1, "eos_token_id": 2, "max_length": 3}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    mine = load_model(find_model(str(folder)))
    tokens = cut(mine, TEXTS[0])
    made = generate(mine, batch(mine, [tokens]), 12).written(0)
    assert list(made) == tiny.greedy(mine.model, list(tokens.ids), 12)[: len(made)]
    assert len(set(made)) < len(made)  # it repeats itself: a penalty would show
    out, err = capfd.readouterr()
    assert out == err == ""


def test_writing_stops_at_the_end_mark(copy, loaded):
    mine = loaded["decoder"]
    tokens = [cut(mine, text) for text in TEXTS]
    first = generate(mine, batch(mine, tokens), 6)
    end = first.written(0)[2]
    folder = copy(eos_token_id=[2, end])
    edit(folder / "generation_config.json", eos_token_id=[2, end])
    stopping = load_model(find_model(str(folder)))
    made = generate(stopping, batch(stopping, tokens), 6)
    for i in range(3):
        whole = first.written(i)
        stop = next((n + 1 for n, token in enumerate(whole) if token == end), len(whole))
        assert made.written(i) == whole[:stop]
        assert made.lengths[i] == stop
    assert made.ids.shape[1] == max(made.lengths)


def test_a_pad_token_in_a_text_is_read(copy):
    folder = copy(pad_token_id=0)
    edit(folder / "tokenizer_config.json", pad_token="<pad>")
    mine = load_model(find_model(str(folder)))
    tokens = cut(mine, "<pad>the<pad> cat")
    assert tokens.ids.count(mine.tokenizer.pad_token_id) == 2
    made = generate(mine, batch(mine, [tokens]), 4).written(0)
    assert list(made) == tiny.greedy(mine.model, list(tokens.ids), 4)[: len(made)]


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_an_encoder_decoder_continues_its_target(loaded, name):
    mine = loaded[name]
    sources = [cut(mine, text) for text in TEXTS]
    made = generate(mine, batch(mine, sources), 5)
    for i, source in enumerate(sources):
        ids = batch(mine, [source]).inputs
        for token in made.written(i):
            with torch.no_grad():
                assert mine.model(**ids).logits[0, -1].argmax() == token
            longer = torch.cat([ids["decoder_input_ids"], torch.tensor([[token]])], 1)
            ids = ids | {"decoder_input_ids": longer}
    begun = cut(mine, "the cat", target=True, add_special=False)
    made = generate(mine, batch(mine, sources[:1], [begun]), 3)
    (row,) = batch(mine, sources[:1], [begun]).targets
    assert made.ids.shape[1] <= 3
    grown = continued(mine, row, made.written(0))
    assert grown.ids == row.ids + made.written(0)
    other = cut(mine, "the cat sat", target=True)
    both = batch(mine, sources[:2], [begun, other])
    assert len(set(both.target_lengths)) == 2
    fails(lambda: generate(mine, both, 3), "cannot be continued together", kind=OptionError)


def test_what_cannot_be_written(loaded, copy):
    encoder, mine = loaded["encoder"], loaded["decoder"]
    made = batch(mine, [cut(mine, "the")])
    fails(
        lambda: generate(encoder, batch(encoder, [cut(encoder, "the")]), 3),
        "BertModel",
        "does not write",
        kind=OptionError,
    )
    fails(lambda: generate(mine, made, 0), "0 tokens", kind=OptionError)
    fails(lambda: generate(mine, made, 64), "is 64", "at most 63", kind=TextError)
    headless = load_model(find_model(str(copy(architectures=["LlamaModel"]))))
    assert headless.kind is Kind.DECODER
    assert "lm_head" in headless.notes[0]
    fails(lambda: generate(headless, made, 3), "does not write", kind=OptionError)


def test_what_was_written_is_text_again(loaded):
    mine = loaded["decoder"]
    tokens = cut(mine, "the cat")
    new = mine.tokenizer(" sat 犬.")["input_ids"]
    whole = continued(mine, tokens, [*new, 2])
    assert whole.text == "the cat sat 犬.</s>"
    assert whole.ids == (*tokens.ids, *new, 2)
    assert whole.spans[: len(tokens)] == tokens.spans
    assert whole.special == (False,) * (len(tokens) + len(new)) + (True,)
    assert "".join(whole.source(i) for i in range(len(whole))) == whole.text
    assert continued(mine, tokens, []) == replace(tokens)
