"""Process 0 answers the processes that come, before it leaves its port to JAX; see `meeting`.

Messages are lines. The host greets whoever connects. A process then sends its index and the number
of processes, and later that JAX has connected it. The host answers each of the two lines with `ok`
when all processes have sent it. It answers a mistake at once.
"""

import asyncio
import contextlib
import errno
import re
import socket
import threading
from collections.abc import Iterable

from train.foundation.console import show_line
from train.foundation.errors import UserError

GREETING = "topk_jax meets here"
CONNECTED = "connected"
OK = "ok"
# The longest time that JAX may take to connect processes that all have come.
CONNECTING_SECONDS = 60
_HELLO = re.compile(r"process (\d{1,9}) of (\d{1,9})")
# How long the host waits without a word.
_SILENT_SECONDS = 10
# How long the host reports a mistake to processes that come late.
_LINGER_SECONDS = 5
# How long a process may take to receive its last line.
_CLOSE_SECONDS = 1
# The most processes that a message names.
_MOST_NAMED = 5


class PortInUseError(Exception):
    """Another program, or another process 0, listens at the port."""


class MeetingHost:
    """The host, in a thread.

    Args:
        port: where it listens, on all addresses of this machine as the coordinator of JAX does.
        num_processes: how many processes come, this one among them.
        seconds: the longest wait for them.

    Raises:
        PortInUseError: the port is not free.
        UserError: this process may not have the port.
    """

    def __init__(self, port: int, num_processes: int, seconds: float) -> None:
        self._num_processes = num_processes
        self._seconds = seconds
        self._guests: dict[int, asyncio.StreamWriter] = {}
        # The writers of the guests, and of others that have connected.
        self._writers: list[asyncio.StreamWriter] = []
        self._num_connected = 0
        self._num_told = 0
        self._mistake = ""
        self._all_came, self._all_told, self._ended = (asyncio.Event() for _ in range(3))
        listener = _listen(port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(listener,), daemon=True)
        self._thread.start()

    def end(self, mistake: str) -> None:
        """Returns when the others know of a mistake, which is this one unless there was another."""
        with contextlib.suppress(RuntimeError):  # The loop has ended.
            self._loop.call_soon_threadsafe(self._fail, mistake)
        self._thread.join()

    def _run(self, listener: socket.socket) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve(listener))

    async def _serve(self, listener: socket.socket) -> None:
        self._server = await asyncio.start_server(self._receive, sock=listener)
        silent = min(_SILENT_SECONDS, self._seconds)
        if not await _comes(self._all_came, silent):
            show_line(f"waiting for {self._missing()} of {self._num_processes}")
            if not await _comes(self._all_came, self._seconds - silent):
                self._fail(f"{self._missing()} did not come within {self._seconds:.0f} s")
        await _comes(self._ended, CONNECTING_SECONDS)
        if self._mistake:
            await _comes(self._all_told, _LINGER_SECONDS)
        self._server.close()
        for writer in self._writers:
            writer.close()
        closed = (writer.wait_closed() for writer in self._writers)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*closed, return_exceptions=True), _CLOSE_SECONDS)

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        with contextlib.suppress(asyncio.CancelledError):  # At the end; asyncio would print it.
            await self._talk(reader, writer)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _say(GREETING, [writer])
        hello = _HELLO.fullmatch(await _line(reader))
        if hello is None:
            writer.close()  # Another program.
            return
        index, count = int(hello[1]), int(hello[2])
        self._fail(self._wrong(index, count))
        if self._mistake:
            self._tell([writer])
            return
        self._guests[index] = writer
        if len(self._guests) == self._num_processes:
            self._server.close()  # JAX can have the port now.
            self._all_came.set()
            _say(OK, self._guests.values())
        if await _line(reader) != CONNECTED:
            self._fail(f"process {index} ended before all processes were connected")
            return
        self._num_connected += 1
        if self._num_connected == self._num_processes:
            _say(OK, self._guests.values())
            self._ended.set()

    def _wrong(self, index: int, count: int) -> str:
        """What is wrong with a process that comes; empty if it fits."""
        if count != self._num_processes:
            return (
                "--num_processes must be the same in all processes; it is "
                f"{self._num_processes} in process 0, and {count} in process {index}"
            )
        if index in self._guests:
            return same_index(index)
        return ""

    def _fail(self, mistake: str) -> None:
        """Reports a mistake to the processes, unless there is none, or one was reported before."""
        if mistake and not self._mistake:
            self._mistake = mistake
            self._tell(self._guests.values())
            self._all_came.set()
            self._ended.set()

    def _tell(self, writers: Iterable[asyncio.StreamWriter]) -> None:
        self._num_told += _say(self._mistake, writers)
        if self._num_told >= self._num_processes:
            self._all_told.set()

    def _missing(self) -> str:
        """The processes that have not come."""
        missing = [index for index in range(self._num_processes) if index not in self._guests]
        named = ", ".join(map(str, missing[:_MOST_NAMED]))
        more = len(missing) - _MOST_NAMED
        what = "process" if len(missing) == 1 else "processes"
        return f"{what} {named}" + (f" and {more} more" if more > 0 else "")


def same_index(index: int) -> str:
    """The message for two processes with one index."""
    return f"--process_index must differ in all processes; two processes have {index}"


def _listen(port: int) -> socket.socket:
    # A port that a killed process had is free. One at which another process listens is not.
    families = [socket.AF_INET6] if socket.has_dualstack_ipv6() else []
    for family in (*families, socket.AF_INET):
        dual = family == socket.AF_INET6
        try:
            return socket.create_server(("", port), family=family, dualstack_ipv6=dual)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortInUseError from error
            if family == socket.AF_INET:
                reason = f"this process may not have the port {port}: {error.strerror}"
                raise UserError(f"--coordinator: {reason}") from error
    raise AssertionError


def _say(words: str, writers: Iterable[asyncio.StreamWriter]) -> int:
    """Sends a line to some processes; returns to how many. Those that have ended are among them."""
    told = 0
    for writer in writers:
        writer.write(f"{words}\n".encode())
        told += 1
    return told


async def _line(reader: asyncio.StreamReader) -> str:
    """The next line; empty if there is none, or if it is not one of ours."""
    try:
        return (await reader.readline()).decode(errors="replace").strip()
    except (OSError, ValueError):
        return ""


async def _comes(event: asyncio.Event, seconds: float) -> bool:
    """Whether an event comes within some seconds."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True
