"""Named tensors from a .json, .npz or .safetensors file, read without running anything in it."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from attnscope.errors import TensorError
from attnscope.text.display import visible

# What other programs call the tensors.
_SHORT = {"q": "query", "k": "key", "v": "value"}
REQUIRED = ("query", "key", "value")
OPTIONAL = ("mask", "scale", "bias", "softcap", "sinks")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read query, key, value and what else a call has, by name.

    Raises: TensorError naming the file, and the entry if it is one.
    """
    name = visible(str(path))
    readers: dict[str, Callable[[Path, str], dict[str, Tensor]]] = {
        ".json": _read_json,
        ".npz": _read_npz,
        ".safetensors": _read_safetensors,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise TensorError(
            f"tensor file {name} ends in neither {', '.join(readers)}", "Name it by its format"
        )
    try:
        with path.open("rb"):
            pass
    except FileNotFoundError:
        raise TensorError(f"there is no tensor file {name}", "Check the path") from None
    except OSError as error:
        raise TensorError(f"tensor file {name} cannot be read: {error.strerror}") from None
    except ValueError:
        raise TensorError(f"there is no tensor file {name}", "Check the path") from None
    return _named(reader(path, name), name)


def _named(tensors: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    named: dict[str, Tensor] = {}
    for given, tensor in tensors.items():
        entry = _SHORT.get(given, given)
        if entry not in REQUIRED + OPTIONAL:
            raise TensorError(
                f"tensor file {name} holds the unknown entry {visible(given)}",
                f"Known are {', '.join(REQUIRED + OPTIONAL)}",
            )
        if entry in named:
            raise TensorError(f"tensor file {name} holds {entry} twice", "Keep one")
        named[entry] = tensor
    missing = [entry for entry in REQUIRED if entry not in named]
    if missing:
        raise TensorError(
            f"tensor file {name} has no {' and no '.join(missing)}",
            "It needs query, key and value (or q, k, v)",
        )
    return named


def _read_json(path: Path, name: str) -> dict[str, Tensor]:
    try:
        data = json.loads(path.read_bytes())
    except UnicodeDecodeError as error:
        raise TensorError(
            f"tensor file {name} is not UTF-8 at byte offset {error.start}", "Save it as UTF-8"
        ) from None
    except json.JSONDecodeError as error:
        raise TensorError(
            f"tensor file {name} is not JSON: {error.msg} at line {error.lineno} column "
            f"{error.colno}",
            "Give a complete file",
        ) from None
    except RecursionError:
        raise TensorError(
            f"tensor file {name} is nested too deeply", "Use at most 4 axes"
        ) from None
    if not isinstance(data, dict):
        raise TensorError(
            f"tensor file {name} holds {type(data).__name__}, not an object",
            'Write {"query": [[…]], "key": [[…]], "value": [[…]]}',
        )
    return {entry: _from_lists(value, entry, name) for entry, value in data.items()}


def _from_lists(value: object, entry: str, name: str) -> Tensor:
    try:
        tensor = torch.as_tensor(value)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise TensorError(
            f"{visible(entry)} in {name} is not a rectangular array of numbers: "
            f"{visible(' '.join(str(error).split()))}",
            "Give rows of equal length",
        ) from None
    if tensor.dtype == torch.float32:  # torch's default for Python floats: keep all their digits
        tensor = torch.as_tensor(value, dtype=torch.float64)
    return tensor


def _read_npz(path: Path, name: str) -> dict[str, Tensor]:
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            return {entry: _from_array(archive[entry], entry, name) for entry in archive.files}
    except TensorError:
        raise
    except Exception as error:  # zip, zlib, header and number parsers each raise their own
        reason = visible(" ".join(str(error).split()))
        raise TensorError(
            f"tensor file {name} is not a readable .npz: {reason or type(error).__name__}",
            "Write it with numpy.savez, without Python objects",
        ) from None


def _from_array(array: object, entry: str, name: str) -> Tensor:
    try:
        if not isinstance(array, np.ndarray):
            raise TypeError
        native = array.astype(array.dtype.newbyteorder("="))
        return torch.from_numpy(np.ascontiguousarray(native).reshape(array.shape))
    except TypeError:
        kind = getattr(array, "dtype", "something else")
        raise TensorError(
            f"{visible(entry)} in {name} holds {kind}, not numbers", "Give an array of numbers"
        ) from None


def _read_safetensors(path: Path, name: str) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load_file(path)
    except (safetensors.SafetensorError, OSError, ValueError, KeyError) as error:
        raise TensorError(
            f"tensor file {name} is not a readable .safetensors: "
            f"{visible(' '.join(str(error).split()))}",
            "Write it with safetensors",
        ) from None
