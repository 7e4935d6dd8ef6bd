"""Devices and dtypes by name, and whether a run fits into memory."""

import os
from pathlib import Path

import torch

from attnscope.errors import DeviceError, OptionError, SizeError
from attnscope.text.display import visible

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}

# Matrices of heads × queries × keys that are alive at once: the steps, torch's own, temporaries.
_MATRICES = 10


def dense_bytes(heads: int, queries: int, keys: int, dtype: torch.dtype) -> int:
    """Return how much memory a run with all its matrices takes."""
    return heads * queries * keys * dtype.itemsize * _MATRICES


def find_device(name: str) -> torch.device:
    """Return the device called `name`: cpu, cuda, cuda:N, mps or auto.

    Raises: DeviceError naming what is there.
    """
    if name == "auto":
        return torch.device(_available()[-1])
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda", "mps"):
        raise DeviceError(f'there is no device "{visible(name)}"', _known())
    if device.type not in _available():
        raise DeviceError(f"device {name} is not there: this torch sees none", _known())
    count = torch.cuda.device_count() if device.type == "cuda" else 1
    if device.index is not None and device.index >= count:
        raise DeviceError(f"device {name} is not there: {device.type} has {count}", _known())
    return device


def find_dtype(name: str) -> torch.dtype:
    """Return the dtype called `name`."""
    if name not in DTYPES:
        raise OptionError(
            f'unknown dtype "{visible(str(name))}"', f"Give one of {', '.join(DTYPES)}"
        )
    return DTYPES[name]


def check_fits(heads: int, queries: int, keys: int, dtype: torch.dtype) -> None:
    """Raise SizeError if the matrices of a run need more memory than is free."""
    needed = dense_bytes(heads, queries, keys, dtype)
    check_bytes(needed, f"matrices of {heads} × {queries} × {keys} of {str(dtype)[6:]} numbers")


def check_bytes(needed: int, what: str) -> None:
    """Raise SizeError if `needed` bytes for `what` are more than this machine has free."""
    free = free_bytes()
    if needed > free:
        raise SizeError(
            f"{what} need {needed / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free",
            "Use fewer tokens, fewer heads or smaller widths",
        )


def free_bytes() -> int:
    """Return how much can be had without swapping: free memory and what caches give back."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # not known on this system: do not refuse
        return 1 << 62


def _available() -> list[str]:
    names = ["cpu"]
    if torch.backends.mps.is_available():
        names.append("mps")
    if torch.cuda.is_available():
        names.append("cuda")
    return names


def _known() -> str:
    return f"There is: {', '.join(_available())}; auto takes the last"
