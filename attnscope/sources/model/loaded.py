"""A model and its tokenizer, loaded with transformers and changed in nothing."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch

from attnscope.attention.device import find_device, find_dtype
from attnscope.errors import SizeError
from attnscope.sources.model import gguf, hub
from attnscope.sources.model.architecture import Architecture, Kind, check_known, choose
from attnscope.sources.model.error import ModelError, failing_as
from attnscope.sources.model.place import ModelPlace, place_of_folder, read_config
from attnscope.sources.model.quiet import Progress, quiet
from attnscope.sources.model.size import bytes_of, check_memory, choose_dtype
from attnscope.sources.model.vocabulary import ModelVocabulary, vocabulary_of
from attnscope.text.display import visible

# Weights that no attention depends on: what a model makes of its last layer for other programs.
_HARMLESS = re.compile(r"(^|\.)pooler\.")
_LISTED = 3
_MOST_LAYERS = 10_000  # no model has a tenth of them
_BELONG = "Check that config.json and the weights belong together"


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel:
    """A model that is ready to be watched: in evaluation mode, without gradients.

    Units: `context_length` is in tokens; None if positions have no end. `name` is safe to print;
    `notes` say in one line each what a reader of the numbers must know.
    """

    model: Any  # a PreTrainedModel, with the attention it chose itself
    tokenizer: Any
    vocabulary: ModelVocabulary
    kind: Kind
    name: str
    context_length: int | None
    dtype: torch.dtype
    device: torch.device
    notes: tuple[str, ...] = ()


def load_model(
    place: ModelPlace,
    *,
    device: str = "cpu",
    dtype: str | None = None,
    progress: Progress | None = None,
) -> LoadedModel:
    """Load a model that `find_model` found, and its tokenizer.

    `progress` is called with what is being done and its share (None: not known). A hub name that
    is not here yet is fetched first. No code of the model folder runs, its attention is not
    exchanged for another, and the random state stays as it is.
    Memory: the weights in `dtype`; checked before they are read.
    Raises: ModelError, SizeError, DeviceError, OptionError, TokenizerError.
    """
    where = find_device(device)
    if dtype is not None:
        find_dtype(dtype)
    report: Progress = progress or (lambda *_: None)
    with quiet(report, "reading the weights"), torch.random.fork_rng(devices=[]):
        if place.path is None:
            place = _fetched(place, report)
        with gguf.read_once() if place.is_gguf else nullcontext():
            return _loaded(place, where, dtype, report)


def _loaded(
    place: ModelPlace, where: torch.device, asked: str | None, report: Progress
) -> LoadedModel:
    report("reading the configuration", None)
    config = _read_config(place)
    architecture = choose(config, place.name)
    assert place.weights is not None  # whatever has a path has been measured
    dtype = choose_dtype(asked, place.weights, where)
    quantised = getattr(config, "quantization_config", None) is not None and not place.is_gguf
    needed = bytes_of(place.weights, dtype, quantised=quantised)
    check_memory(needed, place.name, dtype, where)
    report("reading the tokenizer", None)
    tokenizer = _read_tokenizer(place)
    vocabulary = vocabulary_of(tokenizer, place.name)
    report("reading the weights", 0.0)
    model, notes = _read_model(place, config, architecture, dtype)
    with _enough_memory(place.name):
        model = model.eval().requires_grad_(False).to(where)
    _write_greedily(model, tokenizer)
    return LoadedModel(
        model,
        tokenizer,
        vocabulary,
        architecture.kind,
        place.name,
        _context_length(model),
        dtype,
        where,
        notes,
    )


def _fetched(place: ModelPlace, report: Progress) -> ModelPlace:
    report(f"fetching {place.name}", None)
    folder = hub.fetch_config(place.name)
    check_known(read_config(folder, place.name), place.name)
    return place_of_folder(hub.fetch(place.name), place.name)


def _where(place: ModelPlace) -> tuple[str, dict[str, Any]]:
    """Return the folder and the options by which transformers finds a model, and nothing else."""
    assert place.path is not None
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    if place.is_gguf:
        return str(place.path.parent), options | {"gguf_file": place.path.name}
    return str(place.path), options


def _read_config(place: ModelPlace) -> Any:
    transformers = import_module("transformers")
    if not place.is_gguf:
        check_known(place.config, place.name)
    folder, options = _where(place)
    with failing_as(f"the configuration of {place.name}", "Copy or download the model again"):
        config = transformers.AutoConfig.from_pretrained(folder, **options)
        layers = getattr(config.get_text_config(), "num_hidden_layers", None)
    if isinstance(layers, int) and layers > _MOST_LAYERS:  # to make them would take hours
        raise ModelError(
            f"the configuration of {place.name} asks for {layers:,} layers",
            "Check num_hidden_layers in its config.json",
        )
    return config


def _read_tokenizer(place: ModelPlace) -> Any:
    transformers = import_module("transformers")
    folder, options = _where(place)
    with failing_as(
        f"the tokenizer of {place.name}",
        "Save a tokenizer.json with it (tokenizer.save_pretrained)",
    ):
        return transformers.AutoTokenizer.from_pretrained(folder, **options)


def _read_model(
    place: ModelPlace, config: Any, architecture: Architecture, dtype: torch.dtype
) -> tuple[Any, tuple[str, ...]]:
    folder, options = _where(place)
    transformers = import_module("transformers")
    if place.is_gguf and hasattr(transformers, "GgufConfig"):
        # Else some architectures stay packed, and fetch kernels and another attention for it.
        options["quantization_config"] = transformers.GgufConfig(dequantize=True)
    with failing_as(f"the weights of {place.name}", _BELONG), _enough_memory(place.name):
        model, report = architecture.auto_class.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            weights_only=True,
            ignore_mismatched_sizes=True,  # they are an error below, which names them
            output_loading_info=True,
            **options,
        )
    return model, _notes(report, place.name, type(model).__name__)


def _notes(report: Mapping[str, Any], name: str, opened: str) -> tuple[str, ...]:
    """Return what to know about weights that did not match; numbers drawn at random are no model.

    Raises: ModelError if weights on which attention depends are missing or of another shape.
    """
    for key, stored, wanted in sorted(report["mismatched_keys"]):
        raise ModelError(
            f"{visible(key)} of {name} has shape {tuple(stored)}, and {opened} needs "
            f"{tuple(wanted)}",
            _BELONG,
        )
    missing = sorted(report["missing_keys"])
    needed = [key for key in missing if not _HARMLESS.search(key)]
    if needed:
        raise ModelError(
            f"{name} lacks {_counted(needed)} of {opened}: they would be drawn at random",
            _BELONG,
        )
    notes = []
    if missing:
        notes.append(
            f"the files lack {_counted(missing)} of {opened}: drawn at random, but no attention "
            "depends on them"
        )
    if unused := sorted(report["unexpected_keys"]):
        notes.append(f"{opened} does not use {_counted(unused)} of the files")
    return tuple(notes)


def _counted(keys: list[str]) -> str:
    more = ", …" if len(keys) > _LISTED else ""
    some = ", ".join(visible(key) for key in keys[:_LISTED])
    return f"{len(keys)} weight{'s' if len(keys) > 1 else ''} ({some}{more})"


@contextmanager
def _enough_memory(name: str) -> Iterator[None]:
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError):
        raise SizeError(
            f"there is not enough memory for the weights of {name}",
            "Use --dtype bfloat16, which takes less, or a smaller model",
        ) from None


def _write_greedily(model: Any, tokenizer: Any) -> None:
    """Keep of the saved settings for writing only which tokens mean what.

    Samplers, beams and penalties would make of "what comes next" something else.
    """
    if not model.can_generate():
        return
    saved, config = model.generation_config, model.config
    names = ("bos_token_id", "eos_token_id", "decoder_start_token_id", "forced_bos_token_id")
    marks = {
        name: next(
            (
                token
                for source in (saved, config)
                if (token := getattr(source, name, None)) is not None
            ),
            None,
        )
        for name in names
    }
    marks["pad_token_id"] = pad_id(model, tokenizer)
    model.generation_config = import_module("transformers").GenerationConfig(**marks)


def pad_id(model: Any, tokenizer: Any) -> int:
    """Return an id to fill rows with. Any will do where the model knows none: it is masked."""
    config = model.config.get_text_config(decoder=True)
    rows = getattr(model.get_input_embeddings(), "num_embeddings", 1)
    for source in (tokenizer, config):
        for name in ("pad_token_id", "eos_token_id"):
            token = getattr(source, name, None)
            first = token[0] if isinstance(token, list) and token else token
            if isinstance(first, int) and 0 <= first < rows:
                return first
    return 0


def _context_length(model: Any) -> int | None:
    """Return how many tokens have a position; None if positions are relative and without end."""
    longest = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if not isinstance(longest, int) or longest < 1:
        return None
    for name, module in model.named_modules():
        if (
            name.endswith("position_embeddings")
            and getattr(module, "padding_idx", None) is not None
        ):
            # RoBERTa and its kin number positions from the one after the padding's
            longest = min(longest, module.num_embeddings - module.padding_idx - 1)
    return longest
