"""The same row as FlashAttention computes it, block by block."""

from collections.abc import Iterator

from attnscope.attention.online_softmax import Block, OnlineRow, online_row
from attnscope.attention.reference import difference
from attnscope.explain.document import Step, Table
from attnscope.explain.numbers import Column, Row, kept, key_table, left_out, vector

_FORMULA = (
    "m = max(m, max s); c = exp(m before − m); p = exp(s − m); ℓ = c·ℓ + Σ p; o = c·o + Σ p·v"
)

_ENDING = (
    "The context is divided once, at the end. It is the softmax's own, and no row of weights was "
    "ever kept; they are computed here only to be compared."
)
_NO_UNDERFLOW = (
    " FlashAttention hides keys before the softmax, so no row sum can underflow as in the "
    "renormalize method."
)


def flash_steps(row: Row, size: int) -> Iterator[Step]:
    """Yield a step for each block of `size` keys, and one for the end.

    Source: Dao et al. 2022, "FlashAttention", algorithm 1, for one row.
    """
    online = online_row(row.of(row.result.logits), row.seen, row.values, size, row.sink)
    for i, block in enumerate(online.blocks):
        yield _block(row, block, f"block {i + 1} of {len(online.blocks)}", i + 1)
    yield _end(row, online)


def _end(row: Row, online: OnlineRow) -> Step:
    last, places = online.blocks[-1], kept(online.context, row.dims)
    own = row.of(row.result.weights)
    columns: list[Column] = [
        ("weight, block by block", online.weights, True, True),
        ("weight of this run", own, True, True),
    ]
    both = (tuple(online.context[places].tolist()), tuple(row.context[places].tolist()))
    names = tuple(f"z{i}" for i in places)
    return Step(
        "flash-end",
        "FlashAttention, the end",
        "z = o / ℓ; weight = exp(s − m) / ℓ",
        _ENDING + (_NO_UNDERFLOW if row.result.mask_steps is not None else ""),
        tuple(online.context.shape),
        row.head,
        facts=(
            ("m", float(last.maximum)),
            ("ℓ", float(last.total)),
            ("max |Δ| of the weights to this run's", difference(online.weights, own)),
            ("max |Δ| of the context to this run's", difference(online.context, row.context)),
        ),
        tables=(
            key_table(row, columns),
            Table("context", ("block by block", "of this run"), names, both),
        ),
        left_out=left_out("numbers of z", online.context, places),
    )


def _block(row: Row, block: Block, which: str, number: int) -> Step:
    keys = list(range(block.start, block.end))
    whole = row.seen.new_zeros(len(row.seen), dtype=block.logits.dtype)
    scores, exponentials = whole.clone(), whole.clone()
    scores[block.start : block.end] = block.logits
    exponentials[block.start : block.end] = block.exponentials
    places = kept(block.context, row.dims)
    start = (("sink", float(row.sink)),) if row.sink is not None and number == 1 else ()
    return Step(
        f"flash-{number}",
        f"FlashAttention, {which}: keys {keys[0]} to {keys[-1]}",
        _FORMULA,
        _about(row, keys, number),
        tuple(block.context.shape),
        row.head,
        facts=(
            *start,
            ("largest score of the block", float(block.block_maximum)),
            ("running maximum m", float(block.maximum)),
            ("rescaling factor c", float(block.rescaling)),
            ("running sum ℓ", float(block.total)),
        ),
        tables=(
            key_table(row, [("s", scores, True, False), ("p", exponentials, True, False)], keys),
            vector("running context, not divided", row.query_name, "o", block.context, places),
        ),
        left_out=left_out("numbers of o", block.context, places),
    )


def _about(row: Row, keys: list[int], number: int) -> str:
    if not bool(row.seen[keys].any()):
        return "Every key of this block is hidden: it changes nothing."
    if number > 1:
        return (
            "What was added up so far belongs to the old maximum: times c it belongs to the new "
            "one, and the block is added."
        )
    if row.sink is not None:
        return "The row starts with its sink: m is the sink, ℓ is 1 and o is 0."
    return "The row starts with m = −∞, ℓ = 0 and o = 0, so c is 0: there is nothing to rescale."
