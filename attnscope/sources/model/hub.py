"""Models of the hub: looked up in the local cache, or fetched into it when the user names one."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

from attnscope.sources.model.error import failing_as

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)
# What a model is made of: never a Python file. Pickled weights only where there are no others.
_WHOLE, _PICKLED = ("model*.safetensors",), ("pytorch_model*.bin",)
_REST = ("*.json", "*.txt", "*.model", "*.spm", "*.tiktoken", "*.jinja", "bpe.codes")


def is_name(path: str) -> bool:
    """Return whether `path`, which does not exist, may be an owner/name of the hub.

    In a folder that exists it is a mistyped path, and nothing is asked of the network.
    """
    return bool(_NAME.fullmatch(path)) and not Path(path).parent.exists()


def is_switched_off() -> bool:
    """Return whether the environment says that the hub must not be asked (HF_HUB_OFFLINE)."""
    return bool(import_module("huggingface_hub.constants").HF_HUB_OFFLINE)


def cached_folder(name: str) -> Path | None:
    """Return the folder of a hub model in the local cache, None if it is not there."""
    with failing_as(f"the local cache of {name}"):
        found = _hub().try_to_load_from_cache(name, "config.json")
    return Path(found).parent if isinstance(found, str) else None


def fetch_config(name: str) -> Path:
    """Fetch config.json alone, so that it is checked before the weights; return its folder.

    Raises: ModelError.
    """
    with failing_as(f"model {name} of the hub", _HINT):
        return Path(_hub().hf_hub_download(name, "config.json")).parent


def fetch(name: str) -> Path:
    """Fetch weights and tokenizer, without any code, and return their folder.

    Raises: ModelError.
    """
    with failing_as(f"model {name} of the hub", _HINT):
        # Only what lies on top: folders inside hold other formats of the same weights.
        files = [file for file in _hub().list_repo_files(name) if "/" not in file]
        weights = _matching(files, _WHOLE) or _matching(files, _PICKLED)
        wanted = [*weights, *_matching(files, _REST)]
        return Path(_hub().snapshot_download(name, allow_patterns=wanted))


_HINT = "Check the name and the network, or give a local folder"


def _matching(files: list[str], patterns: tuple[str, ...]) -> list[str]:
    return [file for file in files if any(Path(file).match(pattern) for pattern in patterns)]


def _hub() -> Any:
    return import_module("huggingface_hub")  # comes with transformers
