"""The program as a user starts it: in processes of its own, stopped in many ways, and compared."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

ROOT = Path(__file__).parents[2]
# A limit for a hang, in seconds: a start takes some ten of them on a busy machine.
TIME_LIMIT = 300


class Running(AbstractContextManager["Running"]):
    """A process of the program, the first of a process group as one that a terminal starts.

    It is killed at the end of the context, and when it goes on past the limit for a hang.
    """

    def __init__(self, command: Sequence[str], environment: dict[str, str], stderr: Path) -> None:
        self._stderr = stderr
        with stderr.open("w") as stream:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
                start_new_session=True,
            )
        self._printed = cast(IO[str], self._process.stdout)
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
        """Sends a signal to the process alone, or to all of its group as a terminal does."""
        (os.killpg if to_group else os.kill)(self.pid, number)

    def end(self) -> subprocess.CompletedProcess:
        """Waits for the end."""
        rest, _ = self._process.communicate()
        return self._completed(rest)

    def killed_after(self, seconds: float) -> bool:
        """Kills the process after a time; False if it had come to its end before."""
        try:
            done = self._completed(self._process.communicate(timeout=seconds)[0])
        except subprocess.TimeoutExpired:
            self._kill()
            self._process.communicate()
            return True
        assert done.returncode == 0, done.stderr
        return False

    def _completed(self, rest: str) -> subprocess.CompletedProcess:
        return subprocess.CompletedProcess(
            self._process.args,
            self._process.returncode,
            "".join(self._lines) + rest,
            self._stderr.read_text(),
        )

    def _kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)


@dataclass(frozen=True)
class Program:
    """One command, which is typed again after whatever stopped it.

    Attributes:
        folder: where data sets are prepared.
        arguments: the configuration.
    """

    folder: Path
    arguments: tuple[str, ...]

    def start(
        self,
        workdir: Path,
        *more: str,
        devices: int = 2,
        moment: str | None = None,
        compiled: bool = True,
        name: str | None = None,
    ) -> Running:
        """Starts the command.

        Args:
            workdir: of the run.
            more: further arguments.
            devices: how many.
            moment: one of `tests.train.interrupted`.
            compiled: whether steps that were compiled by an earlier start are used.
            name: of the file beside the workdir that its errors go to; by default the workdir's.
        """
        module = ("train.main",) if moment is None else ("tests.train.interrupted", moment)
        environment = {
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
            "TFDS_DATA_DIR": str(self.folder / "data"),
            "JAX_ENABLE_COMPILATION_CACHE": str(compiled).lower(),
        }
        workdir.parent.mkdir(parents=True, exist_ok=True)
        return Running(
            [sys.executable, "-m", *module, f"--workdir={workdir}", *self.arguments, *more],
            environment,
            workdir.parent / f"{name or workdir.name}.stderr",
        )

    def run(self, workdir: Path, *more: str, **settings) -> subprocess.CompletedProcess:
        """Runs the command to its end."""
        with self.start(workdir, *more, **settings) as running:
            return running.end()

    def complete(self, workdir: Path, *more: str, **settings) -> subprocess.CompletedProcess:
        """Runs the command to an end that must be a good one."""
        done = self.run(workdir, *more, **settings)
        assert done.returncode == 0, done.stderr
        return done


@contextmanager
def start_together(program: Program, workdir: Path) -> Iterator[list[Running]]:
    """Starts two processes of two devices each that train one classifier."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                program.start(
                    workdir,
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
    """The steps of the whole checkpoints of a run."""
    folders = (workdir / "checkpoints").iterdir()
    return sorted(int(folder.name) for folder in folders if folder.name.isdigit())


def flip_a_bit(checkpoint: Path) -> None:
    """Damages the largest file of a checkpoint as a bad disk does."""
    found = (file for file in (checkpoint / "state").rglob("*") if file.is_file())
    largest = max(found, key=lambda file: file.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 1
    largest.write_bytes(content)


def truncate(checkpoint: Path) -> None:
    """Cuts every file of a checkpoint's state short, as a power cut does."""
    for file in (checkpoint / "state").rglob("*"):
        if file.is_file():
            os.truncate(file, file.stat().st_size // 2)
