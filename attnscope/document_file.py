"""What the files of documents share: safetensors with one JSON header, read with care."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from attnscope.errors import AttnscopeError, RunFileError
from attnscope.text.display import visible

# Every kind of file of attnscope, by the entry of its header.
_KNOWN = {
    "attnscope": "a run file",
    "attnscope-record": "a record of a program",
    "attnscope-measures": "a file of measures",
}


@dataclass(frozen=True, slots=True)
class FileKind:
    """One kind of file: the entry of its header, the newest format, its name, the way out.

    `foreign` says what another safetensors file is, and `hint` what to do with that.
    """

    key: str
    version: int
    name: str
    again: str
    foreign: str
    hint: str


def holds(path: str | Path, kind: FileKind) -> bool:
    """Return whether a file says that it is of this kind, whatever else may be wrong with it."""
    try:
        with safetensors.safe_open(Path(path), framework="pt") as file:
            return kind.key in (file.metadata() or {})
    except (safetensors.SafetensorError, OSError, ValueError):
        return False


def read_document(path: Path, kind: FileKind) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the header and the tensors of a file. Raises: RunFileError naming the file."""
    name = visible(str(path))
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if kind.key not in metadata:
                raise _other(name, metadata, kind)
            header = _header(metadata[kind.key], name, kind)
            # cloned: kernels round in another way where numbers are not aligned as torch does it
            return header, {key: file.get_tensor(key).clone() for key in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise RunFileError(f"there is no {kind.name} {name}", "Check the path") from None
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        reason = visible(" ".join(str(error).split()))
        raise RunFileError(f"{name} is not a readable {kind.name}: {reason}", kind.again) from None


@contextmanager
def damaged(path: Path, kind: FileKind) -> Iterator[None]:
    """Turn whatever a forged or broken file brings about into one RunFileError."""
    try:
        yield
    except (
        KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, OverflowError,
        AttnscopeError,
    ) as error:  # fmt: skip
        reason = visible(" ".join(str(error).split()))
        raise RunFileError(
            f"{kind.name} {visible(str(path))} is damaged: {type(error).__name__} {reason}",
            kind.again,
        ) from None


def _other(name: str, metadata: dict[str, str], kind: FileKind) -> RunFileError:
    for key, known in _KNOWN.items():
        if key in metadata:
            return RunFileError(
                f"{name} is {known}, and no {kind.name}", "Show it with attnscope show"
            )
    return RunFileError(f"{name} {kind.foreign}", kind.hint)


def _header(text: str, name: str, kind: FileKind) -> dict[str, Any]:
    try:
        header = json.loads(text, parse_constant=_no_constant)
        version = header["format"]
    except (ValueError, KeyError, TypeError, RecursionError):
        version = None
    if type(version) is not int or version < 1:
        raise RunFileError(f"{kind.name} {name} has a damaged header", kind.again)
    if version > kind.version:
        raise RunFileError(
            f"{kind.name} {name} has format {version}; this attnscope reads up to {kind.version}",
            "Install a newer attnscope",
        )
    return dict(header)


def _no_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not strict JSON")
