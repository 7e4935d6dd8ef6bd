"""From options to a Run: a sentence or a tensor file, and the contradictions between them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from attnscope.cli.options import Dtype, Variant
from attnscope.cli.text_input import argument, read_text
from attnscope.cli.tokenizers import Cutting
from attnscope.errors import OptionError
from attnscope.sources.options import D_KEY, D_MODEL, SEED, Align, SentenceOptions

if TYPE_CHECKING:
    from attnscope.run import Run
    from attnscope.sources.given_call import GivenCall

LESSON_SENTENCE = "Life is short, eat dessert first"
_MULTI_HEADS = 4  # as in the lesson


@dataclass(frozen=True, slots=True)
class Asked:
    """Everything that says what to compute. None: not given."""

    text: str | None = None
    file: Path | None = None
    qkv: Path | None = None
    cross: str | None = None
    variant: Variant | None = None
    heads: int | None = None
    causal: bool = False
    align: Align | None = None
    mask_method: str = "neg-inf"
    d_model: int | None = None
    d_key: int | None = None
    d_value: int | None = None
    vocabulary_size: int | None = None
    seed: int | None = None
    device: str = "cpu"
    dtype: Dtype | None = None
    cutting: Cutting = field(default_factory=Cutting)

    def make(self, default_text: str | None = None) -> "Run":
        """Make the run, with every matrix."""
        given = self.given(default_text)

        from attnscope.sources.given_call import run_call

        return run_call(given)

    def given(self, default_text: str | None = None) -> "GivenCall":
        """Make the call. All that can be checked without torch is checked first."""
        if self.qkv is not None:
            return self._tensors(self.qkv)
        options, lesson_keys = self._sentence_options()
        text = read_text(self.text, self.file)
        text = default_text if text is None else text
        if text is None:
            raise OptionError(
                "there is no text", 'Give a sentence in quotes, "-" for standard input, or --file'
            )
        texts = [text] if self.cross is None else [text, argument(self.cross)]
        tokens = self.cutting.cut(*texts)

        from attnscope.sources.sentence import draw_call

        return draw_call(
            tokens[0],
            options,
            keys=None if self.cross is None else tokens[1],
            lesson_keys=lesson_keys,
        )

    def _tensors(self, path: Path) -> "GivenCall":
        sentence_only = {
            "a text": self.text,
            "--file": self.file,
            "--cross": self.cross,
            "--variant": self.variant if self.variant is not Variant.CAUSAL else None,
            "--heads": self.heads,
            "--d-model": self.d_model,
            "--d-key": self.d_key,
            "--d-value": self.d_value,
            "--vocabulary-size": self.vocabulary_size,
            "--seed": self.seed,
            "a tokenizer option": self.cutting.asked or None,
        }
        for name, value in sentence_only.items():
            if value is not None:
                raise OptionError(
                    f"--qkv takes query, key and value from a file, and {name} is given",
                    "Leave one out",
                )
        from attnscope.sources.tensors import TensorOptions, read_call

        return read_call(
            path,
            TensorOptions(
                causal=self.causal or self.variant is Variant.CAUSAL,
                align=self.align,
                mask_method=self.mask_method,
                device=self.device,
                dtype=None if self.dtype is None else str(self.dtype),
            ),
        )

    def _sentence_options(self) -> tuple[SentenceOptions, bool]:
        """Return the options, and whether the keys are the lesson's second sequence."""
        heads, causal = self._by_variant()
        options = SentenceOptions(
            heads=heads,
            causal=causal,
            align=self.align,
            d_model=D_MODEL if self.d_model is None else self.d_model,
            d_key=D_KEY if self.d_key is None else self.d_key,
            d_value=self.d_value,
            vocabulary_size=self.vocabulary_size,
            seed=SEED if self.seed is None else self.seed,
            mask_method=str(self.mask_method),
            device=self.device,
            dtype=str(self.dtype or Dtype.FLOAT32),
        )
        return options, self.variant is Variant.CROSS and self.cross is None

    def _by_variant(self) -> tuple[int, bool]:
        """Return heads and causal as the variant sets them. Raises: OptionError if flags differ."""
        heads = 1 if self.heads is None else self.heads
        if self.variant is Variant.SELF:
            for name, given in (
                ("--cross", self.cross is not None),
                ("--causal", self.causal),
                (f"--heads {heads}", heads != 1),
            ):
                if given:
                    raise OptionError(
                        f"--variant self is one head over one text without a mask, and {name} is "
                        "given",
                        "Leave one out",
                    )
        if self.variant is Variant.MULTI_HEAD:
            if self.heads == 1:
                raise OptionError(
                    "--variant multi-head and --heads 1 contradict each other", "Give 2 or more"
                )
            heads = _MULTI_HEADS if self.heads is None else self.heads
        return heads, self.causal or self.variant is Variant.CAUSAL
