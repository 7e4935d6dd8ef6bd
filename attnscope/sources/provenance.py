"""With what the numbers were made. No clock and no host name: equal runs give equal bytes."""

import torch
from torch import Tensor

from attnscope import __version__


def provenance(tensor: Tensor) -> dict[str, str]:
    """Return the versions, and the device and dtype that `tensor` lived in."""
    return {
        "attnscope": __version__,
        "torch": torch.__version__,
        "device": str(tensor.device),
        "dtype": str(tensor.dtype).removeprefix("torch."),
    }
