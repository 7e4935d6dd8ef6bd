"""A word vocabulary built from text, as a `tokenizers.Tokenizer`.

Tokens are words, numbers, single CJK characters and symbols (an emoji sequence is one token).
Punctuation is dropped unless asked for. Distinct tokens are sorted by code point and numbered
from 0.
"""

from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split

from attnscope.errors import TextError
from attnscope.text.display import visible
from attnscope.text.tokenizer import TextTokenizer, check_text, guarded, shortened

UNKNOWN = "[UNK]"

# Oniguruma syntax. Han, kana and bopomofo are written without spaces, so each character is a
# token; U+30FC and U+FF70 lengthen kana but belong to no script.
_CJK = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\x{30FC}\x{FF70}]\p{M}*"
_LETTER = (
    r"[[\p{L}\p{M}\p{N}\p{Pc}]&&[^\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\x{30FC}\x{FF70}]]"
)
# Joined inside a word: apostrophes (don't), and the joiners of Persian and Indic scripts.
# Joined inside a number: a point or comma between digits (3.14, 1,000).
_WORD = (
    rf"(?<!\p{{Pc}})(?!\p{{Pc}}++(?!{_LETTER})){_LETTER}+"
    rf"(?:(?:['\x{{2019}}\x{{200C}}\x{{200D}}](?=[\p{{L}}\p{{M}}])|(?<=\p{{Nd}})[.,](?=\p{{Nd}}))"
    rf"{_LETTER}+)*"
)
# Emoji sequences (Unicode TR 51): flags, keycaps, and pictographs with modifiers, tags, joiners.
_PICTOGRAPH = (
    r"\p{Extended_Pictographic}"
    r"(?:\x{FE0F}|[\x{1F3FB}-\x{1F3FF}])?\x{20E3}?[\x{E0020}-\x{E007F}]*"
)
_EMOJI = (
    r"[\x{1F1E6}-\x{1F1FF}]{2}|[0-9#*]\x{FE0F}?\x{20E3}|"
    rf"{_PICTOGRAPH}(?:\x{{200D}}{_PICTOGRAPH})*"
)
_SYMBOL = r"[\p{S}\p{Co}][\p{M}\x{FE0F}]*"
_PUNCTUATION = r"\p{P}"


def _cutter(keep_punctuation: bool) -> Split:
    kinds = [_EMOJI, _CJK, _WORD, _SYMBOL]
    if keep_punctuation:
        kinds.append(_PUNCTUATION)
    return Split(Regex("|".join(kinds)), behavior="removed", invert=True)


def build_tokenizer(corpus: str, *, keep_punctuation: bool = False) -> TextTokenizer:
    """Build the vocabulary of exactly the words in `corpus`.

    Raises: TextError if there are none.
    """
    return _built(corpus, keep_punctuation, unknown=False, source="text", name="")


def corpus_tokenizer(corpus: str, name: str, *, keep_punctuation: bool = False) -> TextTokenizer:
    """Build the vocabulary of a corpus file called `name`; other words become `[UNK]`, the last id.

    Raises: TextError if the corpus has no words.
    """
    return _built(corpus, keep_punctuation, unknown=True, source="corpus", name=name)


def reusable(built: TextTokenizer, corpus: str, *, keep_punctuation: bool) -> TextTokenizer:
    """Return a built tokenizer fit for other texts: with `[UNK]` as its last id."""
    if built.unknown_ids or built.source == "file":
        return built
    return _built(corpus, keep_punctuation, unknown=True, source="text", name=built.name)


def _built(
    corpus: str, keep_punctuation: bool, *, unknown: bool, source: str, name: str
) -> TextTokenizer:
    check_text(corpus)
    cutter = _cutter(keep_punctuation)
    pieces = guarded(lambda: cutter.pre_tokenize_str(corpus), "the built-in word pattern")
    distinct = sorted({piece for piece, _ in pieces})
    if not distinct:
        raise TextError(
            f"no tokens in {visible(name) or shortened(corpus)}",
            "Give at least one word; --keep-punctuation makes punctuation tokens",
        )
    vocabulary = {piece: i for i, piece in enumerate(distinct)}
    if unknown:
        vocabulary[UNKNOWN] = len(vocabulary)
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = cutter
    unknown_ids = frozenset({vocabulary[UNKNOWN]} if unknown else ())
    return TextTokenizer(tokenizer, source, visible(name), unknown_ids)
