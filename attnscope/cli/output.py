"""Standard output or a file: checked before the work, atomic, never a silent overwrite."""

import contextlib
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TextIO

from attnscope.cli.options import TEXT_FORMATS, ColorMode, Format
from attnscope.errors import MissingExtraError, OptionError, OutputError
from attnscope.text.display import visible
from attnscope.views.look import Look

if TYPE_CHECKING:
    from attnscope.views.parts import Part

_ENDINGS = {
    ".json": Format.JSON,
    ".csv": Format.CSV,
    ".txt": Format.PLAIN,
    ".html": Format.HTML,
    ".svg": Format.SVG,
    ".png": Format.PNG,
    ".md": Format.MARKDOWN,
    ".ndjson": Format.NDJSON,
}


@dataclass(frozen=True, slots=True)
class Target:
    """Where a document goes and as what."""

    format: Format
    path: Path | None
    force: bool
    color: ColorMode
    width: int

    @property
    def for_people(self) -> bool:
        """Whether the format is read by people, who want a summary of a long text first."""
        return self.format in (Format.TABLE, Format.PLAIN)

    @property
    def colours(self) -> bool:
        """Whether tables are coloured: in a file only if that was asked for."""
        if self.path is not None:
            return self.color is ColorMode.ALWAYS
        return wants_color(self.color, sys.stdout)

    def write(self, text: str) -> None:
        """Write text that is data: UTF-8 with \\n, whatever the terminal is set to."""
        if self.path is not None:
            write_file(self.path, text.encode(), force=self.force)
            return
        _set_up(sys.stdout, encoding="utf-8")
        _print(text)

    def write_all(self, documents: "Sequence[str | bytes]") -> None:
        """Write documents one after the other: a picture to its file, never to a screen."""
        if self.path is None:
            for document in documents:
                assert isinstance(document, str)  # checked by `prepare`
                self.write(document)
            return
        data = [one.encode() if isinstance(one, str) else one for one in documents]
        write_file(self.path, b"".join(data), force=self.force)

    def write_stream(self, lines: "Iterable[str]") -> None:
        """Write lines as they come; a file gets its name when it is whole."""
        if self.path is None:
            _set_up(sys.stdout, encoding="utf-8")
            for line in lines:
                _print(line)
            return
        with writing(self.path, force=self.force) as file:
            for line in lines:
                file.write(line.encode())

    def write_parts(self, parts: "Iterable[Part]", look: Look) -> None:
        """Write the parts of a document as tables, as plain sentences or as CSV."""
        if self.format is Format.CSV:
            from attnscope.views import csv_text

            self.write(csv_text.render(parts))
        elif self.format is Format.PLAIN:
            from attnscope.views import plain

            self.write(plain.render(parts, look))
        elif self.path is not None:
            self.write(_table_text(parts, look, color=self.colours))
        else:
            _set_up(sys.stdout, encoding=None)
            _print(_table_text(parts, look, color=self.colours))


def prepare(
    format_: Format | None,
    json: bool,
    output: Path | None,
    force: bool,
    color: ColorMode = ColorMode.AUTO,
    width: int | None = None,
    *,
    other_files: Sequence[Path | None] = (),
    formats: Sequence[Format] = TEXT_FORMATS,
) -> Target:
    """Decide format and place, and fail before the work if the file cannot be written.

    `other_files` are what else is to be written. Raises: OptionError, OutputError.
    """
    if json and format_ not in (None, Format.JSON):
        raise OptionError(f"--json and --format {format_} contradict each other", "Give one")
    if width is not None and width < 1:
        raise OptionError(f"--width {width} is not positive", "Give 1 or more")
    others = [path for path in other_files if path is not None]
    for path in others:
        check_writable(path, force=force)
    names = [path for path in (output, *others) if path is not None]
    if len(set(names)) < len(names):
        raise OptionError(f"two files have the name {visible(str(names[0]))}", "Give two names")
    chosen = Format.JSON if json else format_
    if output is not None:
        check_writable(output, force=force)
        if chosen is None:
            chosen = _ENDINGS.get(output.suffix.lower())
        if chosen is None:
            endings = ", ".join(end for end, name in _ENDINGS.items() if name in formats)
            raise OptionError(
                f"--output {visible(str(output))} has none of the endings {endings}",
                "Use one of them, or name the format with --format",
            )
    elif force and not others:
        raise OptionError("--force without a file to write", "Name it with --output")
    chosen = chosen or Format.TABLE
    if chosen not in formats:
        raise OptionError(f"this command writes no {chosen}", f"Formats are {', '.join(formats)}")
    if chosen is Format.PNG:
        check_extra("resvg_py", "png")
        if output is None:
            raise OptionError("--format png without a file to write", "Name it with --output")
    return Target(chosen, output, force, color, width or _screen_width())


