"""The processes of commands, which get the signals that come to this one."""

import signal
import subprocess
import threading
from pathlib import Path
from types import FrameType

from train.foundation.errors import Stopped

# A terminal that closes sends the last one.
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ChildProcesses:
    """The processes that run now. Within the context, signals are passed on to all of them.

    The context is opened in the main thread. `run` may be called in several others.
    """

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []
        self._signal: int | None = None
        # Reentrant: a second signal can come to the thread while it passes on the first.
        self._lock = threading.RLock()
        self._handlers: dict[signal.Signals, signal._HANDLER] = {}

    def __enter__(self) -> "ChildProcesses":
        for number in _STOPPING:
            # Shells start background processes with an ignored SIGINT, and nohup with an ignored
            # SIGHUP; they stay ignored.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._handlers[number] = signal.signal(number, self._pass_on)
        return self

    def __exit__(self, *_exception: object) -> None:
        while self._handlers:
            signal.signal(*self._handlers.popitem())

    def run(self, command: list[str], log: Path) -> int:
        """Runs a command, appends its output to a log, and returns its exit code.

        Raises:
            Stopped: a signal came; the command has ended.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            # A signal of another thread waits until the process is in the list.
            with self._lock:
                self._stop_if_asked()
                # In a session of its own: Ctrl-C reaches the entire foreground group, and a second
                # signal, the one passed on, would end the run before it has saved.
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                self._running.append(process)
                # A signal of this thread does not wait: it may have come while the process started.
                if self._signal is not None:
                    _stop(process, self._signal)
            try:
                code = process.wait()
            finally:
                with self._lock:
                    self._running.remove(process)
        self._stop_if_asked()
        return code

    def _stop_if_asked(self) -> None:
        if self._signal is not None:
            raise Stopped(self._signal, "the same command continues from here")

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        with self._lock:
            self._signal = number
            for process in self._running:
                _stop(process, number)


def _stop(process: subprocess.Popen[bytes], number: int) -> None:
    # A run does not save before it ends by SIGHUP.
    process.send_signal(signal.SIGTERM if number == signal.SIGHUP else number)
