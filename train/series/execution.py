"""Makes planned runs, each in its own process, one after another or several at a time."""

import shlex
import signal
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from train.foundation import files
from train.foundation.console import show_line
from train.series.child_processes import ChildProcesses
from train.series.planned_runs import PlannedRun
from train.series.planner import Planner
from train.series.runs_folder import RunsFolder, Status

# How often the main thread checks for signals while it waits for a run. A signal just before the
# wait, or one that the system gives to another thread, does not end the wait.
_PAUSE = 0.2
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

    def show_failed(self) -> None:
        """Prints the runs that failed, with their reasons."""
        if self.failed:
            show_line(f"{len(self.failed)} failed:")
        for name, reason in self.failed.items():
            show_line(f"  {name}: {reason}")


@dataclass(frozen=True)
class _Ended:
    """How a run ended: after how many seconds, and why it failed if it did."""

    seconds: float
    reason: str | None


def show_commands(planner: Planner) -> None:
    """Prints the commands that make runs, one a line, to be pasted into a shell."""
    for run in planner.runs:
        arguments = run.training(planner.folder.workdir(run))
        show_line(shlex.join(["python", *arguments]))
    if planner.waiting:
        # Not among the commands, which may be piped into a shell.
        sys.stderr.write(
            f"about {planner.waiting} more runs follow when these are finished: the same command "
            "then prints them\n"
        )


def execute(look: Callable[[], Planner], *, jobs: int = 1) -> Execution:
    """Trains the runs that are not finished. A run that fails stops no other.

    Args:
        look: reads the folder of runs; what the planner needs then is made.
        jobs: how many runs are made at a time.

    Raises:
        UserError: another command makes runs in this folder now.
        Stopped: SIGINT or SIGTERM came. It was passed on to the runs, which have ended.
    """
    execution = Execution()
    running: dict[Future[_Ended], PlannedRun] = {}
    with (
        files.lock(look().folder.path, "another command that makes runs"),
        ChildProcesses() as processes,
        ThreadPoolExecutor(jobs) as threads,
    ):
        while True:
            planner = look()
            folder = planner.folder
            begun = execution.ended | {run.key for run in running.values()}
            to_make = [run for run in planner.to_make if run.key not in begun]
            for place, run in enumerate(to_make[: jobs - len(running)]):
                number = len(begun) + place + 1
                left = len(to_make) - place + planner.waiting
                if number == 1:
                    show_line(f"what a run prints goes to its .log in {folder.path}")
                show_line(
                    f"run {number} of {number + left - 1}: {run.name}"
                    + _time_left((left + len(running)) / jobs, execution.seconds)
                )
                running[threads.submit(_make, run, folder, processes)] = run
            if not running:
                return execution
            done: set[Future[_Ended]] = set()
            while not done:
                done = wait(running, timeout=_PAUSE, return_when=FIRST_COMPLETED).done
            for future in done:
                run = running.pop(future)
                _record_end(run, future.result(), folder, execution, names_it=jobs > 1)


def _make(run: PlannedRun, folder: RunsFolder, processes: ChildProcesses) -> _Ended:
    start = time.monotonic()
    reason = _train(run, folder, processes)
    return _Ended(time.monotonic() - start, reason)


def _record_end(
    run: PlannedRun, ended: _Ended, folder: RunsFolder, execution: Execution, *, names_it: bool
) -> None:
    of_it = f" {run.name}" if names_it else ""
    took = _duration(ended.seconds)
    execution.ended.add(run.key)
    if ended.reason is None:
        execution.seconds.append(ended.seconds)
        show_line(f"  finished{of_it} in {took}")
    else:
        execution.failed[run.name] = ended.reason
        show_line(f"  failed{of_it} after {took}: {ended.reason} (see {folder.log(run)})")


def _train(run: PlannedRun, folder: RunsFolder, processes: ChildProcesses) -> str | None:
    """Trains a run; returns why that failed, or None."""
    # This may be one task of several, which then work on series of their own.
    command = [sys.executable, *run.training(folder.workdir(run)), "--nocluster"]
    code = processes.run(command, folder.log(run))
    if code < 0:
        # The last line of the log tells what the run did until then.
        return f"ended by signal {-code}, {signal.strsignal(-code)}"
    if code != 0:
        return folder.last_line(run) or f"exit code {code}"
    after = RunsFolder(folder.path)
    if after.status(run) is not Status.FINISHED:
        return "the command ended without an error, and without results"
    return None


def _time_left(rounds: float, seconds: list[float]) -> str:
    """The time for a number of runs one after another, in words; empty before the first ended."""
    if not seconds:
        return ""
    return f" (about {_duration(rounds * statistics.median(seconds))} left)"


def _duration(seconds: float) -> str:
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    return f"{seconds / _HOUR:.1f} h"
