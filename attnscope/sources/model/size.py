"""In which dtype a model is computed, and whether its weights fit into memory."""

import torch

from attnscope.attention.device import check_bytes, find_dtype
from attnscope.errors import SizeError
from attnscope.sources.model.weights import Weights


def choose_dtype(asked: str | None, weights: Weights, device: torch.device) -> torch.dtype:
    """Return the dtype that the weights are loaded and computed in.

    Without a wish: on the CPU float32, since half types are many times slower there, or float64
    if the weights are; on other devices as the weights are stored.
    Raises: OptionError for an unknown name.
    """
    if asked is not None:
        return find_dtype(asked)
    stored = weights.stored or "float32"
    if device.type == "cpu" and stored != "float64":
        return torch.float32
    if device.type == "mps" and stored == "float64":  # not known there
        return torch.float32
    return find_dtype(stored)


def bytes_of(weights: Weights, dtype: torch.dtype, *, quantised: bool = False) -> int:
    """Return how many bytes the weights take once they are loaded.

    Quantised weights keep the types that they are stored in.
    """
    if quantised:
        return weights.other_bytes + sum(
            count * find_dtype(name).itemsize for name, count in weights.numbers.items()
        )
    return weights.other_bytes + sum(weights.numbers.values()) * dtype.itemsize


def check_memory(needed: int, name: str, dtype: torch.dtype, device: torch.device) -> None:
    """Raise SizeError if `needed` bytes of weights are more than is free, here or on the device."""
    what = f"the weights of {name} as {str(dtype).removeprefix('torch.')}"
    smaller = "Use a smaller model"
    if dtype.itemsize > 2:
        smaller = "Use --dtype bfloat16, which takes less, or a smaller model"
    try:
        check_bytes(needed, what)
    except SizeError as error:
        raise SizeError(error.message, smaller) from None
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        if needed > free:
            raise SizeError(
                f"{what} need {needed / 1e9:.1f} GB of memory on {device}, and {free / 1e9:.1f} "
                "GB are free",
                smaller,
            )
