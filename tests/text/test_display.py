import json

import pytest

from attnscope.text.display import byte_level_label, json_escaped, label, visible
from tests.conftest import CONTROL

HOSTILE = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0)])) + "\u202e\u2066\u200e\u061c\ufeff"


def test_every_control_character_becomes_visible():
    assert not CONTROL.search(visible(HOSTILE))
    assert visible("\x1b]0;t\x07") == "␛]0;t␇"
    assert visible("\x9b\u202e\x7f\u200b\ud800") == "⟨U+009B⟩⟨U+202E⟩␡⟨U+200B⟩⟨U+D800⟩"


@pytest.mark.parametrize("text", ["人生", "می\u200cخواهم", "👩🏽‍🍳", "cafe\u0301", "ω·∞"])
def test_what_people_write_is_left_alone(text):
    assert visible(text) == text


def test_tag_characters_are_visible_outside_a_flag():
    flag = "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
    assert visible(flag) == flag
    assert visible("a\U000e0067") == "a⟨U+E0067⟩"


def test_escaped_json_is_the_same_data():
    text = json.dumps({HOSTILE: [HOSTILE, 1]}, ensure_ascii=False)
    assert json.loads(json_escaped(text)) == json.loads(text)
    assert not CONTROL.search(json_escaped(text))


def test_labels():
    assert label("a b") == "a␠b"
    assert label("") == "⟨empty⟩"
    assert byte_level_label("Ġworld") == "␠world"
    assert byte_level_label("âŃ") == "⟨E2⟩⟨AD⟩"
    assert byte_level_label("ä½ł") == "你"
    assert byte_level_label("Ċ") == "␊"
    assert byte_level_label("<|endoftext|>") == "<|endoftext|>"
