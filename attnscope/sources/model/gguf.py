"""The header of a .gguf file, and a faster way to load one.

Source of the format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import math
import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from attnscope.sources.model.error import ModelError
from attnscope.sources.model.weights import Weights, is_pointer, pointer_error

# Value types of the metadata: unsigned, signed and floating numbers, bool.
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?"}
_NUMBERS |= {10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_VERSIONS = (2, 3)


@dataclass(frozen=True, slots=True)
class Header:
    """What a .gguf file says of itself. Lists in the metadata are only counted.

    Units: `shapes` are in numbers, by tensor name.
    """

    metadata: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]


def read_header(file: Path, name: str) -> Header:
    """Read metadata and tensor shapes, not the weights.

    Raises: ModelError naming the file and what is wrong with it.
    """
    try:
        with file.open("rb") as stream:
            start = stream.read(24)
            if is_pointer(start):
                raise pointer_error(name)
            if start[:4] != b"GGUF":
                raise ModelError(f"{name} is not a GGUF file", 'It should begin with "GGUF"')
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
                header, end = _parsed(data, name)
                if end >= len(data):
                    raise ModelError(f"{name} is cut short", "Copy or download it again")
                return header
    except OSError as error:
        raise ModelError(f"{name} cannot be read: {error.strerror}") from None
    except (struct.error, OverflowError, RecursionError):
        raise ModelError(
            f"the header of {name} is damaged or cut short", "Copy or download it again"
        ) from None


def measure(file: Path, name: str, header: Header) -> Weights:
    """Return how many numbers the file holds, after checking that it is a whole text model.

    Quantised numbers are unpacked when they are loaded: their stored size says nothing.
    Raises: ModelError naming what is missing.
    """
    if header.metadata.get("split.count", 1) not in (0, 1):
        raise ModelError(
            f"{name} is one of {header.metadata['split.count']} parts",
            "Join them: llama-gguf-split --merge",
        )
    if not header.shapes:
        raise ModelError(f"{name} has no weights", "It may hold a vocabulary only")
    if not header.metadata.get("tokenizer.ggml.tokens"):
        raise ModelError(f"{name} has no tokenizer", "Convert the model again, with its tokenizer")
    total = sum(math.prod(shape) for shape in header.shapes.values())
    return Weights((file,), {"float32": total})


@contextmanager
def read_once() -> Iterator[None]:
    """Make transformers read a .gguf file once, and not for each thing it wants from it.

    It parses a whole file for configuration, tokenizer and weights anew, and its list of names
    for every module: more than half of the time.
    """
    package: Any = import_module("gguf")
    reader, names = package.GGUFReader, package.get_tensor_name_map
    package.GGUFReader, package.get_tensor_name_map = lru_cache(reader), lru_cache(names)
    try:
        yield
    finally:
        package.GGUFReader, package.get_tensor_name_map = reader, names


def _parsed(data: mmap.mmap, name: str) -> tuple[Header, int]:
    """Return the header, and where the last tensor begins at the earliest."""
    version, tensors, entries = struct.unpack_from("<IQQ", data, 4)
    if version not in _VERSIONS:
        raise ModelError(
            f"{name} has GGUF version {version}", f"Known are {', '.join(map(str, _VERSIONS))}"
        )
    place, metadata = 24, {}
    for _ in range(entries):
        key, place = _string(data, place)
        (kind,) = struct.unpack_from("<I", data, place)
        metadata[key], place = _value(data, place + 4, kind, name)
    shapes: dict[str, tuple[int, ...]] = {}
    last = 0
    for _ in range(tensors):
        tensor, place = _string(data, place)
        (axes,) = struct.unpack_from("<I", data, place)
        shapes[tensor] = struct.unpack_from(f"<{axes}Q", data, place + 4)
        place += 4 + 8 * axes
        _, offset = struct.unpack_from("<IQ", data, place)
        place += 12
        last = max(last, offset)
    return Header(metadata, shapes), place + last


def _string(data: mmap.mmap, place: int) -> tuple[str, int]:
    (length,) = struct.unpack_from("<Q", data, place)
    end = place + 8 + length  # past the end of the file it is found out by what reads on there
    return data[place + 8 : end].decode("utf-8", "replace"), end


def _value(data: mmap.mmap, place: int, kind: int, name: str) -> tuple[Any, int]:
    if kind in _NUMBERS:
        form = f"<{_NUMBERS[kind]}"
        return struct.unpack_from(form, data, place)[0], place + struct.calcsize(form)
    if kind == _STRING:
        return _string(data, place)
    if kind != _ARRAY:
        raise ModelError(
            f"{name} holds metadata of the unknown type {kind}", "Copy or download it again"
        )
    inner, count = struct.unpack_from("<IQ", data, place)
    place += 12
    if inner in _NUMBERS:
        return count, place + count * struct.calcsize(f"<{_NUMBERS[inner]}")
    for _ in range(count):
        _, place = _value(data, place, inner, name)
    return count, place
