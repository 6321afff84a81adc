"""The folder of a study's runs: which have ended, and what makes the others."""

import contextlib
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from train.foundation import files
from train.foundation.console import show_line
from train.foundation.errors import Stopped
from train.run.runs import StoredRun
from train.study.plan import Planned, Study, known
from train.study.worker import Worker

# A terminal that closes sends the last one.
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# How often it is looked whether a run has ended, or a signal has come, in seconds.
_PAUSE = 0.1
# How the last line of a run's log starts if training came to numbers that are not finite.
_DIVERGED = "error: training diverged"


def finished(folders: Iterable[Path]) -> dict[str, StoredRun]:
    """The finished runs in folders, or in the folders of these, by their keys.

    Raises:
        UserError: the files of a run are damaged.
    """
    found: dict[str, StoredRun] = {}
    for run in stored(folders):
        if run.is_finished:
            found.setdefault(run.key, run)
    return found


def stored(folders: Iterable[Path]) -> Iterator[StoredRun]:
    """The runs in folders, or in the folders of these, each once, finished or not."""
    workdirs: dict[Path, Path] = {}
    for folder in filter(Path.is_dir, folders):
        for path in (folder, *sorted(filter(Path.is_dir, folder.iterdir()))):
            # A folder may be inside another one, or be a link to it.
            workdirs.setdefault(path.resolve(), path)
    return (run for run in map(StoredRun.read, workdirs.values()) if run is not None)


def ended(study: Study, folder: Path) -> dict[str, float | None]:
    """By key, the metric of validation that selects, for runs that have ended.

    It is None for a run that diverged: no other end of it is to be expected.
    """
    found: dict[str, float | None] = {}
    for run in stored([folder]):
        if run.is_finished:
            metrics = run.results.get("validation", {})
            # Of a few classes, a run selects by the metric of smaller sets.
            names = (study.select_by, run.fields.get("select_by"))
            found[run.key] = next((metrics[name] for name in names if name in metrics), None)
        elif _last_line(_log(folder, run.workdir.name)).startswith(_DIVERGED):
            found.setdefault(run.key, None)
    return found


def missing(study: Study, folder: Path) -> list[Planned]:
    """The runs to be made now, each once; others may follow when these have ended."""
    done = ended(study, folder)
    arms = [known(study, arm, done) for arm in study.arms]
    planned = {run.key: run for arm in arms for run in (*arm.search, *arm.finals)}
    return [run for key, run in planned.items() if key not in done]


def make(study: Study, folder: Path, jobs: int = 1) -> dict[str, str]:
    """Makes the missing runs. A run that fails stops no other.

    Args:
        study: the study.
        folder: the folder of its runs.
        jobs: how many runs are made at a time.

    Returns:
        The reasons of the runs that failed, by their names. A run that diverged has not failed.

    Raises:
        UserError: another command makes runs in this folder now.
        Stopped: a signal came. It was passed on to the runs, which have ended.
    """
    begun: list[str] = []
    failed: dict[str, str] = {}
    running: dict[str, Worker] = {}
    idle: list[Worker] = []
    with (
        files.lock(folder, "another command that makes runs"),
        _noted_signals() as came,
        contextlib.ExitStack() as workers,
    ):
        while True:
            to_make = [run for run in missing(study, folder) if run.name not in begun]
            of = f"of {len(begun) + len(to_make)}"
            for run in to_make[: jobs - len(running)]:
                if not begun:
                    show_line(f"what a run prints goes to its .log in {folder}")
                begun.append(run.name)
                show_line(f"run {len(begun)} {of}: {run.name}")
                log = _log(folder, run.name)
                worker = idle.pop() if idle else workers.enter_context(Worker(log))
                worker.ask(run.config, folder / run.name, log)
                running[run.name] = worker
            if not running and not came:
                return failed
            name, code = _wait(running, idle, came)
            reason = _reason(_log(folder, name), code)
            show_line(f"  {name} {f'failed: {reason}' if reason else 'finished'}")
            if reason and not reason.startswith(_DIVERGED):
                failed[name] = reason


@contextlib.contextmanager
def _noted_signals() -> Iterator[list[int]]:
    """The signals that have come. Their handlers only note them: nothing is interrupted."""
    came: list[int] = []
    # Shells start background processes with an ignored SIGINT, and nohup with an ignored SIGHUP;
    # they stay ignored.
    numbers = [one for one in _STOPPING if signal.getsignal(one) is not signal.SIG_IGN]
    before = {one: signal.signal(one, lambda number, _: came.append(number)) for one in numbers}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(running: dict[str, Worker], idle: list[Worker], came: list[int]) -> tuple[str, int]:
    """Waits until a run has ended; returns its name and exit code. Passes signals on to all."""
    first: int | None = None
    while True:
        while came:
            number = came.pop(0)
            first = first or number
            for worker in running.values():
                # A run does not save before it ends by SIGHUP.
                worker.send_signal(signal.SIGTERM if number == signal.SIGHUP else number)
        for name, worker in list(running.items()):
            if (code := worker.code()) is not None:
                del running[name]
                if first is None:
                    idle += [] if code else [worker]
                    return name, code
        if first is not None and not running:
            raise Stopped(first, "the same command continues from here")
        time.sleep(_PAUSE)


def _reason(log: Path, code: int) -> str:
    """Why a run failed; empty if it is finished."""
    if code < 0:
        # The last line of the log tells what the run did until then.
        return f"ended by signal {-code}, {signal.strsignal(-code)}"
    return (_last_line(log) or f"exit code {code}") if code else ""


def _log(folder: Path, name: str) -> Path:
    return folder / f"{name}.log"


def _last_line(log: Path) -> str:
    """The last line in a file that is not empty; an empty text if there is no file."""
    lines = log.read_text(errors="replace").split("\n") if log.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
