"""Continue texts greedily: always the likeliest token."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module

import torch
from torch import Tensor

from attnscope.errors import OptionError
from attnscope.sources.model.architecture import Kind
from attnscope.sources.model.batch import Batch
from attnscope.sources.model.cut import check_length
from attnscope.sources.model.error import running
from attnscope.sources.model.loaded import LoadedModel
from attnscope.sources.model.quiet import quiet
from attnscope.text.tokenizer import shortened
from attnscope.text.tokens import Tokens


@dataclass(frozen=True, slots=True, eq=False)
class Continuation:
    """The tokens that a model wrote.

    Shapes: ids (texts, steps), on the CPU.
    Units: `lengths` counts the tokens of each text, its end mark among them; what stands after
    it is filled in. Fewer steps than asked for mean that every text came to its end.
    """

    ids: Tensor
    lengths: tuple[int, ...]

    def written(self, text: int) -> tuple[int, ...]:
        """Return the ids that belong to one text."""
        return tuple(self.ids[text, : self.lengths[text]].tolist())


def generate(loaded: LoadedModel, batched: Batch, count: int) -> Continuation:
    """Continue every text of a batch by up to `count` tokens, each the likeliest.

    A text that comes to its end mark stops there. What the model folder says about sampling,
    beams and penalties is not followed, so that the same text gives the same tokens.
    Raises: OptionError for a model that does not write, or for rows that end in different places;
    TextError if the tokens would not fit into the model's context.
    """
    _check_can_write(loaded, batched, count)
    model = loaded.model
    # the model counts positions itself as it goes on
    inputs = {name: x for name, x in batched.inputs.items() if name != "position_ids"}
    if "attention_mask" not in inputs:
        # else padding is guessed from the ids, and a pad token may be part of a text
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    settings = import_module("transformers").GenerationConfig(
        max_new_tokens=count, do_sample=False, num_beams=1, use_cache=True
    )
    with quiet(), running(f"{loaded.name} ({type(model).__name__})"), torch.no_grad():
        out = model.generate(**inputs, generation_config=settings)
    given = inputs["decoder_input_ids" if batched.targets else "input_ids"].shape[1]
    ids = out[:, given:].cpu()
    return Continuation(ids, _lengths(ids, model.generation_config.eos_token_id))


def continued(loaded: LoadedModel, tokens: Tokens, written: Sequence[int]) -> Tokens:
    """Return tokens with those that a model wrote after them, as one text.

    Units: the spans of what was written are in the longer text; a token that only begins a
    character has an empty one.
    """
    ids = [*tokens.ids, *written]
    text, spans = tokens.text, list(tokens.spans)
    so_far = ""
    for count in range(1, len(written) + 1):
        with quiet():
            decoded = loaded.tokenizer.decode(
                list(written[:count]), skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        # the mark of a broken character gives way to the character once it is whole
        whole = decoded.rstrip("\ufffd")
        grown = whole if whole.startswith(so_far) else so_far
        spans.append((len(text) + len(so_far), len(text) + len(grown)))
        so_far = grown
    added = [
        mark and start == end
        for mark, (start, end) in zip(tokens.special, tokens.spans, strict=True)
    ]
    return loaded.vocabulary.tokens(text + so_far, ids, spans, [*added, *(False for _ in written)])


def _check_can_write(loaded: LoadedModel, batched: Batch, count: int) -> None:
    if count < 1:
        raise OptionError(f"{count} tokens to generate", "Give 1 or more")
    model = loaded.model
    if loaded.kind is Kind.ENCODER or not model.can_generate():
        raise OptionError(
            f"{loaded.name} ({type(model).__name__}) does not write text",
            "Leave out the option that generates, or give a model with a language head",
        )
    rows = batched.targets or batched.texts
    for row in rows:
        check_length(loaded, len(row), count, shortened(row.text))
    lengths = [len(row) for row in rows]
    longest = max(lengths)
    ends = zip((0,) * len(rows) if batched.targets else batched.starts, lengths, strict=True)
    if any(start + length < longest for start, length in ends):
        raise OptionError(
            f"texts of {min(lengths)} to {longest} tokens cannot be continued together by "
            f"{type(model).__name__}, which counts positions from the start of a row",
            "Run them one at a time",
        )


def _lengths(ids: Tensor, ends: int | list[int] | None) -> tuple[int, ...]:
    known = torch.tensor([ends] if isinstance(ends, int) else ends or [], dtype=ids.dtype)
    lengths = []
    for row in ids:
        places = torch.isin(row, known).nonzero()
        lengths.append(int(places[0]) + 1 if len(places) else len(row))
    return tuple(lengths)
