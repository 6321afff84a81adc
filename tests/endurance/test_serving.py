"""A server survives hostile requests, gives their memory back, and writes nothing."""

import contextlib
import io
import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from PIL import Image

from tests.endurance import hostile
from tests.parts.program.forked import ROOT, TIME_LIMIT
from tests.parts.program.package import small_program
from tests.parts.program.package.served import ANSWERS_WITHIN, Server

REQUESTS = 2000
# As many requests of which each kept a tenth of its megabyte would be more.
MOST_GROWN = 150 * 2**20


@pytest.fixture
def program(tmp_path):
    small_program.write(tmp_path / "program")
    return tmp_path / "program"


@pytest.fixture(scope="module")
def image():
    file = io.BytesIO()
    Image.new("L", (20, 20), 255).save(file, "PNG")
    return file.getvalue()


@contextlib.contextmanager
def started(program, limits, **environment):
    """A server under limits of the shell, and its process, which ends well."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        address = found.getsockname()
    serve = [sys.executable, "-m", "train.serve", f"--program={program}", f"--port={address[1]}"]
    command = ["sh", "-c", f'{limits} exec "$@"', "sh", *serve]
    # The tests keep compiled programs; the server does not.
    kept = {name: value for name, value in os.environ.items() if "CACHE" not in name}
    environment = kept | {"PYTHONDONTWRITEBYTECODE": "1"} | environment
    server = Server.__new__(Server)
    server.address = address
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=pipe, text=True) as process:
        try:
            next(line for line in process.stderr if "Uvicorn running on" in line)
            yield server, process
            process.terminate()
            _, errors = process.communicate(timeout=TIME_LIMIT)
        finally:
            process.kill()
    assert process.returncode == 0
    assert "Traceback" not in errors


def memory(process):
    """The bytes that a process has in memory."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return 1024 * int(re.search(r"VmRSS:\s+(\d+)", status)[1])


def test_hostile_requests_neither_stop_nor_grow_the_server(program, image):
    answers, is_over = [], threading.Event()
    # As docs/deployment.md has it.
    with started(program, "", MALLOC_MMAP_THRESHOLD_="1000000") as (server, process):

        def ask():
            while not is_over.wait(0.05):
                answers.append(server.predict(image))

        client = threading.Thread(target=ask)
        client.start()
        # Each kind of request has needed its memory then.
        hostile.attack(server.address, REQUESTS // 4)
        before = memory(process)
        hostile.attack(server.address, REQUESTS, seed=1)
        # Images that nobody waits for any longer are decoded to their end.
        for _ in range(ANSWERS_WITHIN):
            if (grown := memory(process) - before) < MOST_GROWN:
                break
            threading.Event().wait(1)
        is_over.set()
        client.join()
    assert {answer.status for answer in answers} == {200}
    assert {answer.value["sets"][0]["set"][0]["class"] for answer in answers} == {"light"}
    assert grown < MOST_GROWN


def test_nothing_is_written(program, image):
    """By one worker, whose process may not write a byte to any file."""
    # More than what other readers of forms keep in memory.
    large = Image.frombytes("L", (2000, 2000), os.urandom(4_000_000))
    file = io.BytesIO()
    large.save(file, "PNG")
    with started(program, "ulimit -f 0;") as (server, _):
        assert server.predict(image, file.getvalue()).status == 200
