"""Trials in a separate process, with a limit of time for each and a limit of memory.

A process makes many trials, one after another, and reports how each ended. If it dies or takes too
long, its current trial fails, and another process continues with the next.
"""

import io
import json
import os
import resource
import select
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.parts.program.forked import Process, Start, limit

# The index of a trial to what is tried, and a function that tries it. That returns why the trial
# failed, if it did.
Trial = Callable[[int], tuple[str, Callable[[], str | None]]]

# The lines of a process.
_WHAT, _FAILURE = "what", "failure"
_SETTINGS = "CHAOS_BLOCK"
# The seconds of a trial: it takes milliseconds, on a machine that does other things too.
_SECONDS = 60
# If more die, all would: the others are not made.
_MOST_PROCESSES = 5


def run(module: str, number: int, **settings: str | int) -> Iterator[tuple[int, str, str | None]]:
    """Makes trials in processes that run a module, whose `main` calls `serve`.

    Returns:
        The index of each trial, what was tried, and why it failed, if it did.
    """
    first = 0
    for _ in range(_MOST_PROCESSES):
        for index, what, failure in _block(module, first, number, settings):
            yield index, what, failure
            first = index + 1
        if first == number:
            return


def _block(
    module: str, first: int, last: int, settings: dict[str, str | int]
) -> Iterator[tuple[int, str, str | None]]:
    """The trials of one process, up to the one that ends it."""
    environment = {_SETTINGS: json.dumps({**settings, "first": first, "last": last})}
    ours, its = os.pipe()
    with tempfile.TemporaryFile("w+") as errors, os.fdopen(ours, "rb", buffering=0) as printed:
        process = Process(Start(module, (), environment), its, errors.fileno())
        os.close(its)
        index, what = first, "the beginning"
        lines = _lines(printed)
        while index < last:
            try:
                kind, text = next(lines)
            except TimeoutError as error:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                yield index, what, str(error)
                return
            except StopIteration:
                errors.seek(0)
                yield index, what, f"ended with {process.wait()}: {errors.read()[-3000:]}"
                return
            if kind == _WHAT:
                what = text
            else:
                yield index, what, text
                index += 1
        process.wait()


def _lines(printed: io.FileIO) -> Iterator[tuple[str, Any]]:
    """The lines of a process, as it prints them."""
    pending = b""
    while True:
        while b"\n" not in pending:
            if not select.select([printed], [], [], _SECONDS)[0]:
                raise TimeoutError(f"no end in {_SECONDS} s")
            found = printed.read(2**16)
            if not found:
                return
            pending += found
        line, _, pending = pending.partition(b"\n")
        kind, text = json.loads(line)
        yield kind, text


def settings() -> dict[str, str | int]:
    """What `run` was given, in the process that it started."""
    found: dict[str, str | int] = json.loads(os.environ[_SETTINGS])
    return found


def serve(begin: Callable[[Path], Trial], *, memory: int) -> None:
    """Makes the trials that this process was started for.

    Args:
        begin: makes what all trials share in a folder, and returns what makes one.
        memory: how many more bytes than now the process may have.
    """
    answers = os.dup(1)
    # What a trial prints is not a report.
    os.dup2(2, 1)
    chosen = settings()
    with tempfile.TemporaryDirectory() as folder:
        trial = begin(Path(folder))
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        limit(resource.RLIMIT_AS, used + memory)
        for index in range(int(chosen["first"]), int(chosen["last"])):
            what, tried = trial(index)
            _say(answers, _WHAT, f"trial {index}: {what}")
            try:
                failure = tried()
            except BaseException:
                failure = traceback.format_exc()[-3000:]
            _say(answers, _FAILURE, failure)


def _say(answers: int, kind: str, text: str | None) -> None:
    os.write(answers, f"{json.dumps((kind, text))}\n".encode())
