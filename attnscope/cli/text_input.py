"""Where the text comes from: the argument, standard input or a file."""

import os
import sys
from pathlib import Path

from attnscope.cli.output import say
from attnscope.errors import OptionError, TextError
from attnscope.text.display import visible

STANDARD_INPUT = "-"


def read_text(text: str | None, file: Path | None) -> str | None:
    """Return the text, without one final line end if it came from a file; None if there is none.

    Raises: TextError with the byte offset of invalid UTF-8; OptionError for two texts.
    """
    if text is not None and file is not None:
        raise OptionError("there is a text and a --file", "Give one of them")
    if file is not None:
        return _without_last_line_end(read_file(file))
    if text == STANDARD_INPUT:
        return _without_last_line_end(_read_standard_input())
    return None if text is None else argument(text)


def argument(text: str) -> str:
    """Return a text from the command line, whose invalid bytes the system hides as surrogates."""
    return _decoded(os.fsencode(text), "the text")


def read_file(path: Path) -> str:
    """Read a UTF-8 file. Raises: TextError."""
    name = visible(str(path))
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise TextError(f"there is no file {name}", "Check the path") from None
    except OSError as error:
        raise TextError(f"{name} cannot be read: {error.strerror}") from None
    except ValueError:  # a path with a NUL
        raise TextError(f"there is no file {name}", "Check the path") from None
    return _decoded(data, name)


def _read_standard_input() -> str:
    if sys.stdin is None:
        raise TextError("there is no standard input", "Give the text itself")
    if sys.stdin.isatty():
        say("attnscope", ["type the text, then Ctrl-D on a line of its own"])
    buffer = getattr(sys.stdin, "buffer", None)
    if buffer is None:
        return sys.stdin.read()
    return _decoded(buffer.read(), "standard input")


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise TextError(
            f"{name} is not UTF-8: byte 0x{data[error.start]:02X} at offset {error.start}",
            "Convert it to UTF-8",
        ) from None


def _without_last_line_end(text: str) -> str:
    return text.removesuffix("\n").removesuffix("\r")
