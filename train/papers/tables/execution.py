"""Trains the runs of a table one after another, each in its own process."""

import contextlib
import signal
import statistics
import subprocess
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from train.foundation import invocation
from train.foundation.console import show_line
from train.foundation.errors import InterruptedRunError
from train.papers.tables.planned_runs import PlannedRun
from train.papers.tables.planning import Planner
from train.papers.tables.runs_folder import TO_MAKE, RunsFolder, Status
from train.papers.tables.table import Table

_MINUTE = 60
_HOUR = 3600


@dataclass
class Execution:
    """The runs that have ended.

    Attributes:
        ended: their keys.
        seconds: the durations of those that finished.
        failed: the names of those that failed, with the reason.
    """

    ended: set[str] = field(default_factory=set)
    seconds: list[float] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def execute(table: Table, look: Callable[[], Planner]) -> Execution:
    """Trains and evaluates the runs that are not finished. A run that fails stops no other.

    Args:
        table: the table.
        look: returns a planner that has read the runs that are finished now.

    Raises:
        InterruptedRunError: SIGINT or SIGTERM came. It was passed on to the run, which has ended.
    """
    execution = Execution()
    with _Child() as child:
        while True:
            planner = look()
            plan = planner.plan(table)
            folder = planner.folder
            to_make = [
                run
                for run in plan.runs
                if run.key not in execution.ended and folder.status(run) in TO_MAKE
            ]
            if not to_make:
                return execution
            left = len(to_make) + plan.waiting
            number = len(execution.ended) + 1
            if number == 1:
                show_line(f"what a run prints goes to its .log in {folder.path}")
            show_line(
                f"run {number} of {number + left - 1}: {to_make[0].name}"
                + _time_left(left, execution.seconds)
            )
            _make(to_make[0], folder, child, execution)


def _make(run: PlannedRun, folder: RunsFolder, child: "_Child", execution: Execution) -> None:
    start = time.monotonic()
    log = folder.log(run)
    reason = _commands(run, folder, child, log)
    took = time.monotonic() - start
    execution.ended.add(run.key)
    if reason is None:
        execution.seconds.append(took)
        show_line(f"  finished in {_duration(took)}")
    else:
        execution.failed[run.name] = reason
        show_line(f"  failed after {_duration(took)}: {reason} (see {log})")


def _commands(run: PlannedRun, folder: RunsFolder, child: "_Child", log: Path) -> str | None:
    """Runs the commands that a run still needs; returns why one failed, or None."""
    workdir = folder.workdir(run)
    commands = [run.training(workdir)] if folder.finished(run) is None else []
    if run.evaluated:
        commands.append(run.evaluation(workdir))
    for arguments in commands:
        code = child.run(invocation.as_process(arguments), log)
        if code != 0:
            return folder.last_line(run) or f"exit code {code}"
    after = RunsFolder(folder.path)
    if after.status(run) is not Status.FINISHED:
        return "the command ended well, and left no results"
    return None


class _Child:
    """The process of a command. Within the context, signals are passed on to it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._signal: int | None = None
        self._unsent: deque[int] = deque()
        self._handlers: dict[signal.Signals, signal._HANDLER] = {}

    def __enter__(self) -> "_Child":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._handlers[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_exception: object) -> None:
        while self._handlers:
            signal.signal(*self._handlers.popitem())

    def run(self, command: list[str], log: Path) -> int:
        """Runs a command, appends its output to a log, and returns its exit code.

        Raises:
            InterruptedRunError: a signal came; the command has ended.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self._stop_if_asked()
            # In a session of its own: Ctrl-C reaches the whole foreground group, and a second
            # signal, the one passed on, would end the run before it has saved.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            # A signal may have come while the process was started.
            self._pass_on()
            try:
                code = self._process.wait()
            finally:
                self._process = None
        self._stop_if_asked()
        return code

    def _stop_if_asked(self) -> None:
        if self._signal is not None:
            raise InterruptedRunError(self._signal, "the same command goes on from here")

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        self._signal = number
        self._unsent.append(number)
        self._pass_on()

    def _pass_on(self) -> None:
        # A signal can come between any two lines of this: whoever takes a number out sends it.
        with contextlib.suppress(IndexError):
            while self._process is not None:
                self._process.send_signal(self._unsent.popleft())


def _time_left(runs: int, seconds: list[float]) -> str:
    """The time that the runs will take by the median so far; empty before the first."""
    if not seconds:
        return ""
    return f" (about {_duration(runs * statistics.median(seconds))} left)"


def _duration(seconds: float) -> str:
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    return f"{seconds / _HOUR:.1f} h"
