"""`attnscope record`: a Python program, every attention call of it."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnscope.cli import options as o
from attnscope.cli.output import check_writable, say, write_file
from attnscope.errors import AttnscopeError, OptionError
from attnscope.sources.recording import Limits, Recording
from attnscope.text.display import visible

if TYPE_CHECKING:
    from attnscope.sources.recorder import Recorder

# What stands after the program belongs to the program.
CONTEXT = {"allow_interspersed_args": False}
_MOST_SAID = 5  # calls that fit no record

ProgramArgument = Annotated[
    str, typer.Argument(metavar="PROGRAM", help="A Python file.", show_default=False)
]
Arguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="ARGUMENTS", help="What the program is given.", show_default=False),
]
Module = Annotated[
    bool,
    typer.Option("--module", "-m", help="PROGRAM names a module, as python -m takes it."),
]
RecordFile = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="The record file to write [attnscope-record.safetensors].",
        show_default=False,
    ),
]
Calls = Annotated[
    int | None,
    typer.Option(
        "--calls", metavar="N", help="Keep the first N attention calls.", show_default=False
    ),
]
Layers = Annotated[
    str | None,
    typer.Option(
        "--layers", metavar="LIST", help="Keep these layers only: 0,3,10-12.", show_default=False
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        "--steps",
        metavar="N",
        help="Watch the first N forwards of each model only.",
        show_default=False,
    ),
]


def command(
    program: ProgramArgument,
    arguments: Arguments = None,
    module: Module = False,
    output: RecordFile = Path("attnscope-record.safetensors"),
    force: o.Force = False,
    calls: Calls = None,
    layers: Layers = None,
    steps: Steps = None,
) -> int:
    """Run a Python program and record every attention call in it.

    The program runs as Python runs it, with its own arguments, output and exit code; whatever
    models it makes are watched as they compute. attnscope show opens the record.
    Options of attnscope stand before the program.
    """
    from attnscope.sources.program import Program

    limits = Limits(calls, steps, layers)
    asked = Program(program, tuple(arguments or ()), module)
    asked.check()
    check_writable(output, force=force)
    output = output.absolute()  # the program may go to another folder
    process = os.getpid()
    recorders: list[Recorder] = []
    try:
        code = asked.run(lambda: _start(recorders, limits))
    finally:
        for recorder in recorders:
            recorder.stop()
    if os.getpid() != process:
        return code  # a copy of the process, which the program made: the record is not its own
    try:
        recording = recorders[0].recording() if recorders else Recording()
        _write(recording, output, force)
    except AttnscopeError as error:
        say("attnscope", [str(error)])
        return code or error.exit_code
    return code


def _start(recorders: "list[Recorder]", limits: Limits) -> None:
    from attnscope.sources.recorder import Recorder

    recorders.append(Recorder(limits))
    recorders[0].start()


def _write(recording: Recording, output: Path, force: bool) -> None:
    """Write the record and say so. Raises: OptionError if there is nothing to write."""
    if not recording.runs:
        for line in recording.skipped[:_MOST_SAID]:
            say("warning", [f"not recorded: {line}"])
        raise OptionError(f"nothing was recorded: {recording.reason}")
    from attnscope.recordfile import dump_record

    write_file(output, dump_record(recording.runs), force=force)
    say("attnscope", [f"recorded {recording.summary} to {visible(str(output))}"])
    say("note", recording.notes)
    more = len(recording.skipped) - _MOST_SAID
    say("warning", [f"not recorded: {line}" for line in recording.skipped[:_MOST_SAID]])
    say("warning", [f"not recorded: {more} more kinds of calls"] if more > 0 else [])
    if recording.unproven:
        say(
            "warning",
            [f"{recording.unproven} of {recording.calls} records are NOT proven: show says why"],
        )
