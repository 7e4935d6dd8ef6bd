"""What a source needs to be told, checked once. No torch here, so that mistakes are found first."""

from dataclasses import dataclass
from enum import StrEnum

from attnscope.errors import OptionError

# The lesson's sizes: an embedding of 3, queries and keys of 2, context vectors of 4.
D_MODEL, D_KEY, D_VALUE, VOCABULARY_SIZE, SEED = 3, 2, 4, 50_000, 123


class Align(StrEnum):
    """Where the causal triangle starts when there are more keys than queries, or fewer."""

    TOP_LEFT = "top-left"  # the first query sees the first key
    BOTTOM_RIGHT = "bottom-right"  # the last query sees every key


@dataclass(frozen=True, slots=True)
class SentenceOptions:
    """How to run a sentence. `None` means: the default that fits the rest."""

    heads: int = 1
    causal: bool = False
    align: Align | None = None
    d_model: int = D_MODEL
    d_key: int = D_KEY
    d_value: int | None = None
    vocabulary_size: int | None = None
    seed: int = SEED
    mask_method: str = "neg-inf"
    device: str = "cpu"
    dtype: str = "float32"

    def __post_init__(self) -> None:
        for name in ("heads", "d_model", "d_key", "d_value", "vocabulary_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(
                    f"--{name.replace('_', '-')} {value} is not positive", "Give 1 or more"
                )
        if not -(2**63) <= self.seed < 2**64:
            raise OptionError(f"--seed {self.seed} is out of range", "Give a number of 64 bits")

    @property
    def head_d_value(self) -> int:
        """The width of each head's values: by default the concatenation keeps width 4.

        If the heads do not divide 4, each head gets 4.
        """
        if self.d_value is not None:
            return self.d_value
        return D_VALUE if self.d_value_is_uneven else D_VALUE // self.heads

    @property
    def d_value_is_uneven(self) -> bool:
        """Whether the default width of 4 cannot be shared evenly among the heads."""
        return self.d_value is None and D_VALUE % self.heads != 0


def causal_offset(causal: bool, align: Align | None, queries: int, keys: int) -> int:
    """Return the position of the first query among the keys, for a causal mask.

    Raises: OptionError if the lengths differ and nothing says how the triangle is aligned.
    """
    if align is not None and not causal:
        raise OptionError(f"--align {align} says how a causal mask is aligned", "Add --causal")
    if not causal or queries == keys:
        return 0
    if align is None:
        raise OptionError(
            f"a causal mask over {queries} queries and {keys} keys can be aligned in two ways",
            "Choose --align top-left (the first query sees the first key) or bottom-right (the "
            "last query sees every key)",
        )
    return 0 if align is Align.TOP_LEFT else keys - queries
