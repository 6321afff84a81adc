"""A server in a process of its own, and requests to it."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from tests.parts.program.forked import Ended, Started

# Limits for a hang, in seconds; machines may be busy.
STARTS_WITHIN = 120
ANSWERS_WITHIN = 60
_PAUSE = 0.05


@dataclass(frozen=True)
class Answer:
    """A response."""

    status: int
    value: dict | str
    headers: dict[str, str]


class Server:
    """`train.serve` with a program, on a free port of this machine."""

    def __init__(self, program, *arguments, environment=None):
        self.started = Started(
            "train.serve",
            f"--program={program}",
            "--port=0",
            *arguments,
            environment=environment or {},
        )
        self.address = ("127.0.0.1", 0)
        self._ended: Ended | None = None

    def __enter__(self):
        self.wait_for(r"ready +http://127\.0\.0\.1:(\d+)")
        return self

    def __exit__(self, *_):
        self.end()

    def wait_for(self, pattern):
        """Waits until a line is printed that has the port."""
        end = time.monotonic() + STARTS_WITHIN
        while time.monotonic() < end:
            if found := re.search(pattern, self.started.printed()):
                self.address = ("127.0.0.1", int(found[1]))
                return
            if self.started.ends_within(_PAUSE):
                raise AssertionError(self.end())
        raise TimeoutError(self.started.printed())

    def stop(self, number=signal.SIGTERM):
        """Sends a signal."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.started.pid, number)

    @property
    def workers(self):
        """The numbers of the processes that answer."""
        pid = self.started.pid
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()

    def memory(self):
        """The bytes that the process has in memory."""
        status = Path(f"/proc/{self.started.pid}/status").read_text()
        return 1024 * int(re.search(r"VmRSS:\s+(\d+)", status)[1])

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

    def ask(self, path, body=None, headers=None):
        """Sends a request, a POST if it has a body."""
        connection = http.client.HTTPConnection(*self.address, timeout=ANSWERS_WITHIN)
        try:
            connection.request("GET" if body is None else "POST", path, body, headers or {})
            response = connection.getresponse()
            content = response.read().decode()
        finally:
            connection.close()
        found = dict(response.getheaders())
        is_json = found.get("content-type") == "application/json"
        return Answer(response.status, json.loads(content) if is_json else content, found)

    def predict(self, *images):
        """Asks for the sets of image files, as a form."""
        body, kind = form(*images)
        return self.ask("/predict", body, {"Content-Type": kind})

    def predict_json(self, value):
        """Asks for the sets of a JSON value."""
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        return self.ask("/predict", body, {"Content-Type": "application/json"})

    def metrics(self):
        """The numbers of /metrics by their names with labels."""
        lines = self.ask("/metrics").value.splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}


def form(*images, field="image"):
    """The body of a form with files, and its type."""
    parts = [
        f'--boundary\r\nContent-Disposition: form-data; name="{field}"; filename="{index}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n".encode()
        + image
        + b"\r\n"
        for index, image in enumerate(images)
    ]
    return b"".join(parts) + b"--boundary--\r\n", "multipart/form-data; boundary=boundary"
