"""Make every character of foreign text visible, so that none can act on a terminal or hide.

Everything that came from a user (text, token pieces, file names, tensor names) passes through
`visible` before a person sees it.
"""

import re

# Replaced: C0 and C1 controls, DEL, bidi controls (they reorder what follows), line and paragraph
# separators, zero-width space, word joiner, byte-order mark, soft hyphen, invisible tag
# characters, and lone surrogates. Kept: the joiners U+200C and U+200D, without which Persian
# words and emoji sequences fall apart, and tag characters inside a flag (the first alternative).
_UNSAFE = re.compile(
    "\U0001f3f4[\U000e0020-\U000e007e]+\U000e007f|"
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """Return `text` with every control, bidi or zero-width character replaced by a visible one.

    C0 controls become their control pictures (ESC is ␛), everything else ⟨U+XXXX⟩.
    """
    return _UNSAFE.sub(_picture, text)


def json_escaped(text: str) -> str:
    """Return JSON `text` in which unsafe characters are written as \\uXXXX: the same data."""
    return _UNSAFE.sub(lambda match: _json_escape(match.group()), text)


def _picture(match: re.Match[str]) -> str:
    if len(match.group()) > 1:
        return match.group()  # a flag
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    return f"⟨U+{code:04X}⟩"


def _json_escape(character: str) -> str:
    if (
        character in "\n\r\t " or len(character) > 1
    ):  # only ever between values: inside strings JSON escapes them
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


def _byte_alphabet() -> dict[str, int]:
    """Return the map from the printable stand-ins of byte-level tokenizers to bytes.

    Source: GPT-2's encoder; printable Latin-1 characters stand for themselves and the other
    bytes, in order, for U+0100 and up.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in set(printable)]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(0x100 + i): byte for i, byte in enumerate(rest)})
    return alphabet


_BYTES = _byte_alphabet()


def byte_level_label(piece: str) -> str:
    """Return a byte-level piece as a person reads it: spaces as ␠, broken characters as ⟨E2⟩."""
    if any(character not in _BYTES for character in piece):
        return label(piece)
    data = bytes(_BYTES[character] for character in piece)
    text = data.decode("utf-8", "surrogateescape")
    shown = "".join(
        f"⟨{ord(c) - 0xDC00:02X}⟩" if 0xDC80 <= ord(c) <= 0xDCFF else label(c) for c in text
    )
    return shown or "⟨empty⟩"


def label(piece: str) -> str:
    """Return a piece as a table shows it: visible, with spaces as ␠."""
    return visible(piece).replace(" ", "␠") or "⟨empty⟩"
