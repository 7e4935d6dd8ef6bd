import json

import pytest
from tokenizers import Tokenizer

from attnscope.errors import TokenizerError
from attnscope.text.tokenizer import guarded
from attnscope.text.tokenizer_file import load_tokenizer
from tests.conftest import ROOT

WORDS = {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "[UNK]": 2}, "unk_token": "[UNK]"}


@pytest.fixture
def write(tmp_path):
    def write(**parts):
        path = tmp_path / "tokenizer.json"
        base = {"version": "1.0", "model": WORDS, "pre_tokenizer": {"type": "Whitespace"}}
        path.write_text(json.dumps({**base, **parts}), encoding="utf-8")
        return path

    return write


def test_a_folder_that_holds_one(write):
    path = write()
    assert load_tokenizer(path.parent).tokens("a b").ids == (0, 1)


def test_ids_equal_the_librarys():
    path = ROOT / "samples" / "tokenizer.json"
    text = "to be or not to be, 人生 🍰"
    mine = load_tokenizer(path).tokens(text)
    theirs = Tokenizer.from_file(str(path)).encode(text)
    assert list(mine.ids) == theirs.ids
    assert list(mine.pieces) == theirs.tokens
    assert mine.special[0]
    assert mine.labels[0] == "<s>"
    assert "".join(mine.source(i) for i in range(4)) == "to be"


def test_padding_and_truncation_are_switched_off_and_said(write):
    truncation = {
        "direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0
    }  # fmt: skip
    padding = {
        "strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None,
        "pad_id": 0, "pad_type_id": 0, "pad_token": "a",
    }  # fmt: skip
    tokens = load_tokenizer(write(truncation=truncation, padding=padding)).tokens("a b a")
    assert tokens.ids == (0, 1, 0)
    cut, pad = tokens.vocabulary.notes
    assert "cuts texts at 1 tokens: switched off" in cut
    assert "pads texts: switched off" in pad


def test_trimmed_spans_are_made_whole(write):
    alphabet = {"a": 0, "Ġ": 1, "b": 2}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    path = write(
        model={"type": "BPE", "vocab": alphabet, "merges": []},
        pre_tokenizer={**byte_level, "use_regex": True},
        post_processor={**byte_level, "use_regex": True},
    )
    tokens = load_tokenizer(path).tokens("a b")
    assert tokens.spans == ((0, 1), (1, 2), (2, 3))
    assert tokens.labels == ("a", "␠", "b")


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"model": {"type": "Nope"}}, "unknown model type Nope"),
        ({"model": None}, 'has no "model"'),
        ({"model": {**WORDS, "vocab": {"a": 4_000_000_000}}}, "the id 4000000000"),
        ({"model": {**WORDS, "vocab": {"a": -1}}}, "the id -1"),
        ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]}}, "cannot be used"),
        (
            {"pre_tokenizer": {
                "type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Removed", "invert": False
            }},
            "unmatched parenthesis",
        ),
        ({"added_tokens": ["x"]}, '"added_tokens" in tokenizer file'),
        ({"added_tokens": 5}, '"added_tokens" in tokenizer file'),
        ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": 5}}, "cannot be used"),
        (
            {"added_tokens": [{"id": 9_999_999, "content": "\x1b[31m", "special": True}]},
            "␛[31m the id 9999999",
        ),
    ],
)  # fmt: skip
def test_broken_files(write, parts, said):
    with pytest.raises(TokenizerError) as caught:
        load_tokenizer(write(**parts))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "tokenizer.json" in str(caught.value)


def test_files_that_are_not_there_or_not_text(tmp_path):
    with pytest.raises(TokenizerError, match="there is no tokenizer file"):
        load_tokenizer(tmp_path / "none.json")
    path = tmp_path / "bytes.json"
    path.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(TokenizerError, match="byte 0xFF at offset 7"):
        load_tokenizer(path)


def template(ids, tokens):
    special = {"id": "[CLS]", "ids": ids, "tokens": tokens}
    single = [
        {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
    ]
    return {
        "type": "TemplateProcessing", "single": single, "pair": single,
        "special_tokens": {"[CLS]": special},
    }  # fmt: skip


@pytest.mark.parametrize(("ids", "tokens"), [([0, 1], ["[CLS]"]), ([100_000_000], ["[CLS]"])])
def test_special_tokens_that_make_no_sense(write, ids, tokens):
    tokenizer = load_tokenizer(write(post_processor=template(ids, tokens)))
    with pytest.raises(TokenizerError, match="Check the special tokens"):
        tokenizer.tokens("a b")


def test_dropout_is_switched_off_and_said(write):
    vocabulary = {"a": 0, "b": 1, "ab": 2}
    model = {"type": "BPE", "vocab": vocabulary, "merges": [["a", "b"]], "dropout": 0.5}
    tokenizer = load_tokenizer(write(model=model))
    assert all(tokenizer.tokens("ab").ids == (2,) for _ in range(20))
    assert "drops merges at random (dropout 0.5)" in tokenizer.notes[0]


def test_a_byte_level_normalizer_is_seen(write):
    model = {"type": "BPE", "vocab": {"a": 0, "Ġ": 1}, "merges": []}
    path = write(
        model=model, normalizer={"type": "ByteLevel"}, pre_tokenizer=None,
        added_tokens=[{"id": 2, "content": "café", "special": False, "normalized": False,
                       "lstrip": False, "rstrip": False, "single_word": False}],
    )  # fmt: skip
    assert load_tokenizer(path).tokens("a acafé").labels == ("a", "␠", "a", "café")


def test_a_normalizer_that_makes_the_rust_side_panic(write, capfd):
    path = write(normalizer={"type": "Precompiled", "precompiled_charsmap": "BAAAAAAAAAA="})
    with pytest.raises(TokenizerError, match="cannot be used: index out of bounds") as caught:
        load_tokenizer(path).tokens("a b")
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""


def test_a_panic_of_the_rust_side_is_one_clear_error(capfd):
    class PanicError(BaseException):  # what pyo3 raises is no Exception either
        pass

    def panics():
        import os

        os.write(2, b"thread '<unnamed>' panicked at src/lib.rs:1:1\n")
        raise PanicError("called `Option::unwrap()`\non a `None` value")

    with pytest.raises(TokenizerError, match="tokenizer x cannot be used: called") as caught:
        guarded(panics, "tokenizer x")
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""
