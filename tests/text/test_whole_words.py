"""Pieces of a word are put together by the white space of the text."""

from attnscope.text.tokens import Tokens, Vocabulary
from attnscope.text.whole_words import word_label, words_of

VOCABULARY = Vocabulary("file", "", 9, 9, {}, True)


def tokens(text, *spans, special=()):
    count = len(spans)
    pieces = tuple(text[a:b] or "<s>" for a, b in spans)
    marks = tuple(i in special for i in range(count))
    return Tokens(
        text, pieces, pieces, tuple(range(count)), spans, marks, (False,) * count, VOCABULARY
    )


def test_white_space_ends_a_word_wherever_a_tokenizer_puts_it():
    before = tokens("the cats sat", (0, 3), (3, 7), (7, 8), (8, 12))
    between = tokens("the cats sat", (0, 3), (4, 7), (7, 8), (9, 12))
    behind = tokens("the cats sat", (0, 4), (4, 7), (7, 9), (9, 12))
    alone = tokens("the cats sat", (0, 3), (3, 4), (4, 8), (8, 12))
    assert words_of(alone) == ((0,), (1, 2), (3,))
    assert word_label(alone, (1, 2)) == "cats"
    for cut in (before, between, behind):
        assert words_of(cut) == ((0,), (1, 2), (3,))
        assert [word_label(cut, word) for word in words_of(cut)] == ["the", "cats", "sat"]


def test_special_tokens_stand_alone():
    cut = tokens("ab", (0, 0), (0, 1), (1, 2), (2, 2), special=(0, 3))
    assert words_of(cut) == ((0,), (1, 2), (3,))
    assert word_label(cut, (0,)) == "<s>"
    assert words_of(tokens("ab", (0, 1), (1, 2), special=(1,))) == ((0,), (1,))


def test_pieces_of_one_character_are_one_word():
    assert words_of(tokens("猫", (0, 1), (0, 1))) == ((0, 1),)


def test_without_spans_each_token_is_a_word():
    assert words_of(tokens("ab", (0, 0), (0, 0))) == ((0,), (1,))


def test_a_line_end_is_a_word_with_a_name():
    cut = tokens("a\nb", (0, 1), (1, 2), (2, 3))
    assert words_of(cut) == ((0,), (1,), (2,))
    assert word_label(cut, (1,)) == "\n"  # the tokenizer's label, made safe where tokens are made


def test_labels_are_safe_to_print():
    cut = tokens("a\x1bb", (0, 2), (2, 3))
    assert word_label(cut, words_of(cut)[0]) == "a␛b"
