"""Real processes: pipes, terminals, signals, streams that are full or closed."""

import os
import pty
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.conftest import PYTHON

PROGRAM = [PYTHON, "-m", "attnscope"]


def clean(**more):
    names = ("NO_COLOR", "FORCE_COLOR", "COLUMNS")
    return {**{k: v for k, v in os.environ.items() if k not in names}, **more}


def shell(command, **environment):
    program = f"'{PYTHON}' -m attnscope"
    return subprocess.run(
        ["bash", "-c", command.replace("attnscope", program)],
        capture_output=True, env=clean(**environment), timeout=120,
    )  # fmt: skip


def test_a_closed_pipe_ends_quietly():
    text = " ".join(f"w{i}" for i in range(300))
    done = shell(f"attnscope run '{text}' --json | head -c 10; exit ${{PIPESTATUS[0]}}")
    assert done.returncode == 141
    assert done.stderr == b""


def test_a_full_disk_is_one_line():
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    done = shell("attnscope run 'a b' > /dev/full")
    assert done.returncode == 2
    assert done.stderr.decode() == (
        "attnscope: cannot write to standard output: No space left on device\n"
    )


def test_no_standard_input():
    done = shell("attnscope run - <&-")
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1


def test_interrupted():
    process = subprocess.Popen(
        [*PROGRAM, "run", "-"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=clean()
    )
    time.sleep(2)  # it waits for standard input
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in stderr


@pytest.mark.parametrize(
    "environment", [{"LANG": "C", "LC_ALL": "C"}, {"PYTHONIOENCODING": "ascii"}]
)
def test_narrow_encodings_lose_nothing(environment):
    done = shell("attnscope run 'Life 人' ", **environment)
    assert done.returncode == 0
    assert "人".encode() in done.stdout or b"\\u4eba" in done.stdout
    done = shell("attnscope run 'Life 人' --json", **environment)
    assert "人".encode() in done.stdout


def in_terminal(*arguments, **environment):
    """Run in a pseudo-terminal and return what was printed."""
    main, child = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, *arguments], stdin=child, stdout=child, stderr=child,
        env=clean(TERM="xterm-256color", **environment),
    )  # fmt: skip
    os.close(child)
    printed = b""
    while True:
        try:
            block = os.read(main, 65536)
        except OSError:
            break
        if not block:
            break
        printed += block
        if b"Ctrl-D" in printed:
            os.write(main, b"typed words\n\x04")
            printed = printed.replace(b"Ctrl-D", b"seen")
    os.close(main)
    assert process.wait() == 0
    return printed.decode()


def test_a_terminal_gets_colours():
    assert "\x1b[" in in_terminal("run", "a b")
    assert "\x1b" not in in_terminal("run", "a b", NO_COLOR="1")
    assert "\x1b" not in in_terminal("run", "a b", "--color", "never")


def test_a_terminal_is_told_what_is_awaited():
    printed = in_terminal("run", "-", NO_COLOR="1")
    assert "type the text, then seen" in printed
    assert "typed" in printed.split("tokens and ids")[1]


def test_the_program_without_arguments_shows_help():
    done = subprocess.run(PROGRAM, capture_output=True, env=clean())
    assert done.returncode == 0
    assert b"Usage: " in done.stdout


def test_version():
    import attnscope

    for flag in ("--version", "-V"):
        done = subprocess.run([*PROGRAM, flag], capture_output=True, text=True, env=clean())
        assert done.stdout == f"attnscope {attnscope.__version__}\n"


def test_streams_that_are_closed_or_full():
    done = shell("attnscope run 'a b' --heads 3 --json 2>&-")
    assert done.returncode == 0
    assert done.stdout.startswith(b'{"schema"')
    assert shell("attnscope run 'a b' >&-").returncode == 0
    done = shell("attnscope run 'a b' --heads 3 --json 2>/dev/full")
    assert done.returncode == 0
    assert done.stdout.startswith(b'{"schema"')
    assert shell("attnscope run '' 2>/dev/full").returncode == 2


def test_too_little_memory_is_one_line():
    done = shell("ulimit -v 4000000; attnscope run 'a b' --d-model 20000")
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    assert b"more memory than can be had" in done.stderr


def test_completion():
    asked = {"COMP_WORDS": "attnscope tok", "COMP_CWORD": "1"}
    environment = clean(_ATTNSCOPE_COMPLETE="complete_bash", **asked)
    done = subprocess.run(PROGRAM, capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "tokenize"
