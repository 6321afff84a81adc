"""A command of the program in a process of its own, and the memory that it takes."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Between two looks at the process, in seconds.
_INTERVAL = 0.2


@dataclass(frozen=True)
class Watched:
    """What was seen of a process.

    Attributes:
        seconds: from its start to its end; on a busy machine an indication only.
        processor_seconds: of all its threads.
        peak_mb: the largest resident memory, in 10^6 bytes.
        samples: what the caller counted, and the resident memory at that time in 10^6 bytes.
    """

    seconds: float
    processor_seconds: float
    peak_mb: float
    samples: list[tuple[Any, float]]

    def to_json(self) -> dict[str, float]:
        """What a file of results contains of it."""
        return {
            "peak_mb": round(self.peak_mb),
            "seconds_on_a_busy_machine": round(self.seconds, 1),
            "processor_seconds": round(self.processor_seconds, 1),
        }


def run(
    arguments: Sequence[str], *, count: Callable[[], Any] = lambda: None, **environment: str
) -> Watched:
    """Runs `python` with these arguments to its end, and raises if it fails.

    Args:
        arguments: the arguments of the interpreter, such as -m and a module.
        count: how far the process has come; asked at each look.
        environment: variables that are added to the variables of this process.
    """
    began, peak, samples = time.monotonic(), 0.0, []
    with tempfile.TemporaryFile("w+") as said:
        child = subprocess.Popen(
            [sys.executable, *arguments],
            stdout=said,
            stderr=subprocess.STDOUT,
            env=os.environ | environment,
        )
        before = os.times()
        while child.poll() is None:
            memory = _memory(child.pid)
            if memory is not None:
                samples.append((count(), memory["VmRSS"]))
                peak = max(peak, memory["VmHWM"])
            time.sleep(_INTERVAL)
        after = os.times()
        if child.returncode != 0:
            said.seek(0)
            raise RuntimeError(f"{' '.join(arguments)} failed:\n{said.read()[-2000:]}")
    used = after.children_user + after.children_system
    used -= before.children_user + before.children_system
    return Watched(time.monotonic() - began, used, peak, samples)


def _memory(process: int) -> dict[str, float] | None:
    """The resident memory and its peak so far, in 10^6 bytes; None if it has just ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in lines if line.startswith(("VmRSS", "VmHWM")))
    found = {name: int(text.split()[0]) * 1024 / 1e6 for name, text in fields.items()}
    return found if len(found) == 2 else None
