"""The command line: joins one source to one view, and is the only error boundary."""

import contextlib
import functools
import os
import re
import shutil
import signal
import sys
from typing import Annotated, Any

import typer
import typer.core

from attnscope import __version__
from attnscope.cli.output import ReaderGoneError, say
from attnscope.errors import AttnscopeError
from attnscope.text.display import visible

EXIT_INTERRUPTED = 128 + signal.SIGINT
EXIT_CLOSED_PIPE = 141  # 128 + SIGPIPE, which Windows has not

NARROW = 60
_OUT_OF_MEMORY = re.compile("not enough memory|out of memory|alloc", re.IGNORECASE)


class _Command(typer.core.TyperCommand):
    """A command whose help puts each option on a line of its own where the screen is narrow."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        if formatter.width < NARROW:
            formatter.write_dl = functools.partial(formatter.write_dl, col_max=6)
        super().format_help(ctx, formatter)


app = typer.Typer(
    name="attnscope",
    rich_markup_mode=None,  # help is text: brackets stay brackets, and Rich is not loaded
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"attnscope {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001  typer calls _version
        bool,
        typer.Option(
            "--version", "-V", help="Print the version.", callback=_version, is_eager=True
        ),
    ] = False,
) -> None:
    """See what attention does, number by number: tokens, omegas, weights, context vectors."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _register() -> None:
    from attnscope.cli import (
        compare,
        explain,
        heads,
        layers,
        record,
        run,
        schema,
        show,
        tokenize,
        top,
        who,
    )

    for name, module, about in (
        ("run", run, "One text, every step."),
        ("layers", layers, "What each layer is."),
        ("heads", heads, "What each head does."),
        ("top", top, "What a token attends to."),
        ("who", who, "Who attends to a token."),
        ("show", show, "A saved run again."),
        ("record", record, "A program's attention."),
        ("compare", compare, "Two ways to mask."),
        ("explain", explain, "One query, worked out."),
        ("tokenize", tokenize, "A text and its tokens."),
        ("schema", schema, "The JSON Schema."),
    ):
        context: dict[str, Any] = getattr(module, "CONTEXT", {})
        app.command(name, cls=_Command, short_help=about, context_settings=context)(module.command)


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0 done; 1 a check the user asked for failed; 2 usage or input; 130 interrupted; 141 the
    reader of standard output went away.
    """
    _open_missing_streams()
    width = min(shutil.get_terminal_size((80, 24)).columns, 80)  # of help texts
    try:
        result = app(args=argv, prog_name="attnscope", standalone_mode=False, terminal_width=width)
        sys.stdout.flush()
    except AttnscopeError as error:
        return _report(str(error), error.exit_code)
    except typer.Exit as error:
        return error.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except typer.TyperException as error:
        return _report(f"{_usage(error)}. See {_program(error)} --help", 2)
    except (
        ReaderGoneError,
        BrokenPipeError,
        SystemExit,
    ):  # Typer turns a closed pipe into SystemExit
        _forget_stdout()
        return EXIT_CLOSED_PIPE
    except OSError as error:
        _forget_stdout()
        where = visible(str(error.filename)) if error.filename else "standard output"
        return _report(f"cannot use {where}: {error.strerror}", 2)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not _OUT_OF_MEMORY.search(str(error)):
            raise
        return _report("this needs more memory than can be had. Use fewer tokens or heads", 2)
    return result if isinstance(result, int) else 0


def _open_missing_streams() -> None:
    """Where a stream was closed by whoever started the program, write to nothing instead.

    Otherwise `print(file=None)` puts messages for people into the data.
    """
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  for good
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def _report(message: str, code: int) -> int:
    say("attnscope", [message])
    return code


def _usage(error: typer.TyperException) -> str:
    text = error.format_message() if hasattr(error, "format_message") else str(error)
    text = " ".join(text.split()).rstrip(".")
    problems = getattr(error.__cause__, "errors", None)  # of pydantic, which leaves the value out
    if callable(problems):
        text = f'{text}, not "{problems()[0]["input"]}"'
    if text.startswith("No such option"):
        text += "; put -- before a text that begins with -"
    return visible(text)


def _program(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    return context.command_path if context is not None else "attnscope"


def _forget_stdout() -> None:
    """Point standard output at nothing, so that the flush at exit does not fail again."""
    with contextlib.suppress(OSError, ValueError):  # not a real file, as under a test
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


_register()
