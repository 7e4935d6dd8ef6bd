"""The program: `attnscope` and `python -m attnscope`."""

import contextlib
import gc
import os
import signal
import sys


def run() -> None:
    """Run the command line and exit with its code."""
    # Loading torch makes a million objects that stay: the default of a collection every 700 new
    # ones costs a tenth of the start and frees nothing.
    gc.set_threshold(100_000, 50, 50)
    try:
        from attnscope.cli import main

        code = main()
    except KeyboardInterrupt:  # while modules are loaded
        code = 128 + signal.SIGINT
    if "torch" not in sys.modules or "attnscope.sources.program" in sys.modules:
        sys.exit(code)  # a program that was recorded ends as it would by itself
    # Taking torch apart object by object is a quarter of a short run, and the system frees the
    # memory anyway. Everything written has been flushed and every temporary file removed.
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    run()
