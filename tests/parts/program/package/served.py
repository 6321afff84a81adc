"""A server in a process of its own, and requests to it."""

import contextlib
import http.client
import json
import os
import signal
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from tests.parts.program.forked import Ended, Started

# Limits for a hang, in seconds; machines may be busy, and uvicorn needs the whole of its minute to
# see that a worker died while it started.
STARTS_WITHIN = 180
ANSWERS_WITHIN = 180
_PAUSE = 0.05


@dataclass(frozen=True)
class Answer:
    """A response."""

    status: int
    value: dict | str
    headers: dict[str, str]


class Server:
    """`train.serve` with a program, on a free port of this machine."""

    def __init__(self, program, *arguments):
        with socket.create_server(("127.0.0.1", 0)) as found:
            self.address = found.getsockname()
        flags = (f"--program={program}", f"--port={self.address[1]}", *arguments)
        self.started = Started("train.serve", *flags)
        self._ended: Ended | None = None

    def __enter__(self):
        end = time.monotonic() + STARTS_WITHIN
        while time.monotonic() < end:
            with contextlib.suppress(ConnectionError):
                assert self.ask("/health").status == 200
                return self
            if self.started.ends_within(_PAUSE):
                raise AssertionError(self.end())
        raise TimeoutError(self.end())

    def __exit__(self, *_):
        self.end()

    def stop(self, number=signal.SIGTERM):
        """Sends a signal."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.started.pid, number)

    def workers(self):
        """The numbers of the processes that answer."""
        pid = self.started.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        is_worker = {
            one: "spawn_main" in Path(f"/proc/{one}/cmdline").read_text() for one in children
        }
        return [int(one) for one in children if is_worker[one]]

    def end(self):
        """Ends the server; what it has left."""
        if self._ended is None:
            if not self.started.ends_within(0):
                self.stop()
            self._ended = self.started.end(ANSWERS_WITHIN)
        return self._ended

    def connect(self):
        """A connection without a request."""
        return socket.create_connection(self.address, timeout=ANSWERS_WITHIN)

    def ask(self, path, body=None, kind="application/json", **headers):
        """Sends a request, a POST if it has a body."""
        connection = http.client.HTTPConnection(*self.address, timeout=ANSWERS_WITHIN)
        if body is not None:
            headers["Content-Type"] = kind
        with contextlib.closing(connection):
            connection.request("GET" if body is None else "POST", path, body, headers)
            response = connection.getresponse()
            content = response.read().decode()
        found = dict(response.getheaders())
        is_json = found.get("content-type") == "application/json"
        return Answer(response.status, json.loads(content) if is_json else content, found)

    def predict(self, *images):
        """Asks for the sets of image files, as a form."""
        return self.ask("/predict", form(*images), FORM)

    def predict_json(self, value):
        """Asks for the sets of a JSON value."""
        return self.ask("/predict", json.dumps(value).encode())

    def metrics(self):
        """The numbers of /metrics by their names with labels."""
        lines = self.ask("/metrics").value.splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}


FORM = "multipart/form-data; boundary=boundary"


def form(*images, head='name="image"; filename="x"'):
    """The body of a form of files."""
    start = f"--boundary\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode()
    return b"".join(start + image + b"\r\n" for image in images) + b"--boundary--\r\n"
