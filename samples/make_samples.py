"""Make the sample files that are not written by hand: a tokenizer and q/k/v files.

    python samples/make_samples.py

Everything is drawn from a seed, so running it again gives the same bytes.
"""

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

HERE = Path(__file__).parent
VOCABULARY_SIZE = 320


def make_tokenizer() -> None:
    """Train a small byte-level BPE tokenizer on the corpus, with a token at the beginning."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=["<s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    corpus = (HERE / "sentences" / "corpus.txt").read_text(encoding="utf-8")
    tokenizer.train_from_iterator(corpus.splitlines(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    tokenizer.save(str(HERE / "tokenizer.json"))


def make_qkv() -> None:
    """Write two cached-decoding queries over five keys, in three formats; four heads share two."""
    generator = torch.Generator().manual_seed(123)

    def rounded(*shape: int) -> torch.Tensor:
        return (torch.randn(*shape, generator=generator) * 100).round() / 100

    query, key, value = rounded(2, 4), rounded(5, 4), rounded(5, 3)
    small = {"query": query, "key": key, "value": value}
    text = ",\n ".join(
        f'"{name}": {json.dumps(t.double().mul(100).round().div(100).tolist())}'
        for name, t in small.items()
    )
    (HERE / "qkv.json").write_text(f"{{{text}}}\n", encoding="utf-8")
    heads = {"query": rounded(4, 6, 8), "key": rounded(2, 6, 8), "value": rounded(2, 6, 8)}
    np.savez(HERE / "qkv.npz", **{name: t.numpy() for name, t in heads.items()})
    save_file({name: t.contiguous() for name, t in heads.items()}, HERE / "qkv.safetensors")


def make_underflow() -> None:
    """Write scores whose hidden ones lie 120 above the visible ones: renormalising breaks."""
    query = [[1.0], [1.0], [1.0]]
    key = [[0.0], [0.0], [120.0]]
    data = {"query": query, "key": key, "value": [[1.0], [2.0], [3.0]], "scale": 1.0}
    (HERE / "underflow.json").write_text(json.dumps(data) + "\n", encoding="utf-8")


if __name__ == "__main__":
    make_tokenizer()
    make_qkv()
    make_underflow()
