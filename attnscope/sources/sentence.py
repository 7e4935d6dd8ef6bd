"""A sentence (or two) with seeded toy weights, run through attention."""

import torch

from attnscope.attention.device import check_bytes, check_fits, find_device, find_dtype
from attnscope.attention.engine import find_method
from attnscope.attention.masks import CAUSAL, EVERYTHING
from attnscope.attention.projections import draw_embeddings, draw_projections
from attnscope.errors import OptionError
from attnscope.run import Axis, Inputs, Run, Settings, axis_of_positions, axis_of_tokens
from attnscope.sources.given_call import GivenCall, run_call
from attnscope.sources.options import (
    D_VALUE,
    VOCABULARY_SIZE,
    Align,
    SentenceOptions,
    causal_offset,
)
from attnscope.text.tokens import Tokens

# The lesson's second sequence: 8 vectors without words, drawn after the weights.
LESSON_KEYS = 8


def run_tokens(
    queries: Tokens,
    options: SentenceOptions,
    *,
    keys: Tokens | None = None,
    lesson_keys: bool = False,
) -> Run:
    """Run tokens through attention with weights drawn from a seed; see `draw_call`."""
    key_count = LESSON_KEYS if lesson_keys else len(keys or queries)
    check_fits(options.heads, len(queries), key_count, find_dtype(options.dtype))
    return run_call(draw_call(queries, options, keys=keys, lesson_keys=lesson_keys))


def draw_call(
    queries: Tokens,
    options: SentenceOptions,
    *,
    keys: Tokens | None = None,
    lesson_keys: bool = False,
) -> GivenCall:
    """Return the attention call of tokens under weights drawn from a seed.

    `keys` makes it cross-attention with a second text, `lesson_keys` with eight drawn vectors.

    The draws, on the CPU in float32: after the seed an embedding table from a standard normal
    (vocabulary_size × d_model); after the seed again, for each head W_query, W_key (d_model ×
    d_key) and W_value (d_model × d_value) uniform in [0, 1); then the lesson's second sequence.
    """
    device, dtype = find_device(options.device), find_dtype(options.dtype)
    rows, notes = _table_rows(options, queries if keys is None else keys)
    key_count = LESSON_KEYS if lesson_keys else len(keys or queries)
    offset = causal_offset(options.causal, options.align, len(queries), key_count)
    if options.d_value_is_uneven:
        notes.append(
            f"{options.heads} heads do not divide {D_VALUE} evenly: each head's values have width "
            f"{D_VALUE} (--d-value sets it)"
        )
    _check_size(options, rows)

    query_inputs = draw_embeddings(options.seed, rows, options.d_model, list(queries.ids))
    generator = torch.Generator().manual_seed(options.seed)
    projections = draw_projections(
        generator, options.heads, options.d_model, options.d_key, options.head_d_value
    )
    query_axis = axis_of_tokens(queries)
    key_axis, key_inputs = query_axis, query_inputs
    if lesson_keys:
        key_axis = axis_of_positions("x", LESSON_KEYS)
        key_inputs = torch.rand(LESSON_KEYS, options.d_model, generator=generator)
    elif keys is not None:
        key_axis = axis_of_tokens(keys)
        key_inputs = draw_embeddings(options.seed, rows, options.d_model, list(keys.ids))
    inputs = Inputs(
        query_inputs.to(device, dtype), key_inputs.to(device, dtype), projections.to(device, dtype)
    )
    return _call(options, inputs, (query_axis, key_axis), rows, offset, notes)


def _call(
    options: SentenceOptions,
    inputs: Inputs,
    axes: tuple[Axis, Axis],
    rows: int,
    offset: int,
    notes: list[str],
) -> GivenCall:
    queries, keys = axes
    find_method(options.mask_method)
    with torch.no_grad():
        call = inputs.projections.call(
            inputs.query_inputs,
            inputs.key_inputs,
            mask=CAUSAL if options.causal else EVERYTHING,
            query_offset=offset,
        )
    settings = Settings(
        source="sentence",
        variant=variant_of(options.heads, queries is not keys, options.causal),
        heads=options.heads,
        key_heads=options.heads,
        d_key=options.d_key,
        d_value=options.head_d_value,
        causal=options.causal,
        align=_align(options.align, len(queries), len(keys)),
        mask_method=options.mask_method,
        scale=call.scale,
        dtype=options.dtype,
        device=str(call.query.device),
        d_model=options.d_model,
        vocabulary_size=rows,
        seed=options.seed,
    )
    for axis in axes:
        if axis.tokens is not None:
            notes = [*notes, *axis.tokens.vocabulary.notes]
    return GivenCall(call, settings, queries, keys, tuple(dict.fromkeys(notes)), inputs)


def variant_of(heads: int, crossed: bool, causal: bool) -> str:
    """Return the name of the variant that the flags add up to."""
    parts = [
        *(["multi-head"] if heads > 1 else []),
        *(["cross"] if crossed else []),
        *(["causal"] if causal else []),
    ]
    return "+".join(parts) or "self"


def _align(align: Align | None, queries: int, keys: int) -> str | None:
    return str(align) if align is not None and queries != keys else None


def _table_rows(options: SentenceOptions, tokens: Tokens) -> tuple[int, list[str]]:
    """Return how many rows the embedding table has, and a note if that is not the default."""
    needed = tokens.vocabulary.rows
    if options.vocabulary_size is None:
        if needed <= VOCABULARY_SIZE:
            return VOCABULARY_SIZE, []
        return needed, [
            f"the embedding table has {needed} rows, not {VOCABULARY_SIZE}: as many as the "
            "vocabulary (the size is part of what the seed draws)"
        ]
    if options.vocabulary_size < needed:
        raise OptionError(
            f"--vocabulary-size {options.vocabulary_size} is too small for a vocabulary with ids "
            f"up to {needed - 1}",
            f"Give {needed} or more",
        )
    return options.vocabulary_size, []


def _check_size(options: SentenceOptions, rows: int) -> None:
    check_bytes(rows * options.d_model * 4, f"{rows} × {options.d_model} embeddings")
    width = 2 * options.d_key + options.head_d_value
    check_bytes(
        options.heads * options.d_model * width * 8,
        f"{options.heads} heads of {options.d_model} × {width} projections",
    )
