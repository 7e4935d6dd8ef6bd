"""Small random models with tokenizers of their own, saved as a model folder is."""

import os
import struct

import torch
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from tests.sources.models import redrawn, transformers_or_skip

transformers = transformers_or_skip()

BODY = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
DECODER = BODY | {"num_key_value_heads": 2, "head_dim": 8, "bos_token_id": 1, "eos_token_id": 2}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
BART = {
    f"{part}_{name}": number
    for part in ("encoder", "decoder")
    for name, number in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 64))
}
CORPUS = [
    "the cat sat on the mat because it was tired",
    "a dog ran home; the dog was happy",
    "é 猫",
]
CHAT = (
    "{% for message in messages %}<s>{{ message['role'] }}\n{{ message['content'] }}</s>\n"
    "{% endfor %}{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)


def framed(tokenizer, start, end):
    """Make a tokenizer put marks around a text; None for no mark."""
    marks = [mark for mark in (start, end) if mark]
    return processors.TemplateProcessing(
        single=" ".join(part for part in (start, "$A", end) if part),
        special_tokens=[(mark, tokenizer.token_to_id(mark)) for mark in marks],
    )


def byte_level(start=None, end=None):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<pad>", "<s>", "</s>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    if start or end:
        tokenizer.post_processor = framed(tokenizer, start, end)
    return tokenizer


def word_pieces():
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "mat", "##s"]
    tokenizer = Tokenizer(models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = framed(tokenizer, "[CLS]", "[SEP]")
    return tokenizer


def save(folder, model, tokenizer, **options):
    """Save a model with re-drawn weights and its tokenizer; return the folder."""
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **options)
    redrawn(model, 0.35).save_pretrained(folder)
    wrapped.save_pretrained(folder)
    return folder


def save_decoder(folder, **options):
    """Save a Llama with fewer key heads, byte-level pieces, a chat template and no pad token."""
    tokenizer = byte_level()
    config = DECODER | {"vocab_size": tokenizer.get_vocab_size(), "pad_token_id": None} | options
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config))
    marks = {"bos_token": "<s>", "eos_token": "</s>"}
    return save(folder, model, tokenizer, chat_template=CHAT, **marks)


def save_encoder(folder):
    """Save a BERT as its encoder alone, with word pieces."""
    tokenizer = word_pieces()
    config = transformers.BertConfig(**BODY | {"vocab_size": tokenizer.get_vocab_size()})
    marks = {name: f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    return save(
        folder,
        transformers.BertModel(config),
        tokenizer,
        **{f"{name}_token": mark for name, mark in marks.items()},
    )


def save_t5(folder):
    """Save a T5: relative positions, </s> after a text."""
    tokenizer = byte_level(end="</s>")
    config = T5 | {"vocab_size": tokenizer.get_vocab_size(), "decoder_start_token_id": 0}
    model = transformers.T5ForConditionalGeneration(
        transformers.T5Config(**config, pad_token_id=0, eos_token_id=2)
    )
    return save(folder, model, tokenizer, eos_token="</s>", pad_token="<pad>")


def save_bart(folder):
    """Save a BART: learned positions, <s> and </s> around a text; its decoder starts with </s>."""
    tokenizer = byte_level("<s>", "</s>")
    config = transformers.BartConfig(
        **BART,
        d_model=32,
        max_position_embeddings=64,
        vocab_size=tokenizer.get_vocab_size(),
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        decoder_start_token_id=2,
        forced_eos_token_id=None,
    )
    marks = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    return save(folder, transformers.BartForConditionalGeneration(config), tokenizer, **marks)


FOLDERS = {
    "decoder": save_decoder,
    "encoder": save_encoder,
    "t5": save_t5,
    "bart": save_bart,
}


def gguf_bytes(*, metadata=(), tensors=(), version=3, magic=b"GGUF", data=64):
    """Return a .gguf file: metadata as (key, type, packed value), tensors as (name, shape)."""

    def string(text):
        return struct.pack("<Q", len(text.encode())) + text.encode()

    parts = [magic, struct.pack("<IQQ", version, len(tensors), len(metadata))]
    parts += [string(key) + struct.pack("<I", kind) + value for key, kind, value in metadata]
    parts += [
        string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, 0)
        for name, shape in tensors
    ]
    return b"".join(parts) + bytes(data)


def tokens_of_gguf(*pieces):
    """Return the metadata entry that holds the vocabulary of a .gguf file."""
    packed = b"".join(struct.pack("<Q", len(p.encode())) + p.encode() for p in pieces)
    return ("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, len(pieces)) + packed)


class Payload:
    """A pickle of this makes a folder when it is read carelessly."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


def state_of(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def greedy(model, ids, count):
    """Continue one text by hand, without a cache."""
    ids = torch.tensor([ids])
    with torch.no_grad():
        for _ in range(count):
            best = model(ids, use_cache=False).logits[0, -1].argmax()
            ids = torch.cat([ids, best.view(1, 1)], dim=1)
    return ids[0].tolist()[-count:]
