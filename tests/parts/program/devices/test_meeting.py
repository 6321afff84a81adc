"""Processes that meet on this machine: they are let on together, or end with one mistake."""

import contextlib
import socket
import threading
from dataclasses import dataclass, field

import pytest

from train.devices import meeting, meeting_host
from train.devices.meeting import Address
from train.foundation.errors import UserError

# Seconds: the longest wait for a process of the tests, which come at once.
SECONDS = 30
# The timeout for what never comes.
SHORT = 0.3


@pytest.fixture
def port():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


@dataclass
class Guest:
    """A process that comes, in a thread."""

    index: int
    number: int
    connect: object = lambda: None
    error: list = field(default_factory=list)

    def start(self, port, seconds):
        self.thread = threading.Thread(target=self._meet, args=(port, seconds), daemon=True)
        self.thread.start()

    def _meet(self, port, seconds):
        address = Address("localhost", port)
        try:
            meeting.meet(address, self.number, self.index, self.connect, seconds=seconds)
        except Exception as error:
            self.error.append(error)


def errors(port, *guests, seconds=SECONDS):
    """The messages of the guests that do not fit; each ends."""
    for guest in guests:
        guest.start(port, seconds)
    for guest in guests:
        guest.thread.join(SECONDS)
        assert not guest.thread.is_alive()
    return [str(error) for guest in guests for error in guest.error]


@pytest.mark.parametrize("number", [1, 3])
def test_processes_that_fit_are_connected(port, number):
    connected = []
    guests = [Guest(index, number, lambda: connected.append(0)) for index in range(number)]
    assert errors(port, *guests) == []
    assert len(connected) == number
    # JAX can have the port.
    with socket.create_server(("localhost", port)):
        pass


def test_two_processes_with_one_index_end_with_it(port):
    found = errors(port, Guest(0, 3), Guest(1, 3), Guest(1, 3))
    assert len(found) == 3
    assert set(found) == {"--process_index must differ in all processes; two processes have 1"}


def test_different_numbers_of_processes_end_with_them(port):
    found = errors(port, Guest(0, 2), Guest(1, 3))
    assert len(found) == 2
    (message,) = set(found)
    assert message.startswith("--num_processes must be the same in all processes; it is 2 in ")


def test_a_process_that_does_not_come_is_named(port, capsys):
    (found,) = errors(port, Guest(0, 3), seconds=SHORT)
    assert found.endswith("processes 1, 2 did not come within 0 s")
    assert "waiting for processes 1, 2 of 3" in capsys.readouterr().out


def test_a_process_that_dies_before_all_have_come_ends_the_others(port):
    guests = [Guest(0, 3), Guest(1, 3)]
    for guest in guests:
        guest.start(port, SECONDS)
    connection = None
    while connection is None:
        with contextlib.suppress(OSError):
            connection = socket.create_connection(("localhost", port), SECONDS)
    with connection:
        assert connection.makefile().readline().strip() == meeting_host.GREETING
        connection.sendall(b"process 2 of 3\n")
        assert connection.makefile().readline().strip() == meeting_host.OK
    for guest in guests:
        guest.thread.join(SECONDS)
        (error,) = guest.error
        assert str(error) == "process 2 ended before all processes were connected"


def test_what_fails_in_one_process_ends_all(port):
    def fail():
        raise RuntimeError("no route")

    found = errors(port, Guest(0, 2), Guest(1, 2, fail))
    assert sorted(found) == ["no route", "process 1 ended before all processes were connected"]


@pytest.mark.parametrize("text", ["localhost:99999", "localhost", "[::1:80"])
def test_an_address_that_is_none_is_refused(text):
    with pytest.raises(UserError, match="must be HOST:PORT with a port from 1 to 65535; got "):
        Address.parse(text)
    assert Address.parse("[::1]:80") == Address("::1", 80)
