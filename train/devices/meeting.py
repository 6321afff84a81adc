"""Processes meet, and compare what they were given, before JAX connects them.

JAX waits for minutes for a process that does not come, for a port that another program has, and for
two processes with one index. It then aborts with a C++ stack trace. Here, process 0 listens at the
address of the coordinator until all processes have come, answers each of them, and leaves the port
to JAX. The connections stay open until JAX has connected all processes, so that all end with one
line if one of them dies. Two processes of one machine that have one index end likewise, a little
later, if process 0 does not come.
"""

import contextlib
import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from train.devices import meeting_host
from train.devices.index_claim import IndexClaim
from train.devices.meeting_host import MeetingHost
from train.foundation.console import show_line
from train.foundation.errors import UserError

# The longest wait for a greeting, and for the name of the host to be known. Process 0 of a run that
# was killed can still be at its end when the same command is given again.
_SHORT_SECONDS = 10
# The seconds between two attempts to connect.
_PAUSE = 0.1
_LONGEST_LINE = 2**12


@dataclass(frozen=True)
class Address:
    """Where process 0 listens."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """The address HOST:PORT, with brackets around an IPv6 address.

        Raises:
            UserError: it is something else.
        """
        match = re.fullmatch(r"(\[[^\[\]]+\]|[^:\[\]\s]+):([0-9]{1,5})", text)
        if match is None or not 1 <= int(match[2]) <= 65535:
            raise UserError(
                field="--coordinator", must_be="HOST:PORT with a port from 1 to 65535", got=text
            )
        return cls(match[1].strip("[]"), int(match[2]))


def meet(
    address: Address,
    num_processes: int,
    process_index: int,
    connect: Callable[[], None],
    *,
    seconds: float,
) -> None:
    """Returns when all processes have come, and JAX has connected them.

    Args:
        address: where process 0 listens.
        num_processes: how many processes there are.
        process_index: which one this is.
        connect: has JAX connect this process, once all have come. It is called in a thread.
        seconds: the longest wait for the others.

    Raises:
        UserError: the processes do not fit, one did not come, or one has ended.
    """
    host = None
    if process_index == 0:
        # Whoever has the port answers below: it may be another process 0 of these.
        with contextlib.suppress(meeting_host.PortInUseError):
            host = MeetingHost(address.port, num_processes, seconds)
    try:
        with _find_host(address, process_index, seconds, is_here=host is not None) as connection:
            # The host ends the wait earlier, unless its machine has died.
            connection.settimeout(seconds + _SHORT_SECONDS)
            connection.sendall(f"process {process_index} of {num_processes}\n".encode())
            _check_answer(connection)
            connection.settimeout(meeting_host.CONNECTING_SECONDS)
            connecting = _Connecting(connect, connection)
            connecting.start()
            try:
                _check_answer(connection)
            except UserError:
                connecting.check()
                raise
    except UserError as error:
        if host is not None:
            host.end(str(error))
        raise


class _Connecting(threading.Thread):
    """Has JAX connect this process, and reports this to the host.

    It is a thread because JAX waits in C++, where neither Ctrl-C nor the end of another process
    reaches it.
    """

    def __init__(self, connect: Callable[[], None], connection: socket.socket) -> None:
        super().__init__(daemon=True)
        self._connect = connect
        self._connection = connection
        self._error: Exception | None = None

    def run(self) -> None:
        """Connects; a failure ends the wait for the others."""
        try:
            self._connect()
            self._connection.sendall(f"{meeting_host.CONNECTED}\n".encode())
        except Exception as error:
            self._error = error
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)

    def check(self) -> None:
        """Raises the failure, if there was one."""
        if self._error is not None:
            raise self._error


def _find_host(
    address: Address, process_index: int, seconds: float, *, is_here: bool
) -> socket.socket:
    """A connection to process 0.

    Args:
        address: where it listens.
        process_index: which process this is.
        seconds: the longest wait for it.
        is_here: whether this process listens.
    """
    place = f"{address.host}:{address.port}"
    begun = time.monotonic()
    silent = process_index > 0
    with IndexClaim(place, process_index) as claim:
        while True:
            wait = seconds if process_index else _SHORT_SECONDS
            try:
                connection = socket.create_connection((address.host, address.port), _SHORT_SECONDS)
            except (socket.gaierror, UnicodeError) as error:
                reason, wait = f"the host is not known ({_words(error)})", _SHORT_SECONDS
            except OSError as error:
                reason = _words(error)
                if claim.is_shared():
                    # Process 0 may come at the same time. A process that gets no answer waits for
                    # the others.
                    wait = _SHORT_SECONDS
            else:
                if _read_line(connection) == meeting_host.GREETING:
                    return connection
                connection.close()
                reason, wait = "another program listens there", _SHORT_SECONDS
            passed = time.monotonic() - begun
            if passed >= min(wait, seconds):
                break
            if silent and passed >= _SHORT_SECONDS:
                show_line(f"waiting for process 0 at {place}: {reason}")
                silent = False
            time.sleep(_PAUSE)
        if claim.is_shared():
            raise UserError(meeting_host.same_index(process_index))
    if process_index == 0 and not is_here:
        raise UserError(f"--coordinator: another program has the port {address.port}; give another")
    hint = "; HOST must be the machine of this process" if process_index == 0 else ""
    raise UserError(f"--coordinator: process 0 cannot be reached at {place}: {reason}{hint}")


def _check_answer(connection: socket.socket) -> None:
    """Waits for the answer of process 0; raises `UserError` for a mistake."""
    answer = _read_line(connection)
    if answer != meeting_host.OK:
        raise UserError(answer or "process 0 ended before all processes were connected")


def _read_line(connection: socket.socket) -> str:
    """The next line; what has come of it if the other end is closed, or does not answer."""
    line = b""
    with contextlib.suppress(OSError):
        # By single bytes, so that nothing of the next line is taken.
        while (
            not line.endswith(b"\n") and len(line) < _LONGEST_LINE and (byte := connection.recv(1))
        ):
            line += byte
    return line.decode(errors="replace").strip()


def _words(error: Exception) -> str:
    return str(error.strerror if isinstance(error, OSError) and error.strerror else error)
