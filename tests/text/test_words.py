import pytest

from attnscope.errors import TextError
from attnscope.text.words import build_tokenizer, corpus_tokenizer, reusable


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Life is short, eat dessert first", ["Life", "is", "short", "eat", "dessert", "first"]),
        ("人生短暂，先吃甜点", list("人生短暂先吃甜点")),
        ("GPT模型2024年", ["GPT", "模", "型", "2024", "年"]),
        ("カナーです", list("カナーです")),
        ("한국어 문장", ["한국어", "문장"]),
        ("الحياة قصيرة", ["الحياة", "قصيرة"]),
        ("می\u200cخواهم", ["می\u200cخواهم"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("don’t don't 'quoted'", ["don’t", "don't", "quoted"]),
        ("3.14 1,000 5.", ["3.14", "1,000", "5"]),
        ("cafe\u0301 snake_case __", ["cafe\u0301", "snake_case"]),
        ("a+b=$5", ["a", "+", "b", "=", "$", "5"]),
        ("👩🏽‍🍳❤️🇫🇷🇩🇪1️⃣", ["👩🏽‍🍳", "❤️", "🇫🇷", "🇩🇪", "1️⃣"]),
        ("🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f!", [
            "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
        ]),
        ("[red]x[/red] :smile:", ["red", "x", "red", "smile"]),
    ],
)  # fmt: skip
def test_tokens(text, pieces):
    tokens = build_tokenizer(text).tokens(text)
    assert list(tokens.pieces) == pieces
    assert [tokens.source(i) for i in range(len(tokens))] == pieces
    entries = tokens.vocabulary.entries
    assert list(entries) == sorted(set(pieces))
    assert list(entries.values()) == list(range(len(entries)))


def test_punctuation_is_kept_when_asked():
    text = "Wait, what?"
    assert build_tokenizer(text, keep_punctuation=True).tokens(text).pieces == (
        "Wait",
        ",",
        "what",
        "?",
    )


@pytest.mark.parametrize("text", ["", "   ", "?!…", "\u200b"])
def test_no_tokens(text):
    with pytest.raises(TextError, match="no tokens in"):
        build_tokenizer(text)


def test_a_lone_surrogate_is_named():
    with pytest.raises(TextError, match=r"U\+D800\) at character 1"):
        build_tokenizer("a\ud800")


def test_words_outside_a_corpus_are_unknown():
    tokenizer = corpus_tokenizer("the cat sat", "corpus.txt")
    tokens = tokenizer.tokens("the dog sat")
    assert tokens.ids == (2, 3, 1)
    assert tokens.pieces == ("the", "[UNK]", "sat")
    assert tokens.labels == ("the", "[UNK] dog", "sat")
    assert tokens.unknown == (False, True, False)


def test_a_saved_tokenizer_knows_the_unknown_word():
    built = build_tokenizer("a b")
    saved = reusable(built, "a b", keep_punctuation=False)
    assert saved.tokenizer.get_vocab() == {"a": 0, "b": 1, "[UNK]": 2}
    assert saved.tokens("a z").ids == (0, 2)


def test_a_line_of_underscores_takes_no_time():
    with pytest.raises(TextError):
        build_tokenizer("_" * 100_000)
    assert build_tokenizer("a __b c__").tokens("a __b c__").pieces == ("a", "__b", "c__")
