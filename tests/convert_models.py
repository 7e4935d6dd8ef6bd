"""Weights in formats of other programs, written as folders that transformers opens."""

import json
import struct
import warnings
from contextlib import contextmanager

import numpy as np
import torch

# One piece of a reaction in SMILES: an atom in brackets, an element, a bond, a ring number.
PIECE = (
    r"\[[^\]]+\]|Br|Cl|>>|%\([0-9]{3}\)|%[0-9]{2}|[BCNOPSFIbcnops0-9]"
    r"|[-().=#+\\/:~@?>*$|]"
)


@contextmanager
def quiet():
    """Let other libraries' warnings pass: they are about how old the files are."""
    import transformers

    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield transformers
    finally:
        transformers.logging.set_verbosity(level)


def convert_gguf(source, folder):
    """Write a GGUF file as bfloat16 safetensors, with its tokenizer."""
    with quiet() as transformers:
        place = {"pretrained_model_name_or_path": source.parent, "gguf_file": source.name}
        tokenizer = transformers.AutoTokenizer.from_pretrained(**place)
        model = transformers.AutoModelForCausalLM.from_pretrained(**place, dtype=torch.bfloat16)
        # what was quantised is so no more
        del model.config.quantization_config
        model.hf_quantizer = None
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def convert_reactions(source, folder):
    """Write rxnmapper's model as safetensors, its word list as a tokenizer of SMILES pieces."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors

    words = (source / "vocab.txt").read_text(encoding="utf-8").split("\n")
    vocabulary = {word: number for number, word in enumerate(words) if word}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(PIECE), "isolated")
    marks = [(mark, vocabulary[mark]) for mark in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, marks)
    with quiet() as transformers:
        model = transformers.AlbertForMaskedLM.from_pretrained(source)
        model.save_pretrained(folder)
        transformers.PreTrainedTokenizerFast(
            tokenizer_object=tokenizer,
            unk_token="[UNK]",
            pad_token="[PAD]",
            cls_token="[CLS]",
            sep_token="[SEP]",
            mask_token="[MASK]",
        ).save_pretrained(folder)


class Packed:
    """The numbers and names of a CTranslate2 file, read one after the other."""

    TYPES = ("<f4", "i1", "<i2", "<i4", "<f2")

    def __init__(self, content):
        self.content, self.at = content, 0

    def number(self, code):
        (number,) = struct.unpack_from(f"<{code}", self.content, self.at)
        self.at += struct.calcsize(code)
        return number

    def bytes(self, count):
        self.at += count
        return self.content[self.at - count : self.at]

    def name(self):
        return self.bytes(self.number("H")).rstrip(b"\0").decode()

    def tensor(self):
        shape = [self.number("I") for _ in range(self.number("B"))]
        kind = self.TYPES[self.number("B")]
        numbers = np.frombuffer(self.bytes(self.number("I")), kind).reshape(shape)
        return torch.from_numpy(numbers.astype(np.float32))


def tensors_of_ctranslate2(path):
    """Return the tensors of a CTranslate2 model by name."""
    file = Packed(path.read_bytes())
    assert file.number("I") == 6, "another version of the format"
    file.name(), file.number("I")  # the kind of model, and its revision
    return {file.name(): file.tensor() for _ in range(file.number("I"))}


# The parts of a layer there, and what is stacked in each, by the names of transformers.
SELF = {
    "self_attention/linear_0": ("q_proj", "k_proj", "v_proj"),
    "self_attention/linear_1": ("out_proj",),
}
CROSS = {
    "attention/linear_0": ("q_proj",),
    "attention/linear_1": ("k_proj", "v_proj"),
    "attention/linear_2": ("out_proj",),
}
FEED = {"ffn/linear_0": ("fc1",), "ffn/linear_1": ("fc2",)}
NORMS = {
    "self_attention": "self_attn_layer_norm",
    "attention": "encoder_attn_layer_norm",
    "ffn": "final_layer_norm",
}


def layer_of_whisper(tensors, there, here):
    """Yield (name, tensor) of one layer: stacked projections apart, no bias of keys: it is 0."""
    for parts, prefix in ((SELF, "self_attn."), (CROSS, "encoder_attn."), (FEED, "")):
        for part, names in parts.items():
            if f"{there}/{part}/weight" not in tensors:
                continue  # an encoder looks at nothing else
            for kind in ("weight", "bias"):
                pieces = tensors[f"{there}/{part}/{kind}"].chunk(len(names))
                for name, piece in zip(names, pieces, strict=True):
                    if (name, kind) != ("k_proj", "bias"):
                        yield f"{here}.{prefix}{name}.{kind}", piece.clone()
                    else:
                        assert not piece.any()
    for part, name in NORMS.items():
        if f"{there}/{part}/layer_norm/gamma" in tensors:
            yield f"{here}.{name}.weight", tensors[f"{there}/{part}/layer_norm/gamma"]
            yield f"{here}.{name}.bias", tensors[f"{there}/{part}/layer_norm/beta"]


def weights_of_whisper(tensors, layers):
    """Yield (name, tensor) of the whole model."""
    for side in ("encoder", "decoder"):
        yield (
            f"model.{side}.embed_positions.weight",
            tensors[f"{side}/position_encodings/encodings"],
        )
        yield f"model.{side}.layer_norm.weight", tensors[f"{side}/layer_norm/gamma"]
        yield f"model.{side}.layer_norm.bias", tensors[f"{side}/layer_norm/beta"]
        for layer in range(layers):
            there, here = f"{side}/layer_{layer}", f"model.{side}.layers.{layer}"
            yield from layer_of_whisper(tensors, there, here)
    for name in ("conv1", "conv2"):
        for kind in ("weight", "bias"):
            yield f"model.encoder.{name}.{kind}", tensors[f"encoder/{name}/{kind}"]
    yield "model.decoder.embed_tokens.weight", tensors["decoder/embeddings/weight"]


def convert_whisper(source, folder):
    """Write Whisper tiny.en as a folder of transformers, with its tokenizer and its ears."""
    tensors = tensors_of_ctranslate2(source / "model.bin")
    sides = {
        f"{side}_{name}": size
        for side in ("encoder", "decoder")
        for name, size in (("layers", 4), ("attention_heads", 6), ("ffn_dim", 1536))
    }
    with quiet() as transformers:
        config = transformers.WhisperConfig(
            vocab_size=51864,
            d_model=384,
            num_mel_bins=80,
            max_source_positions=1500,
            max_target_positions=448,
            decoder_start_token_id=50257,
            bos_token_id=50256,
            eos_token_id=50256,
            pad_token_id=50256,
            **sides,
        )
        model = transformers.WhisperForConditionalGeneration(config)
        left = model.load_state_dict(dict(weights_of_whisper(tensors, 4)), strict=False)
        assert left.unexpected_keys == []
        assert left.missing_keys == ["proj_out.weight"]  # the embedding of the decoder
        model.tie_weights()
        model.half().save_pretrained(folder)
        transformers.PreTrainedTokenizerFast(
            tokenizer_file=str(source / "tokenizer.json")
        ).save_pretrained(folder)
        transformers.WhisperFeatureExtractor(feature_size=80).save_pretrained(folder)
    heads = json.loads((source / "config.json").read_text())["alignment_heads"]
    (folder / "alignment_heads.json").write_text(json.dumps(heads))
