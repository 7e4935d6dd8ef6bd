"""Random tokens of a model's vocabulary: a text's control, and a sequence that repeats itself.

Everything is drawn on the CPU, so that every device gives the same tokens.
"""

from dataclasses import replace

import torch

from attnscope.errors import OptionError
from attnscope.sources.model.loaded import LoadedModel
from attnscope.survey.heads import PROBE_TOKENS
from attnscope.text.tokens import Tokens


class Draws:
    """Draws from the ordinary tokens of a vocabulary: not special, not added, not unknown."""

    def __init__(self, loaded: LoadedModel, seed: int) -> None:
        self._loaded = loaded
        self._generator = torch.Generator().manual_seed(seed)
        self._ids = ordinary_ids(loaded)

    def control(self, tokens: Tokens) -> Tokens:
        """Return a text of the same length with random tokens; special ones stay in place."""
        drawn = torch.randint(len(self._ids), (len(tokens),), generator=self._generator).tolist()
        ids = tuple(
            old if special else self._ids[new]
            for old, special, new in zip(tokens.ids, tokens.special, drawn, strict=True)
        )
        return replace(tokens, ids=ids)

    def probe(self) -> Tokens:
        """Return the token that begins a text, if there is one, and distinct random ones, twice.

        The second time, each token has been seen before, and so has what followed it.
        """
        vocabulary, most = self._loaded.vocabulary, self._loaded.context_length
        start = self._loaded.tokenizer.bos_token_id
        first = [] if start is None else [int(start)]
        count = min(PROBE_TOKENS, len(self._ids))
        if most is not None:
            count = min(count, (most - len(first)) // 2)
        places = torch.randperm(len(self._ids), generator=self._generator)[:count].tolist()
        drawn = [self._ids[place] for place in places]
        return vocabulary.tokens("", [*first, *drawn, *drawn])


def ordinary_ids(loaded: LoadedModel) -> list[int]:
    """Return the ids that texts are made of, in order. Raises: OptionError if there are none."""
    vocabulary = loaded.vocabulary
    table = getattr(loaded.model.get_input_embeddings(), "weight", None)
    rows = vocabulary.rows if table is None else min(vocabulary.rows, table.shape[0])
    left_out = vocabulary.special_ids | vocabulary.added_ids | {vocabulary.unknown_id}
    known = set(vocabulary.tokenizer.get_vocab().values())
    ids = sorted(i for i in known - left_out if i < rows)
    if not ids:
        raise OptionError(
            f"the vocabulary of {loaded.name} has no ordinary tokens",
            "There is nothing to draw a control from",
        )
    return ids
