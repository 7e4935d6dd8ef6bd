"""Which weight files a model folder has, and how many numbers they hold, read from headers only.

Source of the format: https://github.com/huggingface/safetensors#format
"""

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnscope.sources.model.error import ModelError
from attnscope.text.display import visible

# Bytes of one number of each type of a safetensors file.
_WIDTHS = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "C64": 8}
_WIDTHS |= {"F16": 2, "BF16": 2, "I16": 2, "U16": 2}
_WIDTHS |= {"F8_E4M3": 1, "F8_E5M2": 1, "I8": 1, "U8": 1, "BOOL": 1}
# What a number of these types is called where --dtype is.
DTYPE_NAMES = {"F64": "float64", "F32": "float32", "BF16": "bfloat16", "F16": "float16"}

# In the order in which transformers looks for them.
_CANDIDATES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
_LARGEST_HEADER = 100_000_000  # the format allows no more


@dataclass(frozen=True, slots=True)
class Weights:
    """The weight files of a model, measured without reading a weight.

    Units: `numbers` counts the numbers of each dtype that has a name; they take the dtype that
    the model is loaded in. `other_bytes` is what everything else takes: it stays as it is stored.
    """

    files: tuple[Path, ...]
    numbers: Mapping[str, int]
    other_bytes: int = 0

    @property
    def stored(self) -> str | None:
        """The dtype that most numbers are stored in; None if it is one without a name."""
        return max(self.numbers, key=lambda name: self.numbers[name], default=None)


def read_folder(folder: Path, name: str, config: Mapping[str, Any]) -> Weights:
    """Find the weight files of a folder and check that each is whole.

    Raises: ModelError naming the file and what is wrong with it.
    """
    found = next((folder / file for file in _CANDIDATES if (folder / file).is_file()), None)
    if found is None:
        raise ModelError(f"model folder {name} has no weights", _hint_without(folder))
    files = _shards(found) if found.suffix == ".json" else (found,)
    if files[0].suffix == ".safetensors":
        return _measured(files)
    # A pickled file says nothing without being read: what it holds is taken to be of one dtype.
    stored = str(config.get("dtype") or config.get("torch_dtype") or "float32")
    widths = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
    stored = stored if stored in widths else "float32"
    total = sum(file.stat().st_size for file in files)
    return Weights(files, {stored: total // widths[stored]})


def is_pointer(start: bytes) -> bool:
    """Return whether a file is what Git LFS leaves in place of a large file."""
    return start.startswith(b"version https://git-lfs")


def pointer_error(name: str) -> ModelError:
    """Return the error for a file that Git LFS has not fetched."""
    return ModelError(f"{name} is a Git LFS pointer, not the file", "Fetch it: git lfs pull")


def _hint_without(folder: Path) -> str:
    others = sorted(
        visible(file.name)
        for file in folder.iterdir()
        if file.suffix in (".safetensors", ".gguf", ".bin", ".h5", ".msgpack", ".onnx")
    )
    wanted = "It needs model.safetensors (or pytorch_model.bin), whole or in shards with an index"
    if any(file.endswith(".gguf") for file in others):
        wanted = "Give the .gguf file itself"
    return wanted + (f"; there is {', '.join(others[:3])}" if others else "")


def _shards(index: Path) -> tuple[Path, ...]:
    name = visible(str(index))
    try:
        names = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
        inside = bool(names) and all(Path(shard).name == shard for shard in names)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        inside = False
    if not inside:
        raise ModelError(
            f"{name} is not an index of weight files",
            'It needs a "weight_map" from weights to files beside it',
        )
    for shard in names:
        if not (index.parent / shard).is_file():
            raise ModelError(
                f"weight file {visible(str(index.parent / shard))} is missing",
                f"{visible(index.name)} names {len(names)} of them; copy all",
            )
    return tuple(index.parent / shard for shard in names)


def _measured(files: tuple[Path, ...]) -> Weights:
    numbers: Counter[str] = Counter()
    other = 0
    for file in files:
        name = f"weight file {visible(str(file))}"
        for tensor in _header(file, name).values():
            dtype, size = tensor["dtype"], tensor["data_offsets"][1] - tensor["data_offsets"][0]
            if dtype in DTYPE_NAMES:
                numbers[DTYPE_NAMES[dtype]] += size // _WIDTHS[dtype]
            else:
                other += size
    return Weights(files, dict(numbers), other)


def _header(file: Path, name: str) -> dict[str, Any]:
    """Return the entries of a safetensors header, after checking every one."""
    try:
        total = file.stat().st_size
        with file.open("rb") as stream:
            start = stream.read(8)
            if is_pointer(start + stream.read(16)):
                raise pointer_error(name)
            length = int.from_bytes(start, "little")
            if total < 8 or length > min(total - 8, _LARGEST_HEADER):
                raise _damaged(
                    name, f"its header should take {length} bytes, and the file has {total}"
                )
            stream.seek(8)
            entries = json.loads(stream.read(length))
    except OSError as error:
        raise ModelError(f"{name} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise _damaged(name, f"the {length} bytes of its header are not JSON") from None
    if not isinstance(entries, dict):
        raise _damaged(name, "its header is not an object")
    entries.pop("__metadata__", None)
    end = 0
    for tensor, entry in entries.items():
        end = max(end, _checked_end(entry, name, visible(tensor)))
    if end != total - 8 - length:
        raise _damaged(
            name, f"its header promises {end} bytes of weights, and there are {total - 8 - length}"
        )
    return entries


def _checked_end(entry: Any, name: str, tensor: str) -> int:
    """Return where the bytes of a tensor end."""
    try:
        begin, end = entry["data_offsets"]
        shape, dtype = entry["shape"], entry["dtype"]
        whole = isinstance(dtype, str) and all(
            isinstance(number, int) and number >= 0 for number in (begin, end, *shape)
        )
    except (TypeError, KeyError, ValueError):
        whole = False
    if not whole or begin > end:
        raise _damaged(name, f"its entry for {tensor} has no dtype, shape and place")
    width = _WIDTHS.get(dtype)
    if width is not None and math.prod(shape) * width != end - begin:
        raise _damaged(
            name, f"{tensor} of shape {shape} as {dtype} does not take {end - begin} bytes"
        )
    return int(end)


def _damaged(name: str, why: str) -> ModelError:
    return ModelError(f"{name} is damaged: {why}", "Copy or download it again")
