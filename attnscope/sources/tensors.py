"""query, key and value from another program, run through attention."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from attnscope.attention.call import AttentionCall
from attnscope.attention.device import find_device, find_dtype
from attnscope.attention.masks import CAUSAL, EVERYTHING, Mask, from_tensor, split_additive
from attnscope.errors import ShapeError, TensorError
from attnscope.run import Run, Settings, axis_of_positions
from attnscope.sources.given_call import GivenCall, run_call
from attnscope.sources.options import Align, causal_offset
from attnscope.sources.tensor_file import REQUIRED, read_tensors
from attnscope.text.display import visible


@dataclass(frozen=True, slots=True)
class TensorOptions:
    """How to run tensors from a file. A dtype of None is float32, or a stored float64."""

    causal: bool = False
    align: Align | None = None
    mask_method: str = "neg-inf"
    device: str = "cpu"
    dtype: str | None = None


def run_tensors(path: Path, options: TensorOptions) -> Run:
    """Run query, key and value from a file (.json, .npz, .safetensors) through attention.

    Raises: TensorError, ShapeError naming the entry and both numbers; SizeError.
    """
    return run_call(read_call(path, options))


def read_call(path: Path, options: TensorOptions) -> GivenCall:
    """Read query, key and value from a file; nothing is computed yet.

    The file may also hold mask (bool or 0/1, True = may see; or floats to add), scale, bias,
    softcap and sinks. A mask in the file and `causal` both apply: a key must pass both.

    Raises: TensorError, ShapeError naming the entry and both numbers.
    """
    tensors = read_tensors(path)
    device = find_device(options.device)
    dtype, notes = _dtype(tensors, options.dtype, decimal=path.suffix.lower() == ".json")
    call = _moved(_call(tensors, options, dtype), device)
    queries = axis_of_positions("q", call.queries)
    keys = axis_of_positions("k", call.keys)
    unequal = call.queries != call.keys
    settings = Settings(
        source="tensors",
        variant="+".join(
            [*(["multi-head"] if call.heads > 1 else []), *(["causal"] if options.causal else [])]
        )
        or "single-head",
        heads=call.heads,
        key_heads=call.key_heads,
        d_key=call.query.shape[2],
        d_value=call.value.shape[2],
        causal=options.causal,
        align=str(options.align) if options.align is not None and unequal else None,
        mask_method=options.mask_method,
        scale=call.scale,
        softcap=call.softcap,
        dtype=str(dtype).removeprefix("torch."),
        device=str(call.query.device),
        file=visible(str(path)),
    )
    return GivenCall(call, settings, queries, keys, notes)


def _dtype(
    tensors: dict[str, Tensor], asked: str | None, *, decimal: bool
) -> tuple[torch.dtype, tuple[str, ...]]:
    """Return what to compute in, and a note where the file holds something narrower."""
    if asked is not None:
        return find_dtype(asked), ()
    if decimal:  # a decimal number says nothing of a type: the default, as for a sentence
        return torch.float32, ()
    stored = {tensors[entry].dtype for entry in REQUIRED}
    if stored <= {torch.float32} or not any(dtype.is_floating_point for dtype in stored):
        return torch.float32, ()
    if torch.float64 in stored:
        return torch.float64, ()
    names = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in stored))
    return torch.float32, (
        f"the file holds {names}: widened to float32 (--dtype computes in another)",
    )


def _call(tensors: dict[str, Tensor], options: TensorOptions, dtype: torch.dtype) -> AttentionCall:
    query, key, value = (
        _cast(_three_axes(_real(tensors[entry], entry), entry), dtype, entry) for entry in REQUIRED
    )
    # shapes first: the numbers in a message about the mask would otherwise be of a broken call
    plain = AttentionCall(query, key, value)
    offset = causal_offset(options.causal, options.align, plain.queries, plain.keys)
    mask, bias = _mask(tensors, plain, offset)
    scale = _number(tensors, "scale")
    return AttentionCall(
        query,
        key,
        value,
        scale=plain.scale if scale is None else scale,
        mask=mask & CAUSAL if options.causal else mask,
        bias=bias,
        softcap=_number(tensors, "softcap"),
        sinks=_row(tensors.get("sinks"), dtype),
        query_offset=offset,
    )


def _three_axes(tensor: Tensor, entry: str) -> Tensor:
    if tensor.dim() == 4 and tensor.shape[0] == 1:
        return tensor[0]
    if tensor.dim() == 2:
        return tensor[None]
    if tensor.dim() == 3:
        return tensor
    raise ShapeError(
        f"{entry} has shape {tuple(tensor.shape)}",
        "Give (tokens, width) or (heads, tokens, width), one text at a time",
    )


def _mask(
    tensors: dict[str, Tensor], call: AttentionCall, offset: int
) -> tuple[Mask, Tensor | None]:
    mask, bias = EVERYTHING, None
    if "bias" in tensors:  # −inf is a way to hide here too
        seen, bias = split_additive(_real(tensors["bias"], "bias").double())
        if not bool(seen.all()):
            seen = seen.expand(call.heads, call.queries, call.keys)
            mask = from_tensor(seen, query_offset=offset, name="bias")
    given = tensors.get("mask")
    if given is None:
        return mask, None if bias is None else _cast(bias, call.query.dtype, "bias")
    if given.dim() == 4 and given.shape[0] == 1:
        given = given[0]
    if given.dim() not in (2, 3) or tuple(given.shape[-2:]) != (call.queries, call.keys):
        raise ShapeError(
            f"mask has shape {tuple(given.shape)} for {call.queries} queries and {call.keys} keys",
            "Give (queries, keys) or (heads, queries, keys)",
        )
    if given.dim() == 3 and given.shape[0] not in (1, call.heads):
        raise ShapeError(
            f"mask has {given.shape[0]} heads and query has {call.heads}", "Give 1 or as many"
        )
    seen, added = _as_visible(given)
    if added is not None:
        bias = added.double() if bias is None else bias + added
    mask = mask & from_tensor(seen, query_offset=offset)
    return mask, None if bias is None else _cast(bias, call.query.dtype, "bias")


def _as_visible(given: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return which keys may be seen, and the bias that an additive mask holds besides."""
    if given.dtype == torch.bool:
        return given, None
    given = _real(given, "mask")
    wide = given.double()
    only_0_and_1 = bool(((wide == 0) | (wide == 1)).all())
    if not given.is_floating_point():
        if not only_0_and_1:
            raise TensorError("mask holds whole numbers other than 0 and 1", "Give 1 = may see")
        return given.bool(), None
    if only_0_and_1 and bool((wide == 1).any()):
        raise TensorError(
            f"mask holds {str(given.dtype)[6:]} zeros and ones, which may mean 1 = may see, or "
            "numbers to add",
            "Give true and false, or whole numbers, for the first; call it bias for the second",
        )
    return split_additive(given)


