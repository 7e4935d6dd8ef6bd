"""The library's front door: what the command line does, as functions."""

from pathlib import Path

from attnscope.errors import OptionError
from attnscope.model_run import ModelRun
from attnscope.run import Run
from attnscope.sources.model.cut import cut
from attnscope.sources.model.loaded import load_model
from attnscope.sources.model.place import find_model
from attnscope.sources.model.watch import run_texts
from attnscope.sources.options import D_KEY, D_MODEL, SEED, Align, SentenceOptions
from attnscope.sources.sentence import run_tokens
from attnscope.sources.tensors import TensorOptions, run_tensors
from attnscope.text.display import visible
from attnscope.text.tokenizer_file import load_tokenizer
from attnscope.text.words import build_tokenizer
from attnscope.views.json_text import render_run
from attnscope.views.look import Look


def run_sentence(
    text: str,
    *,
    heads: int = 1,
    cross: str | None = None,
    causal: bool = False,
    align: str | None = None,
    mask_method: str = "neg-inf",
    d_model: int = D_MODEL,
    d_key: int = D_KEY,
    d_value: int | None = None,
    vocabulary_size: int | None = None,
    seed: int = SEED,
    tokenizer: str | Path | None = None,
    keep_punctuation: bool = False,
    device: str = "cpu",
    dtype: str = "float32",
) -> Run:
    """Run a sentence through attention with seeded weights and return every number.

    `cross` is a second text for keys and values; `tokenizer` a tokenizer.json or its folder;
    the rest as on the command line.

    Raises: AttnscopeError, with a message for the person who gave the value.
    """
    options = SentenceOptions(
        heads, causal, _align(align), d_model, d_key, d_value,
        vocabulary_size, seed, mask_method, device, dtype,
    )  # fmt: skip
    if tokenizer is not None and keep_punctuation:
        raise OptionError("keep_punctuation is for built vocabularies", "Leave one out")
    corpus = text if cross is None else f"{text}\n{cross}"
    cutter = (
        build_tokenizer(corpus, keep_punctuation=keep_punctuation)
        if tokenizer is None
        else load_tokenizer(Path(tokenizer))
    )
    keys = None if cross is None else cutter.tokens(cross)
    return run_tokens(cutter.tokens(text), options, keys=keys)


def run_qkv(
    path: str | Path,
    *,
    causal: bool = False,
    align: str | None = None,
    mask_method: str = "neg-inf",
    device: str = "cpu",
    dtype: str | None = None,
) -> Run:
    """Run query, key and value from a .json, .npz or .safetensors file through attention.

    Raises: AttnscopeError, naming the entry and the numbers that do not fit.
    """
    options = TensorOptions(causal, _align(align), mask_method, device, dtype)
    return run_tensors(Path(path), options)


def run_model(
    text: str,
    model: str | Path,
    *,
    target: str | None = None,
    chat: bool = False,
    generate: int = 0,
    device: str = "cpu",
    dtype: str | None = None,
    offline: bool = False,
) -> ModelRun:
    """Run a text through a model folder or .gguf file and return every attention call, proven.

    `target` is what the decoder of an encoder-decoder reads; `generate` tokens are written on
    greedily; the rest as on the command line. `.layer(n).head(m).weights` are one head's.

    Memory: the model, and query, key, value and output of every layer.
    Raises: AttnscopeError, with a message for the person who gave the value.
    """
    loaded = load_model(find_model(str(model), offline=offline), device=device, dtype=dtype)
    tokens = cut(loaded, text, chat=chat, generate=generate)
    targets = None if target is None else [cut(loaded, target, target=True)]
    (run,) = run_texts(loaded, [tokens], targets, generated=generate)
    return run


def _align(name: str | None) -> Align | None:
    if name is None or name in list(Align):
        return None if name is None else Align(name)
    raise OptionError(f'unknown align "{visible(name)}"', f"Give one of {', '.join(Align)}")


def to_json(run: Run) -> str:
    """Return a run as the JSON document that `attnscope run --json` prints."""
    return render_run(run, Look())