def check_extra(module: str, extra: str) -> None:
    """Raise MissingExtraError if a module of an extra is not installed."""
    if importlib.util.find_spec(module) is None:
        raise MissingExtraError(
            f"{module.replace('_', '-')} is not installed",
            f'Install the extra: pip install "attnscope[{extra}]"',
        )


def check_writable(path: Path, *, force: bool) -> None:
    """Raise OutputError if a file cannot be written there."""
    name = visible(str(path))
    try:
        path = _target_of(path)
        if path.is_dir():
            raise OutputError(f"{name} is a folder", "Give a file name")
        if not path.parent.is_dir():
            raise OutputError(f"there is no folder {visible(str(path.parent))}", "Create it first")
        if path.is_file() and not force:
            raise OutputError(f"{name} exists", "Use --force to write over it")
        if not os.access(path.parent, os.W_OK):
            raise OutputError(f"the folder of {name} cannot be written to", "Choose another")
    except (OSError, ValueError, RuntimeError) as error:  # too long, with a NUL, a loop of links
        reason = getattr(error, "strerror", None) or str(error)
        raise OutputError(f"{name} cannot be written: {reason}", "Choose another name") from None


def write_file(path: Path, data: bytes, *, force: bool) -> None:
    """Write a whole file or nothing: to a temporary name beside it, then renamed.

    A link is followed; a device or a named pipe is written to as it is, never replaced.
    """
    with writing(path, force=force) as file:
        file.write(data)


@contextlib.contextmanager
def writing(path: Path, *, force: bool) -> Iterator[BinaryIO]:
    """Open what becomes a file once all of it is written; see `write_file`."""
    check_writable(path, force=force)
    target = _target_of(path)
    try:
        if target.exists() and not target.is_file():
            with target.open("wb") as device:
                yield device
            return
        with _temporary(target) as temporary:
            with temporary.open("wb") as file:
                yield file
            temporary.replace(target)
    except OSError as error:
        name = visible(str(path))
        raise OutputError(f"cannot write {name}: {error.strerror}", "Nothing was changed") from None


def _target_of(path: Path) -> Path:
    return path.resolve() if path.is_symlink() else path


@contextlib.contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:40]}.", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    umask = os.umask(0)
    os.umask(umask)
    temporary.chmod(0o666 & ~umask)  # mkstemp's files are for their owner alone
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def wants_color(mode: ColorMode, stream: TextIO) -> bool:
    """Return whether to colour: the option, then NO_COLOR, then FORCE_COLOR, then the terminal."""
    if mode is not ColorMode.AUTO:
        return mode is ColorMode.ALWAYS
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0", "false"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


# Characters written at once. A write of more than the stream's buffer (8,192 bytes) that a closed
# pipe or a full disk cuts short is reported as done by Python's io: the rest would be lost.
_BLOCK = 2048


class ReaderGoneError(Exception):
    """Whoever read standard output has closed it. (An OSError would be handled by Typer.)"""


def _print(text: str) -> None:
    try:
        for start in range(0, len(text), _BLOCK):
            sys.stdout.write(text[start : start + _BLOCK])
            sys.stdout.flush()
    except BrokenPipeError:
        raise ReaderGoneError from None
    except OSError as error:
        raise OutputError(f"cannot write to standard output: {error.strerror}") from None


def say(kind: str, lines: Iterable[str]) -> None:
    """Print notes or warnings for people: to standard error, if it can be written to."""
    _set_up(sys.stderr, encoding=None)
    with contextlib.suppress(OSError):
        for line in lines:
            print(f"{kind}: {visible(line)}", file=sys.stderr)


def _table_text(parts: "Iterable[Part]", look: Look, *, color: bool) -> str:
    import io

    from rich.console import Console

    from attnscope.views import rich_tables

    renderable, width = rich_tables.render(parts, look)
    stream = io.StringIO()
    detected = Console(force_terminal=True, no_color=False).color_system if color else None
    if detected == "standard":  # 16 colours, by a TERM that says nothing: all have 256
        detected = "256"
    console = Console(
        file=stream,
        width=width,
        force_terminal=color,
        force_jupyter=False,
        color_system=(detected or "truecolor") if color else None,  # type: ignore[arg-type]
        no_color=not color,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    console.print(renderable)
    return "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())


def _screen_width() -> int:
    return shutil.get_terminal_size((80, 24)).columns


def _set_up(stream: TextIO, encoding: str | None) -> None:
    """Never fail on a character: one that a stream's encoding has not is escaped, not lost."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(encoding=encoding, errors="backslashreplace", newline="\n")
