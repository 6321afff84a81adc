"""A process that makes runs of a study one after another.

What takes seconds, imports and devices, is there for its second run. All else is as in a process of
its own. It ends with the first run that does not finish, whatever that one has left.
"""

import contextlib
import functools
import gc
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from train.foundation.errors import exit_code, guarded

COMMAND = (sys.executable, "-m", "train.study.worker")
# The answer that a run has finished.
_FINISHED = b"."


class Worker(subprocess.Popen[bytes]):
    """The process, for the command that asks it for runs.

    As a context, it ends with the command: a run that it still makes is stopped, saves, and is
    waited for.
    """

    def __init__(self, log: Path) -> None:
        """Starts it; its errors before the first run are added to the log of that run."""
        with log.open("ab") as errors:
            super().__init__(
                COMMAND,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                # Ctrl-C reaches the entire foreground group, and a second signal, the one passed
                # on, would end the run before it has saved.
                start_new_session=True,
            )
        assert self.stdin is not None
        assert self.stdout is not None
        self._asked, self._answers = self.stdin, self.stdout
        os.set_blocking(self._answers.fileno(), False)

    def ask(self, config: Mapping[str, Any], workdir: Path, log: Path) -> None:
        """Asks for a run, whose output is added to a log; the one before has finished."""
        line = json.dumps([config, str(workdir.absolute()), str(log.absolute())])
        with contextlib.suppress(BrokenPipeError):  # It was killed meanwhile: `code` tells.
            self._asked.write(f"{line}\n".encode())

    def code(self) -> int | None:
        """The exit code of the run that was asked for; None while it is made."""
        if self._answers.read(1):
            return 0
        if (code := self.poll()) is not None:
            # There may be more failed runs than a process can have open files.
            self._asked.close()
            self._answers.close()
        return code


def main() -> int:
    """Makes the runs that standard input asks for, until it is closed.

    Returns:
        The exit code of the first run that does not finish, as that of `train.main`; else 0.
    """
    lines, makes = queue.SimpleQueue[bytes](), threading.Event()
    # The processes that a run starts must not hold these open. Without a buffer, which a thread
    # that waits would lock.
    asked = os.fdopen(os.dup(0), "rb", 0)
    answers = os.fdopen(os.dup(1), "wb", 0)
    _redirect(os.devnull, 0)

    def listen() -> None:
        # A signal interrupts what the main thread waits for.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        for line in asked:
            makes.set()
            lines.put(line)
        lines.put(b"")
        if makes.is_set():
            # The command ended by an error, or was killed: the run saves, and does not keep the
            # device. Only this signal comes then: a second one would end the run at once.
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=listen, daemon=True).start()
    for line in iter(lines.get, b""):
        config, workdir, log = json.loads(line)
        _redirect(log, 1, 2)
        if code := exit_code(functools.partial(make, config, Path(workdir))):
            return code
        _redirect(os.devnull, 1, 2)
        makes.clear()
        answers.write(_FINISHED)
    return 0


def make(config: Mapping[str, Any], workdir: Path) -> None:
    """Makes a run, as `train.main` does on one process."""
    import jax

    from train.configuration.parsing import parse
    from train.devices import processes
    from train.run import experiment

    # Collections of garbage take a tenth of the time if they do not look at what was imported.
    gc.freeze()
    if parse(config).compilation_cache:
        processes.use_compilation_cache()
    # What was warned of once is warned of again.
    with warnings.catch_warnings():
        experiment.run(config, workdir)
    # JAX keeps the functions of steps, and with them the data set and arrays on devices.
    jax.clear_caches()
    gc.collect()


def _redirect(path: str, *descriptors: int) -> None:
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    for descriptor in descriptors:
        os.dup2(file, descriptor)
    os.close(file)


if __name__ == "__main__":
    guarded(main)
