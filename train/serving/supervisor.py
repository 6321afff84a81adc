"""Several workers: they are started, started again if one dies, and ended together."""

import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from absl import logging

from train.foundation.errors import UserError
from train.serving.worker import SECONDS_TO_SEND, Worker

_STOPPING = (signal.SIGINT, signal.SIGTERM)
_READY = b"\1"
_MOST_BYTES = 2**12
# Beside the time for requests and for their responses.
_MORE_SECONDS = 5


@dataclass
class _Child:
    """A process of a worker.

    Attributes:
        index: its row of the meter.
        pid: the process.
        reports: a pipe, with `_READY` or the message of an error.
        is_ready: whether it answers.
        said: the message that it has sent.
    """

    index: int
    pid: int
    reports: int
    is_ready: bool = False
    said: str = ""

    def hear(self) -> None:
        """Reads what the process has sent; never waits."""
        while select.select([self.reports], [], [], 0)[0]:
            content = os.read(self.reports, _MOST_BYTES)
            if not content:
                return
            self.is_ready |= content.startswith(_READY)
            # A long message is cut at any byte.
            self.said += content.removeprefix(_READY).decode(errors="ignore")


class Supervisor:
    """Runs workers.

    Args:
        worker: each is started with it.
        number: how many there are.
    """

    def __init__(self, worker: Worker, number: int) -> None:
        self._worker = worker
        self._number = number
        self._children: dict[int, _Child] = {}
        self._stops_at: float | None = None
        # Why the workers are ended, unless it is a signal.
        self._mistake: Exception | None = None
        # Ends with this process: the workers then end, too.
        self._life = os.pipe()

    def run(self, on_ready: Callable[[], None]) -> None:
        """Runs the workers until SIGTERM or SIGINT comes.

        The first worker starts before the others. It finds what is wrong with the program, and
        answers /health.

        Args:
            on_ready: is called when all are ready.

        Raises:
            UserError: a worker ends before it is ready.
        """
        received, written = os.pipe()
        os.set_blocking(written, False)
        for number in (*_STOPPING, signal.SIGCHLD):
            signal.signal(number, lambda _number, _frame: None)
        signal.set_wakeup_fd(written, warn_on_full_buffer=False)
        self._start(0)
        is_ready = False
        while self._children:
            waiting = [one.reports for one in self._children.values() if not one.is_ready]
            left = None if self._stops_at is None else max(0.0, self._stops_at - time.monotonic())
            changed = select.select([received, *waiting], [], [], left)[0]
            if not changed:
                self._kill()
            if received in changed:
                self._receive(os.read(received, _MOST_BYTES))
            if any(child.is_ready for child in self._hear()) and len(self._children) == 1:
                self._start_others()
            if not is_ready and len(self._children) == self._number:
                is_ready = all(child.is_ready for child in self._children.values())
                if is_ready:
                    on_ready()
        if self._mistake is not None:
            raise self._mistake

    def _hear(self) -> list[_Child]:
        for child in self._children.values():
            child.hear()
        return list(self._children.values())

    def _start_others(self) -> None:
        if self._stops_at is None:
            running = {child.index for child in self._children.values()}
            for index in set(range(self._number)) - running:
                self._start(index)

    def _receive(self, numbers: bytes) -> None:
        """Reacts to signals."""
        for number in numbers:
            if number == signal.SIGCHLD:
                self._reap()
            elif self._stops_at is None:
                self._stop()
            else:
                self._kill()

    def _stop(self) -> None:
        seconds = self._worker.limits.seconds + SECONDS_TO_SEND + _MORE_SECONDS
        self._stops_at = time.monotonic() + seconds
        # The port is free when the last worker has closed it.
        self._worker.socket.close()
        for pid in self._children:
            os.kill(pid, signal.SIGTERM)

    def _kill(self) -> None:
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)
        # Workers are reaped at their signals.
        self._stops_at = time.monotonic() + _MORE_SECONDS

    def _reap(self) -> None:
        for pid in list(self._children):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended:
                continue
            child = self._children.pop(pid)
            child.hear()
            os.close(child.reports)
            if self._stops_at is not None:
                continue
            code = os.waitstatus_to_exitcode(status)
            # Who ends all processes of a group may come to a worker first.
            if not child.is_ready and -code not in _STOPPING:
                self._mistake = (
                    UserError(child.said)
                    if child.said
                    else OSError(f"a worker ended with the exit code {code} as it started")
                )
                # The others may be at requests.
                self._stop()
                continue
            logging.warning("worker %s ended with %s; it is started again", child.index, code)
            self._start(child.index)

    def _start(self, index: int) -> None:
        reports, reported = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        # Until the new process has its own handlers, a signal to it would be one to this process.
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
        pid = os.fork()
        if pid == 0:
            os.close(reports)
            os.close(self._life[1])
            # With others, this one answers only what it can answer at once.
            is_first = index == 0 and not self._children
            _run(self._worker, index, reported, self._life[0], answers_early=is_first)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING)
        os.close(reported)
        self._children[pid] = _Child(index, pid, reports)


def _run(
    worker: Worker, index: int, reported: int, parent: int, *, answers_early: bool
) -> NoReturn:
    """Runs a worker in the process that was made for it."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        # Until it serves, a worker has nothing to finish: a signal ends it at once.
        for number in (*_STOPPING, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING)
        worker.meter.choose_worker(index)
        worker.run(lambda: _say(reported, _READY), answers_early=answers_early, parent=parent)
        code = 0
    except UserError as error:
        _say(reported, str(error).encode(errors="backslashreplace")[:_MOST_BYTES])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _say(reported: int, content: bytes) -> None:
    os.write(reported, content)