def _number(tensors: dict[str, Tensor], entry: str) -> float | None:
    tensor = tensors.get(entry)
    if tensor is None:
        return None
    if tensor.numel() != 1 or tensor.is_complex():
        raise ShapeError(f"{entry} has shape {tuple(tensor.shape)}", "Give one number")
    number = float(tensor)
    if not torch.isfinite(torch.tensor(number)) or (entry == "softcap" and number <= 0):
        raise TensorError(
            f"{entry} is {number}",
            "Give a finite number" + (" above 0" if entry == "softcap" else ""),
        )
    return number


def _row(tensor: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return None if tensor is None else _cast(_real(tensor, "sinks"), dtype, "sinks").reshape(-1)


def _real(tensor: Tensor, entry: str) -> Tensor:
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise TensorError(f"{entry} holds {str(tensor.dtype)[6:]}", "Give real numbers")
    return tensor


def _cast(tensor: Tensor, dtype: torch.dtype, entry: str) -> Tensor:
    """Convert to `dtype`. Raises: TensorError naming the first number that it cannot hold."""
    cast = tensor.to(dtype)
    lost = ~cast.isfinite() & tensor.isfinite()
    if bool(lost.any()):
        number, name = float(tensor[lost][0]), str(dtype).removeprefix("torch.")
        raise TensorError(
            f"{entry} holds {number:.6g}, which overflows {name} (largest "
            f"{torch.finfo(dtype).max:.6g})",
            "Choose a wider --dtype",
        )
    return cast


def _moved(call: AttentionCall, device: torch.device) -> AttentionCall:
    if device.type == "cpu":
        return call
    mask = call.mask
    positions = torch.arange(call.queries) + call.query_offset, torch.arange(call.keys)
    if mask not in (EVERYTHING, CAUSAL):  # these two hold no tensor, and make none of T × T
        seen = mask.visible(*positions).to(device)
        mask = from_tensor(seen, query_offset=call.query_offset, name=mask.name)
    return AttentionCall(
        call.query.to(device),
        call.key.to(device),
        call.value.to(device),
        scale=call.scale,
        mask=mask,
        bias=None if call.bias is None else call.bias.to(device),
        softcap=call.softcap,
        sinks=None if call.sinks is None else call.sinks.to(device),
        query_offset=call.query_offset,
    )
