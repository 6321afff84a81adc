"""A server survives hostile requests, clients that wait and dead workers, and writes nothing."""

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from PIL import Image

from benchmarks import hostile
from tests.parts.program.forked import ROOT, TIME_LIMIT
from tests.parts.program.serving import small_program
from tests.parts.program.serving.served import STARTS_WITHIN, Server, form
from train.serving.limits import MOST_CONNECTIONS

REQUESTS = 2000


@pytest.fixture
def program(tmp_path):
    small_program.write(tmp_path / "program")
    return tmp_path / "program"


@pytest.fixture(scope="module")
def image():
    file = io.BytesIO()
    Image.new("L", (20, 20), 255).save(file, "PNG")
    return file.getvalue()


def test_hostile_requests_neither_stop_nor_grow_the_server(program, image):
    answers, is_over = [], threading.Event()
    with Server(program) as server:

        def ask():
            while not is_over.wait(0.05):
                answers.append(server.predict(image))

        client = threading.Thread(target=ask)
        client.start()
        # Each kind of request has needed its memory then.
        hostile.attack(server.address, REQUESTS // 4)
        before = server.memory()
        hostile.attack(server.address, REQUESTS, seed=1)
        grown = server.memory() - before
        is_over.set()
        client.join()
        ended = server.end()
    assert (ended.returncode, ended.stderr) == (0, "")
    assert {answer.status for answer in answers} == {200}
    assert {answer.value["sets"][0]["set"][0]["class"] for answer in answers} == {"light"}
    # 2,000 requests of which each kept a tenth of its megabyte would be more. The allocator keeps
    # pieces of images that were decoded at the same time.
    assert grown < 150 * 2**20


def test_who_sends_too_slowly_is_not_waited_for(program, image):
    """Connections with nothing, with a part of a head, and with a part of a body."""
    body, kind = form(image)
    head = f"POST /predict HTTP/1.1\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    with Server(program, "--timeout_s=2") as server, contextlib.ExitStack() as stack:
        silent, of_head, of_body = (stack.enter_context(server.connect()) for _ in range(3))
        of_head.sendall(head.encode()[:20])
        of_body.sendall(head.encode() + body[:20])
        assert server.predict(image).status == 200
        assert of_body.recv(2**16).startswith(b"HTTP/1.1 408 ")
        for connection in (silent, of_head, of_body):
            assert _rest(connection) == b""
        ended = server.end()
    assert (ended.returncode, ended.stderr) == (0, "")


def test_of_too_many_connections_those_end_that_have_waited_longest(program, image):
    more = 8
    with Server(program) as server, contextlib.ExitStack() as stack:
        idle = [stack.enter_context(server.connect()) for _ in range(MOST_CONNECTIONS + more)]
        # It is one connection more, which is over before the next one.
        assert server.predict(image).status == 200
        for connection in idle[: more + 1]:
            assert _rest(connection) == b""
        idle[-1].sendall(b"GET /health HTTP/1.1\r\n\r\n")
        assert idle[-1].recv(2**16).startswith(b"HTTP/1.1 200 ")


def _rest(connection):
    """What a connection brings until the server ends it, which may be with an error."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(2**16):
            received += piece
    return received


def test_a_worker_that_dies_is_started_again_with_the_same_program(program, image):
    with Server(program, "--workers=2") as server:
        digest = server.ask("/health").value["sha256"]
        for path in (program, program.with_name("program.json")):
            path.write_text("another")
        first, second = server.workers
        os.kill(int(first), signal.SIGKILL)
        end = threading.Event()
        for _ in range(STARTS_WITHIN * 10):
            workers = server.workers
            if len(workers) == 2 and first not in workers:
                break
            end.wait(0.1)
        assert second in workers
        os.kill(int(second), signal.SIGKILL)
        # Only the new one is left.
        health = server.ask("/health")
        assert (health.status, health.value["sha256"]) == (200, digest)
        assert server.predict(image).status == 200
        assert server.metrics()['topk_jax_requests_total{path="/predict",status="200"}'] == 1
        ended = server.end()
    assert ended.returncode == 0
    assert ended.stderr.count("it is started again") == 2
    assert "ended     1 of 1 requests answered" in ended.stdout


def test_workers_end_with_their_parent(program):
    with Server(program, "--workers=2") as server:
        workers = server.workers
        server.stop(signal.SIGKILL)
        server.end()
        for worker in workers:
            for _ in range(STARTS_WITHIN * 10):
                if not _runs(worker):
                    break
                threading.Event().wait(0.1)
            assert not _runs(worker)


def _runs(pid):
    """Whether a process is there, and not only its number."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_nothing_is_written(program, image):
    """In a process that may not write a byte to any file."""
    serve = [sys.executable, "-m", "train.serve", f"--program={program}", "--port=0"]
    command = ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", *serve]
    # The tests keep compiled programs; the server does not.
    environment = {k: v for k, v in os.environ.items() if "CACHE" not in k}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    server = Server.__new__(Server)
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            for line in process.stdout:
                if found := re.match(r"ready +http://127\.0\.0\.1:(\d+)", line):
                    server.address = ("127.0.0.1", int(found[1]))
                    break
            # More than what other readers of forms keep in memory.
            large = Image.frombytes("L", (2000, 2000), os.urandom(4_000_000))
            file = io.BytesIO()
            large.save(file, "PNG")
            assert server.predict(image, file.getvalue()).status == 200
            process.terminate()
            output, errors = process.communicate(timeout=TIME_LIMIT)
        finally:
            process.kill()
    assert (process.returncode, errors) == (0, "")
    assert "1 of 1 requests answered" in output
