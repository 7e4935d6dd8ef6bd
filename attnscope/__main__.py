"""The program: `attnscope` and `python -m attnscope`."""

import sys

from attnscope.cli import main


def run() -> None:
    """Run the command line and exit with its code."""
    sys.exit(main())


if __name__ == "__main__":
    run()
