"""Jobs on a few threads: each with one thread inside its operations, and stoppable at once."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

# How often the waiting thread wakes to report progress and to hear an interrupt, in seconds.
_WAKE = 0.1

Progress = Callable[[int, int], None]


class Stopped(Exception):
    """Another worker failed or the user interrupted: leave the job."""


class Crew:
    """The workers of one pass: what they have done, and whether they are to stop."""

    def __init__(self, total: int, progress: Progress | None = None) -> None:
        self.lock = threading.Lock()
        self._stop = threading.Event()
        self._total = total
        self._done = 0
        self._progress = progress
        self._error: BaseException | None = None

    def check(self) -> None:
        """Raise Stopped if the work is to end."""
        if self._stop.is_set():
            raise Stopped

    def step(self) -> None:
        """Count one stripe. Raises: Stopped."""
        self.check()
        self._done += 1  # only shown, so a lost count is no harm

    def run(self, jobs: Sequence[Callable[[], None]], workers: int) -> None:
        """Run every job, the first ones first, and return when all are done.

        An error in a job, or an interrupt of the waiting thread, stops all of them and is raised.
        """
        waiting = iter(jobs)
        threads = [
            threading.Thread(target=self._work, args=(waiting,), daemon=True)
            for _ in range(max(1, min(workers, len(jobs))))
        ]
        inner = torch.get_num_threads()
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    thread.join(_WAKE)
                    self._report()
        except BaseException:
            self._stop.set()
            raise
        finally:
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
            torch.set_num_threads(inner)  # part of what a worker sets is the whole program's
        if self._error is not None:
            raise self._error

    def _report(self) -> None:
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total)

    def _work(self, waiting: Iterator[Callable[[], None]]) -> None:
        try:
            with _quiet():
                while not self._stop.is_set():
                    with self.lock:
                        job = next(waiting, None)
                    if job is None:
                        return
                    job()
        except Stopped:
            return
        except BaseException as error:
            self._error = error
            self._stop.set()


@contextmanager
def _quiet() -> Iterator[None]:
    """Set up the thread of a worker; all but the number of threads is this thread's alone.

    Two threads inside a product of some rows wait for each other longer than they compute. Numbers
    below the smallest normal one cost the processor as much as all others: they become 0.
    """
    torch.set_num_threads(1)
    flushes = torch.set_flush_denormal(True)
    try:
        with torch.no_grad():
            yield
    finally:
        if flushes:
            torch.set_flush_denormal(False)
