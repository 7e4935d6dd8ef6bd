"""Products of weights and values in any order of axes, and what moves the axis of the keys."""

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Product(NamedTuple):
    """weights · value = output, each (…, rows, columns), the leading axes of output the widest."""

    weights: Tensor
    value: Tensor
    output: Tensor


MATMUL = {
    torch.matmul,
    torch.bmm,
    Tensor.matmul,
    Tensor.bmm,
    Tensor.__matmul__,
    torch.ops.aten.matmul.default,
    torch.ops.aten.bmm.default,
    torch.mm,
    Tensor.mm,
    torch.ops.aten.mm.default,
}
_SWAPS = {torch.transpose, Tensor.transpose, torch.swapaxes, Tensor.swapaxes}
_SWAPS |= {torch.ops.aten.transpose.int}
_PERMUTES = {torch.permute, Tensor.permute, torch.ops.aten.permute.default}
# getters of properties, as a mode sees them
_LAST_TWO = {vars(torch._C.TensorBase)[name].__get__ for name in ("mT", "T")}


def product(
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    out: Tensor,
    weights: Tensor,
    axis: int,
) -> tuple[bool, Product | None]:
    """Return whether `function` is a product, and its parts if it sums over the keys."""
    if function is torch.einsum:
        return True, _of_einsum(args, out, weights, axis)
    if function not in MATMUL:
        return False, None
    a, b = (*args, *kwargs.values())[:2]
    if a is weights and axis == -1 and b.dim() >= 2:
        return True, Product(a, b, out)
    if b is weights and axis == -2 and a.dim() >= 2:
        return True, Product(b.mT, a.mT, out.mT)
    return True, None


def key_axis(
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    out: Tensor,
    weights: Tensor,
    axis: int,
) -> int | None:
    """Return where the keys are after one more step, counted from the end; None: gone."""
    rank = weights.dim()
    if function in _SWAPS:
        a, b = (x % rank - rank for x in (*args[1:], *kwargs.values())[:2])
        return b if axis == a else a if axis == b else axis
    if function in _PERMUTES:
        order = args[1:] if len(args) > 2 else (args[1] if len(args) > 1 else kwargs["dims"])
        return [x % rank - rank for x in order].index(axis) - rank
    if function in _LAST_TWO:
        return {-1: -2, -2: -1}.get(axis, axis)
    if out.dim() == rank:
        return axis
    # axes were joined, split or added: the keys' is found again only if it is as long as it was
    kept = out.dim() >= -axis and out.shape[axis] == weights.shape[axis]
    return axis if kept else None


def _of_einsum(args: tuple[Any, ...], out: Tensor, weights: Tensor, axis: int) -> Product | None:
    equation, operands = args[0], args[1:]
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = tuple(operands[0])
    if not isinstance(equation, str) or len(operands) != 2:
        return None
    inputs, _, result = equation.replace(" ", "").partition("->")
    parts = inputs.split(",")
    at = 0 if operands[0] is weights else 1
    mine, theirs = _spelled(parts[at], weights), _spelled(parts[1 - at], operands[1 - at])
    result = _spelled(result, out)
    if len(mine) != weights.dim() or not result:
        return None
    key = mine[axis]
    rows = [x for x in mine if x in result and x not in theirs]
    columns = [x for x in theirs if x in result and x not in mine]
    if key not in theirs or key in result or not rows or len(columns) != 1:
        return None
    row, column = rows[-1], columns[0]
    lead = [x for x in mine if x in result and x != row]
    if {*lead, row, key} != {*mine} or {*theirs} - {*lead, key, column}:
        return None
    return Product(
        _ordered(weights, mine, [*lead, row, key]),
        _ordered(operands[1 - at], theirs, [*lead, key, column]),
        _ordered(out, result, [*lead, row, column]),
    )


def _spelled(letters: str, tensor: Tensor) -> str:
    """Return one letter per axis: an ellipsis stands for those that the others leave."""
    if "..." not in letters:
        return letters
    missing = tensor.dim() - (len(letters) - 3)
    # counted from the right, as broadcasting does
    names = "".join(chr(0x3B1 + missing - 1 - i) for i in range(missing))
    return letters.replace("...", names)


def _ordered(tensor: Tensor, letters: str, wanted: list[str]) -> Tensor:
    """Return the axes in another order; one that is not there gets length 1."""
    there = [x for x in wanted if x in letters]
    tensor = tensor.permute([letters.index(x) for x in there])
    for place, letter in enumerate(wanted):
        if letter not in letters:
            tensor = tensor.unsqueeze(place)
    return tensor
