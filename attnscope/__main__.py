"""The program: `attnscope` and `python -m attnscope`."""

import gc
import sys

from attnscope.cli import main


def run() -> None:
    """Run the command line and exit with its code."""
    # Loading torch makes a million objects that stay: the default of a collection every 700 new
    # ones costs a tenth of the start and frees nothing.
    gc.set_threshold(100_000, 50, 50)
    sys.exit(main())


if __name__ == "__main__":
    run()
