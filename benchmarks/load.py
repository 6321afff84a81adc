"""Clients of a server, all in one process: each sends its next request when it has the answer.

python -m benchmarks.load HOST:PORT FILE --clients=16 --seconds=3

The file has the bytes of one request. The process prints the seconds of each answer as JSON.
"""

import argparse
import json
import selectors
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path

_OK = b"HTTP/1.1 200 "
_LENGTH = b"content-length: "
_END = b"\r\n\r\n"
_PIECE = 2**16


@dataclass
class _Client:
    """A connection with a request that is not answered yet."""

    connection: socket.socket
    begun: float = 0.0
    received: bytearray = field(default_factory=bytearray)

    def send(self, request: bytes) -> None:
        self.received.clear()
        self.begun = time.perf_counter()
        self.connection.sendall(request)

    def receive(self) -> bool:
        """Takes a piece of the answer; whether it is complete."""
        piece = self.connection.recv(_PIECE)
        if not piece:
            raise ConnectionError("the server has closed a connection")
        self.received += piece
        head, found, body = self.received.partition(_END)
        if not found:
            return False
        if not head.startswith(_OK):
            raise ConnectionError(f"the server answered {bytes(self.received)!r}")
        _, _, rest = head.lower().partition(_LENGTH)
        return len(body) == int(rest.split(b"\r\n")[0])


def run(address: tuple[str, int], request: bytes, clients: int, seconds: float) -> list[float]:
    """The seconds from each request to its answer, in the order of the answers."""
    selector = selectors.DefaultSelector()
    for _ in range(clients):
        client = _Client(socket.create_connection(address))
        client.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(client.connection, selectors.EVENT_READ, client)
    end = time.perf_counter() + seconds
    for key in selector.get_map().values():
        key.data.send(request)
    taken = []
    left = clients
    while left:
        for key, _ in selector.select():
            client = key.data
            if not client.receive():
                continue
            now = time.perf_counter()
            taken.append(now - client.begun)
            if now < end:
                client.send(request)
            else:
                selector.unregister(client.connection)
                client.connection.close()
                left -= 1
    return taken


def main() -> None:
    """Sends requests and prints the seconds of their answers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("address")
    parser.add_argument("file", type=Path)
    parser.add_argument("--clients", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    arguments = parser.parse_args()
    host, _, port = arguments.address.rpartition(":")
    taken = run(
        (host, int(port)), arguments.file.read_bytes(), arguments.clients, arguments.seconds
    )
    print(json.dumps(taken))  # noqa: T201


if __name__ == "__main__":
    main()
