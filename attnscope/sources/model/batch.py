"""Several texts as one batch of tensors, and one run of the model over them.

Rows are filled up so that every text computes what it would alone: on the left for decoders, so
that each ends where writing goes on, with positions that count only its own tokens; on the right
for the others, and for decoders that count positions without asking. What is filled in is hidden
by a mask, so any token serves for it.
"""

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from attnscope.errors import OptionError
from attnscope.sources.model.architecture import Kind
from attnscope.sources.model.cut import check_length
from attnscope.sources.model.error import ModelError, running
from attnscope.sources.model.loaded import LoadedModel, pad_id
from attnscope.sources.model.quiet import quiet
from attnscope.text.tokenizer import shortened
from attnscope.text.tokens import Tokens

# What tables of learned or computed positions are called in transformers.
_POSITIONS = re.compile(r"(embed_positions|position_embeddings|position_embedding|wpe|pos_emb\w*)$")


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Texts as the model takes them.

    `targets` are the rows of an encoder-decoder's decoder as they are fed: the token that starts
    it, then the text, without a mark of its end. Empty for other models.
    Shapes: every tensor of `inputs` (texts, tokens of the longest).
    Units: token i of text t stands at `starts[t] + i` of its row; a target begins at 0.
    """

    inputs: dict[str, Tensor]
    texts: tuple[Tokens, ...]
    targets: tuple[Tokens, ...]
    starts: tuple[int, ...]

    @property
    def lengths(self) -> tuple[int, ...]:
        """How many tokens each text has."""
        return tuple(len(text) for text in self.texts)

    @property
    def target_lengths(self) -> tuple[int, ...]:
        """How many tokens the decoder gets for each text; empty without one."""
        return tuple(len(target) for target in self.targets)


def batch(
    loaded: LoadedModel, texts: Sequence[Tokens], targets: Sequence[Tokens] | None = None
) -> Batch:
    """Make a batch of texts, and for an encoder-decoder of what its decoder reads.

    Without `targets` a decoder gets the token that starts it, as it does when it begins to write.
    Raises: OptionError for targets that do not fit; TextError for one that is too long.
    """
    if not texts:
        raise OptionError("there is no text in the batch", "Give at least one")
    filler = pad_id(loaded.model, loaded.tokenizer)
    left = loaded.kind is Kind.DECODER and _may_start_anywhere(loaded.model)
    ids, mask, starts = _filled([text.ids for text in texts], filler, left=left)
    inputs = {"input_ids": ids}
    if not mask.all():
        inputs["attention_mask"] = mask
        if left and "position_ids" in _parameters(loaded.model):
            inputs["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    rows = _decoder_rows(loaded, len(texts), targets)
    if rows:
        ids, mask, _ = _filled([row.ids for row in rows], filler, left=False)
        inputs["decoder_input_ids"] = ids
        if not mask.all():
            inputs["decoder_attention_mask"] = mask
    moved = {name: tensor.to(loaded.device) for name, tensor in inputs.items()}
    return Batch(moved, tuple(texts), rows, starts)


def forward(loaded: LoadedModel, batched: Batch) -> Any:
    """Run the model once over a batch and return what it returns.

    Nothing is kept for later tokens, and only the last place is scored against the vocabulary
    where the model can spare the others.
    """
    parameters = _parameters(loaded.model)
    wanted = {"use_cache": False, "logits_to_keep": 1}
    options = {name: value for name, value in wanted.items() if name in parameters}
    with quiet(), running(f"{loaded.name} ({type(loaded.model).__name__})"), torch.no_grad():
        return loaded.model(**batched.inputs, **options)


def _parameters(model: Any) -> frozenset[str]:
    return frozenset(inspect.signature(model.forward).parameters)


def _may_start_anywhere(model: Any) -> bool:
    """Return whether a decoder can be told positions, or has only distances between tokens."""
    return "position_ids" in _parameters(model) or not any(
        _POSITIONS.search(name) for name, _ in model.named_modules()
    )


def _filled(
    rows: Sequence[Sequence[int]], filler: int, *, left: bool
) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """Return rows of equal length, a mask that is 1 on their own tokens, and where those begin."""
    longest = max(len(row) for row in rows)
    ids = torch.full((len(rows), longest), filler)
    mask = torch.zeros_like(ids)
    starts = tuple(longest - len(row) if left else 0 for row in rows)
    for i, (row, start) in enumerate(zip(rows, starts, strict=True)):
        ids[i, start : start + len(row)] = torch.tensor(row)
        mask[i, start : start + len(row)] = 1
    return ids, mask, starts


def _decoder_rows(
    loaded: LoadedModel, count: int, targets: Sequence[Tokens] | None
) -> tuple[Tokens, ...]:
    """Return what the decoder of an encoder-decoder reads, as the model itself shifts targets.

    The row that predicts a token stands one place before it: a start token comes first, and the
    mark of the end, which predicts nothing, is left out.
    """
    if loaded.kind is not Kind.ENCODER_DECODER:
        if targets is not None:
            raise OptionError(
                f"{loaded.name} is {_a(loaded.kind)}: it takes no target",
                "Only an encoder-decoder reads two texts",
            )
        return ()
    start = _start_id(loaded)
    if targets is None:
        return (loaded.vocabulary.tokens("", [start], None, [True]),) * count
    if len(targets) != count:
        raise OptionError(
            f"there are {count} texts and {len(targets)} targets", "Give one target per text"
        )
    rows = tuple(_started(loaded, start, target) for target in targets)
    for row in rows:
        check_length(loaded, len(row), 0, f"the target {shortened(row.text)}")
    return rows


def _started(loaded: LoadedModel, start: int, target: Tokens) -> Tokens:
    end = len(target)
    if end and target.ids[-1] == loaded.tokenizer.eos_token_id:
        end -= 1
    first = loaded.vocabulary.tokens("", [start], None, [True])
    return replace(
        target,
        pieces=first.pieces + target.pieces[:end],
        labels=first.labels + target.labels[:end],
        ids=first.ids + target.ids[:end],
        spans=first.spans + target.spans[:end],
        special=first.special + target.special[:end],
        unknown=first.unknown + target.unknown[:end],
    )


def _start_id(loaded: LoadedModel) -> int:
    config = loaded.model.config
    sources = (getattr(loaded.model, "generation_config", None), config)
    for name in ("decoder_start_token_id", "bos_token_id"):
        for source in sources:
            token = getattr(source, name, None)
            if isinstance(token, int):
                return token
    raise ModelError(
        f"{loaded.name} does not say which token starts its decoder",
        'Set "decoder_start_token_id" in its config.json',
    )


def _a(kind: Kind) -> str:
    return f"an {kind}" if kind.startswith("e") else f"a {kind}"
