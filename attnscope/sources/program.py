"""Run a Python program as Python itself would: `__main__`, its arguments, its exit code.

torch is not imported here: a program may set the environment that torch reads as it is loaded.
"""

import builtins
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any

from attnscope.errors import OptionError, TextError
from attnscope.text.display import visible

EXIT_INTERRUPTED = 130  # 128 + SIGINT
EXIT_STREAM_LOST = 120  # what Python returns if its streams cannot be written to at the end
_PACKAGE = str(Path(__file__).parent.parent) + os.sep


@dataclass(frozen=True, slots=True)
class Program:
    """A Python program: a file, or a module as `python -m` takes it, with its arguments."""

    name: str
    arguments: tuple[str, ...] = ()
    module: bool = False

    def check(self) -> None:
        """Raise TextError if there is no such file. (A module is looked for when it runs.)"""
        if self.module:
            return
        path, name = Path(self.name), visible(self.name)
        try:
            with path.open("rb"):
                return
        except FileNotFoundError:
            raise TextError(f"there is no program {name}", "Check the path") from None
        except IsADirectoryError:
            raise TextError(f"{name} is a folder", "Give a Python file") from None
        except (OSError, ValueError) as error:  # ValueError: a path with a NUL
            reason = getattr(error, "strerror", None) or str(error)
            raise TextError(f"{name} cannot be read: {reason}") from None

    def run(self, when_torch: Callable[[], None]) -> int:
        """Run the program in this process and return its exit code.

        `when_torch` is called once torch is loaded, before the program sees it. What the program
        raises is printed as Python prints it. `__main__`, `sys.argv` and `sys.path` stay the
        program's: what it registered to be called at exit may need them.
        Raises: OptionError if there is no such module.
        """
        main = _new_main(self)
        with _noticing("torch", when_torch):
            code = _outcome(lambda: exec(self._code(main), main.__dict__))
        return _flushed(code)

    def _code(self, main: ModuleType) -> CodeType:
        """Return the program's code, and tell its module where it comes from."""
        if not self.module:
            path = Path(self.name).absolute()
            main.__file__ = str(path)
            code: CodeType = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
            return code
        spec = _spec_of(self.name)
        main.__spec__, main.__loader__ = spec, spec.loader
        main.__package__, main.__file__ = spec.parent, spec.origin
        sys.argv[0] = spec.origin or self.name
        found = None if spec.loader is None else spec.loader.get_code(spec.name)  # type: ignore[attr-defined]
        assert isinstance(found, CodeType)  # asked in _spec_of
        return found


class _NoModuleError(OptionError):
    """The program is no module. (A program may raise an OptionError of its own.)"""


def _spec_of(name: str) -> ModuleSpec:
    spec = None
    with suppress(ModuleNotFoundError, ValueError):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    if spec is None or not hasattr(spec.loader, "get_code") or spec.origin in (None, "built-in"):
        raise _NoModuleError(f"there is no module {visible(name)} to run", "Check its name")
    return spec


def _new_main(program: Program) -> ModuleType:
    """Let `__main__`, the arguments and the search path be the program's."""
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    sys.argv = [program.name, *program.arguments]
    if not sys.flags.safe_path:  # else the first entry is not attnscope's own, and stays
        place = Path.cwd() if program.module else Path(program.name).resolve().parent
        sys.path[:1] = [str(place)]
    return main


def _outcome(run: Callable[[], None]) -> int:
    """Return what Python would exit with, having printed what it would print."""
    try:
        run()
    except _NoModuleError:
        raise
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF
        print(error.code, file=sys.stderr)
        return 1
    except BaseException as error:
        _leave_out_our_frames(error)
        _print_error(error)
        return EXIT_INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _print_error(error: BaseException) -> None:
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except BaseException:  # the program's own hook
        sys.__excepthook__(type(error), error, error.__traceback__)


def _leave_out_our_frames(error: BaseException) -> None:
    """Let a traceback, and those of its causes, name the program's own lines only."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = _foreign(one.__traceback__)
        waiting += [one.__cause__, one.__context__]


def _foreign(trace: TracebackType | None) -> TracebackType | None:
    frames: list[TracebackType] = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            frames.append(trace)
        trace = trace.tb_next
    for i, frame in enumerate(frames):
        frame.tb_next = frames[i + 1] if i + 1 < len(frames) else None
    return frames[0] if frames else None


def _flushed(code: int) -> int:
    """Flush the streams as Python does at its end; put nothing in the place of a closed one."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        try:
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()
                continue
        except Exception:  # of a stream that may be the program's own
            code = EXIT_STREAM_LOST
            with suppress(OSError, ValueError, AttributeError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  for good
    return code


@contextmanager
def _noticing(name: str, loaded: Callable[[], None]) -> Iterator[None]:
    """Call `loaded` once a module has been imported: now, if it has been already."""
    if name in sys.modules:
        loaded()
        yield
        return
    finder = _Waiting(name, loaded)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        finder.leave()


class _Waiting(MetaPathFinder):
    """Finds one module as Python does without it, and notices when it is loaded."""

    def __init__(self, name: str, loaded: Callable[[], None]) -> None:
        self._name, self._loaded = name, loaded

    def leave(self) -> None:
        """Be asked no more."""
        with suppress(ValueError):
            sys.meta_path.remove(self)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002  as Python calls it
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return None for every other module: the finders after this one are asked."""
        if fullname != self._name:
            return None
        self.leave()
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        plain = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # the loader is as it was
            plain(module)
            self._loaded()

        loader.exec_module = exec_module
        return spec
