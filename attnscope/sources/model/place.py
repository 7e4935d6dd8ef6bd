"""Where a model is, and whether its files are whole: found before anything heavy is loaded."""

import importlib.util
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from attnscope.errors import MissingExtraError
from attnscope.sources.model import gguf, hub
from attnscope.sources.model.error import ModelError
from attnscope.sources.model.weights import Weights, read_folder
from attnscope.text.display import visible

OLDEST_TRANSFORMERS = (5, 1)
_INSTALL = 'Install the extra: pip install "attnscope[models]"'

# One of these, or a tokenizer that has no vocabulary because bytes or code points are its tokens.
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "source.spm",
    "vocab.txt",
    "vocab.json",
    "tekken.json",
    "bpe.codes",
)
_WITHOUT_VOCABULARY = ("ByT5Tokenizer", "CanineTokenizer", "PerceiverTokenizer")


@dataclass(frozen=True, slots=True)
class ModelPlace:
    """A model that was found. `name` is safe to print.

    `path` is a folder or a .gguf file; None for a model of the hub that is not here yet.
    `config` is config.json, or the metadata of the .gguf file.
    """

    name: str
    path: Path | None
    config: Mapping[str, Any]
    weights: Weights | None

    @property
    def is_gguf(self) -> bool:
        """Whether this is one .gguf file."""
        path = self.path
        return path is not None and path.suffix.lower() == ".gguf" and path.is_file()


def find_model(path: str, *, offline: bool = False) -> ModelPlace:
    """Find a local folder, a local .gguf file or, if no such path exists, a hub name.

    Everything is checked that needs neither torch nor transformers. Nothing is fetched: a hub
    name is looked up in the local cache if `offline`, and else left for loading.
    Raises: ModelError, MissingExtraError.
    """
    name = visible(path)
    here = Path(path)
    try:
        is_folder, is_file = here.is_dir(), here.is_file()
    except (OSError, ValueError):  # too long, or with a NUL
        is_folder = is_file = False
    if not path:
        raise ModelError("the name of the model is empty", "Give a folder or a .gguf file")
    if is_folder:
        check_extras("transformers")
        return place_of_folder(here, name)
    if is_file:
        return _place_of_file(here, name)
    if not hub.is_name(path):
        raise ModelError(f"there is no model {name}", "Give a model folder or a .gguf file")
    check_extras("transformers")
    if not (offline or hub.is_switched_off()):
        return ModelPlace(name, None, {}, None)
    cached = hub.cached_folder(path)
    if cached is None:
        raise ModelError(
            f"there is no folder {name}, and no hub model of that name in the local cache",
            "Give a folder, or load the model once without --offline",
        )
    return place_of_folder(cached, name)


def place_of_folder(folder: Path, name: str) -> ModelPlace:
    """Check the files of a model folder.

    Raises: ModelError naming what is missing or damaged.
    """
    config = read_config(folder, name)
    if (folder / "adapter_config.json").is_file():
        raise ModelError(
            f"model folder {name} holds an adapter, not only a model",
            "Merge it into its model and save that (peft: merge_and_unload)",
        )
    if (folder / "custom_generate").is_dir():
        raise ModelError(
            f"model folder {name} brings its own code (custom_generate)",
            "attnscope never runs code from a model folder; give a copy without it",
        )
    weights = read_folder(folder, name, config)
    _check_tokenizer(folder, name)
    return ModelPlace(name, folder, config, weights)


def check_extras(*modules: str) -> None:
    """Raise MissingExtraError if a package that loads models is missing or too old."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise MissingExtraError(f"{module.replace('_', '-')} is not installed", _INSTALL)
    installed = version("transformers")
    numbers = tuple(int(number) for number in re.findall(r"\d+", installed)[:2])
    if numbers < OLDEST_TRANSFORMERS:
        wanted = ".".join(map(str, OLDEST_TRANSFORMERS))
        raise MissingExtraError(
            f"transformers {installed} is installed, and {wanted} or newer is needed", _INSTALL
        )


def read_config(folder: Path, name: str) -> dict[str, Any]:
    """Read config.json, and refuse what would fetch code.

    Raises: ModelError naming the file and what is wrong with it.
    """
    file = folder / "config.json"
    shown = visible(str(file))
    try:
        config = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise ModelError(f"model folder {name} has no config.json", _hint_without(folder)) from None
    except OSError as error:
        raise ModelError(f"{shown} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise ModelError(f"{shown} is not JSON", "Copy or download it again") from None
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise ModelError(
            f'{shown} has no "model_type"', "Save the model again with a current transformers"
        )
    for implementation in _implementations(config):
        if "/" in implementation:
            raise ModelError(
                f"{shown} asks for code from the hub: {visible(implementation)}",
                "attnscope never runs code that comes with a model; take attn_implementation out",
            )
    return config


def _implementations(config: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    """Yield the names of implementations that a configuration asks for, also in its parts."""
    for key, value in config.items():
        if key.strip("_").removesuffix("_internal") in (
            "attn_implementation",
            "experts_implementation",
        ):
            yield from (str(name) for name in (value.values() if _is_part(value) else [value]))
        elif _is_part(value) and depth < 8:
            yield from _implementations(value, depth + 1)


def _is_part(value: object) -> bool:
    return isinstance(value, dict)


def _hint_without(folder: Path) -> str:
    ggufs = sorted(visible(file.name) for file in folder.glob("*.gguf"))
    if ggufs:
        return f"Give the .gguf file itself: {', '.join(ggufs[:3])}"
    inner = sorted(visible(file.parent.name) for file in folder.glob("*/config.json"))
    if inner:
        return f"There is one in: {', '.join(inner[:3])}"
    return "Give a folder as transformers saves it: config.json, weights, tokenizer"


def _place_of_file(file: Path, name: str) -> ModelPlace:
    if file.suffix.lower() != ".gguf":
        raise ModelError(
            f"{name} is neither a model folder nor a .gguf file",
            "Give the folder that holds it",
        )
    check_extras("transformers", "gguf", "accelerate")
    header = gguf.read_header(file, name)
    weights = gguf.measure(file, name, header)
    return ModelPlace(name, file, header.metadata, weights)


def _check_tokenizer(folder: Path, name: str) -> None:
    if any((folder / file).is_file() for file in _TOKENIZER_FILES):
        return
    try:
        settings = json.loads((folder / "tokenizer_config.json").read_bytes())
        kind = settings.get("tokenizer_class")
    except (OSError, ValueError, AttributeError, RecursionError):
        kind = None
    if kind not in _WITHOUT_VOCABULARY and not list(folder.glob("*.tiktoken")):
        raise ModelError(
            f"model folder {name} has no tokenizer",
            "Save it there (tokenizer.json is enough); if the model reads no text, load it in a "
            "program of yours and use attnscope.capture",
        )
