"""The program as a user starts it: in processes of its own, stopped in many ways, and compared."""

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.parts.program.forked import TIME_LIMIT, Ended, Process, Start


class Running(AbstractContextManager["Running"]):
    """A process of the program.

    It is killed at the end of the context, and if it runs longer than the limit for a hang.
    """

    def __init__(self, start: Start, stderr: Path) -> None:
        self._stderr = stderr
        ours, its = os.pipe()
        with stderr.open("w") as errors:
            self._process = Process(start, its, errors.fileno())
        os.close(its)
        self._printed = os.fdopen(ours)
        self._lines: list[str] = []
        self._limit = threading.Timer(TIME_LIMIT, self._kill)
        self._limit.start()

    def __exit__(self, *_exception: object) -> None:
        self._limit.cancel()
        self._kill()
        self._process.wait()
        self._printed.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def read_until(self, text: str) -> None:
        """Waits until the program prints a line with the text."""
        for line in self._printed:
            self._lines.append(line)
            if text in line:
                return
        raise AssertionError(f"never printed {text!r}: {self._lines} {self._stderr.read_text()}")

    def send(self, number: signal.Signals, *, to_group: bool = False) -> None:
        """Sends a signal to only the process, or to all of its group as a terminal does."""
        (os.killpg if to_group else os.kill)(self.pid, number)

    def end(self) -> Ended:
        """Waits for the end, also of the processes that the program started."""
        self._lines.extend(self._printed)
        returncode = self._process.wait()
        assert returncode is not None
        return Ended(returncode, "".join(self._lines), self._stderr.read_text())

    def ends_within(self, seconds: float) -> bool:
        """Whether the process comes to its end before the seconds are over."""
        return self._process.wait(seconds) is not None

    def killed_after(self, seconds: float) -> bool:
        """Kills the process after a time; False if it had come to its end before."""
        if not self.ends_within(seconds):
            self._kill()
            self.end()
            return True
        done = self.end()
        assert done.returncode == 0, done.stderr
        return False

    def _kill(self) -> None:
        # It may have ended without this process knowing it.
        with suppress(ProcessLookupError):
            if self._process.wait(0) is None:
                os.killpg(self.pid, signal.SIGKILL)


@dataclass(frozen=True)
class Program:
    """One command, which is typed again after whatever stopped it.

    Attributes:
        arguments: the configuration.
        compiled_quickly: whether it compiles as the tests do, and not as for users.
    """

    arguments: tuple[str, ...]
    compiled_quickly: bool = False

    def start(
        self,
        workdir: Path,
        *more: str,
        devices: int = 2,
        moment: str | None = None,
        name: str | None = None,
    ) -> Running:
        """Starts the command.

        Args:
            workdir: of the run.
            more: further arguments.
            devices: how many.
            moment: one of `tests.parts.program.interrupted`.
            name: of the file beside the workdir that its errors go to; by default the workdir's.
        """
        environment = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
        if moment is not None:
            environment["MOMENT"] = moment
        start = Start(
            "train.main" if moment is None else "tests.parts.program.interrupted",
            (f"--workdir={workdir}", *self.arguments, *more),
            environment,
            compiled_quickly=self.compiled_quickly,
        )
        workdir.parent.mkdir(parents=True, exist_ok=True)
        return Running(start, workdir.parent / f"{name or workdir.name}.stderr")

    def run(self, workdir: Path, *more: str, **settings) -> Ended:
        """Runs the command to its end."""
        with self.start(workdir, *more, **settings) as running:
            return running.end()

    def complete(self, workdir: Path, *more: str, **settings) -> Ended:
        """Runs the command to an end that must be a good one."""
        done = self.run(workdir, *more, **settings)
        assert done.returncode == 0, done.stderr
        return done


@contextmanager
def start_together(
    program: Program,
    workdir: Path,
    *,
    of_second: tuple[str, ...] = (),
) -> Iterator[list[Running]]:
    """Starts two processes of two devices each that train one classifier.

    Args:
        program: what both run.
        workdir: of the run.
        of_second: further arguments of the second process.
    """
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                program.start(
                    workdir,
                    *(of_second if index else ()),
                    f"--coordinator=localhost:{port}",
                    "--num_processes=2",
                    f"--process_index={index}",
                    name=f"{workdir.name}.{index}",
                )
            )
            for index in range(2)
        ]


def outcome(workdir: Path) -> dict[str, str]:
    """All that a run leaves of numbers, as text, without times; it left nothing half-written."""
    results = json.loads((workdir / "results.json").read_text())
    for name in ("epoch_seconds", "examples_per_second", "data_wait_share", "config", "devices"):
        del results[name]
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line.pop("seconds", None)
    assert not list(workdir.rglob("*tmp*"))
    assert (workdir / "learning_curves.png").exists()
    return {
        "results": json.dumps(results, sort_keys=True),
        "metrics": "\n".join(json.dumps(line, sort_keys=True) for line in lines),
    }


def checkpoints(workdir: Path) -> list[int]:
    """The steps of the complete checkpoints of a run."""
    folders = (workdir / "checkpoints").iterdir()
    return sorted(int(folder.name) for folder in folders if folder.name.isdigit())
