"""How long attnscope takes to start, as ratios to what it cannot do without.

    python benchmarks/startup.py [--runs N]

Each pair is run in turn, N times over, as whole processes; the ratio is that of the medians of
user plus system time, and of wall time. Targets: --version and --help at most 2 × `import typer,
rich`; run --json at most 1.15 × `import torch`.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time

SENTENCE = "Life is short, eat dessert first"
ATTNSCOPE = ("-m", "attnscope")
PAIRS = (
    ("--version", (*ATTNSCOPE, "--version"), ("-c", "import typer, rich"), 2.0),
    ("--help", (*ATTNSCOPE, "--help"), ("-c", "import typer, rich"), 2.0),
    ("run --help", (*ATTNSCOPE, "run", "--help"), ("-c", "import typer, rich"), 2.0),
    ("run --json", (*ATTNSCOPE, "run", SENTENCE, "--json"), ("-c", "import torch"), 1.15),
    ("run (table)", (*ATTNSCOPE, "run", SENTENCE), ("-c", "import torch"), None),
)


def timed(arguments: tuple[str, ...]) -> tuple[float, float]:
    """Return wall and CPU seconds of one run of the interpreter."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def loads_torch(*arguments: str) -> bool:
    """Return whether a run of the command line loads torch."""
    program = (
        "import sys; from attnscope.cli import main; main(sys.argv[1:]); "
        "print('torch' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], check=True, capture_output=True, text=True
    )
    return done.stderr.strip() == "True"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    print(f"{os.cpu_count()} cores, {runs} interleaved runs, medians")
    for name in ("--version", "--help"):
        print(f"{name} loads torch: {loads_torch(name)}")
    print("command        wall s   base s wall ratio  CPU ratio  target")
    for name, command, base, target in PAIRS:
        timed(command), timed(base)  # warm the file cache
        samples = [(timed(command), timed(base)) for _ in range(runs)]
        mine, theirs = zip(*samples, strict=True)
        wall, cpu = (
            [statistics.median(sample[i] for sample in side) for side in (mine, theirs)]
            for i in (0, 1)
        )
        goal = "–" if target is None else f"≤ {target}"
        print(
            f"{name:12} {wall[0]:8.3f} {wall[1]:8.3f} {wall[0] / wall[1]:10.2f} "
            f"{cpu[0] / cpu[1]:10.2f}  {goal}"
        )


if __name__ == "__main__":
    main()
