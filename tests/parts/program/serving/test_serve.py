"""`train.serve` gives the sets of `train.predict`, within limits, and ends without losing any."""

import contextlib
import hashlib
import http.client
import json
import shutil
import socket
import threading

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from tests.parts.program.forked import check_mistakes, start
from tests.parts.program.serving.served import ANSWERS_WITHIN, Server, form
from train.foundation import files

IMAGES = 6


@pytest.fixture(scope="module")
def folder(finished_run, tmp_path_factory):
    """Photographs, an exported program, and what `train.predict` says of the photographs."""
    folder = tmp_path_factory.mktemp("served")
    digits = load_digits().images
    (folder / "images").mkdir()
    for index in range(IMAGES):
        pixels = (digits[index] * 255 / 16).astype(np.uint8)
        # The reader makes them smaller.
        Image.fromarray(pixels).resize((40, 50)).save(folder / "images" / f"{index}.png")
    run, rule = f"--workdir={finished_run}", "--coverage=0.9"
    exported = start("train.export", run, rule, f"--out={folder}/program")
    assert exported.returncode == 0, exported.stderr
    predicted = start("train.predict", run, rule, f"--images={folder}/images")
    assert predicted.returncode == 0, predicted.stderr
    (folder / "sets.jsonl").write_text(predicted.stdout)
    return folder


@pytest.fixture(scope="module")
def server(folder):
    """A server that the tests share; the file of its program is replaced while it runs."""
    served = folder / "served"
    for suffix in ("", ".json"):
        shutil.copy(folder / f"program{suffix}", f"{served}{suffix}")
    limits = ("--max_request_mb=1", "--max_megapixels=1", "--timeout_s=60")
    with Server(served, *limits) as server:
        for suffix in ("", ".json"):
            served.with_name(f"served{suffix}").write_text("another")
        yield server


@pytest.fixture(scope="module")
def images(folder):
    return [(folder / "images" / f"{index}.png").read_bytes() for index in range(IMAGES)]


def lines(folder):
    """The sets of `train.predict`, without the paths."""
    found = [json.loads(line) for line in (folder / "sets.jsonl").read_text().splitlines()]
    return [{name: value for name, value in one.items() if name != "path"} for one in found]


def check_same(found, expected):
    """The same sets; the size of a batch may change the last bits of a probability."""
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.keys() == theirs.keys()
        (members, others) = ours.pop("set"), theirs.pop("set")
        assert ours == theirs
        assert [one["class"] for one in members] == [one["class"] for one in others]
        np.testing.assert_allclose(
            [one["probability"] for one in members],
            [one["probability"] for one in others],
            rtol=1e-5,
        )


def test_many_clients_get_their_own_sets(server, images, folder):
    answers = {}

    def ask(index):
        answers[index] = server.predict(images[index % IMAGES])

    threads = [threading.Thread(target=ask, args=[index]) for index in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(ANSWERS_WITHIN)
    expected = lines(folder)
    for index, answer in answers.items():
        check_same(answer.value["sets"], [dict(expected[index % IMAGES])])
    assert len(answers) == 24


def test_health_tells_what_is_served_also_when_the_file_is_another(server, folder):
    health = server.ask("/health")
    assert health.status == 200
    program = (folder / "program").read_bytes()
    assert health.value["status"] == "ready"
    assert health.value["sha256"] == hashlib.sha256(program).hexdigest()
    assert health.value["rule"] == "coverage=0.9"
    assert health.value["classes"] == 10


def test_mistakes_are_answered_in_one_line(server, images):
    image, kind = form(images[0])
    big = b"x" * (2**20 + 1)
    answers = {
        "GET": server.ask("/predict"),
        "path": server.ask("/other"),
        "type": server.ask("/predict", image, {"Content-Type": "image/png"}),
        "gzip": server.ask("/predict", image, {"Content-Type": kind, "Content-Encoding": "gzip"}),
        "form": server.ask("/predict", image[:40], {"Content-Type": kind}),
        "json": server.predict_json(b"{"),
        "large": server.predict(big),
        "chunks": server.ask("/predict", iter([big, b""]), {"Content-Type": kind}),
        "image": server.predict(b"no image"),
        "cut": server.predict(images[0][:-30]),
        "features": server.predict_json({"features": [[1]]}),
    }
    statuses = {"GET": 405, "path": 404, "type": 415, "gzip": 415, "large": 413, "chunks": 413}
    statuses |= {"image": 415, "cut": 422}
    for name, answer in answers.items():
        assert answer.status == statuses.get(name, 400), (name, answer)
        assert answer.value.keys() == {"error"}, name
        assert "\n" not in answer.value["error"], name
    # The server goes on.
    assert server.predict(images[0]).status == 200


def test_a_head_that_is_no_request_is_refused(server):
    for head in (
        b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000,
        b"GET /health HTTP/1.1\r\nX: " + b"x" * 2**14 + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n" * 102,
        b"\x16\x03\x01\x02",
        b"nothing\r\n\r\n",
    ):
        with server.connect() as connection:
            connection.sendall(head)
            assert connection.recv(2**16).startswith(b"HTTP/1.1 400 ")


def test_requests_are_answered_in_their_order(server):
    """Also if they come at once, before the first answer."""
    first, second = (f"GET {path} HTTP/1.1\r\n\r\n".encode() for path in ("/health", "/other"))
    with server.connect() as connection:
        connection.sendall(first * 2 + second)
        received = b""
        while b"/other" not in received:
            received += (piece := connection.recv(2**16))
            assert piece, received
    assert [part[:4] for part in received.split(b"HTTP/1.1 ")] == [b"", b"200 ", b"200 ", b"404 "]


def test_what_a_body_has_beside_its_bytes_is_limited(server):
    """Lines after the last chunk, and what belongs to a chunk."""
    head = b"POST /predict HTTP/1.1\r\nContent-Type: application/json\r\n"
    head += b"Transfer-Encoding: chunked\r\n\r\n"
    for more in (b"1;" + b"x" * 2**21, b"0\r\nX: " + b"x" * 2**21, b"0\r\n" + b"X: x\r\n" * 10_000):
        with server.connect() as connection:
            # The server closes the connection before it has everything. Its answer may be lost.
            received = b"Invalid HTTP request"
            with contextlib.suppress(ConnectionError):
                connection.sendall(head + more)
                received = connection.recv(2**16)
            assert b"Invalid HTTP request" in received
    assert server.ask("/health").status == 200


def test_metrics_count_what_was_answered(server, images):
    before = server.metrics()
    server.predict(images[0], images[1])
    server.predict(b"")
    server.ask("/elsewhere")
    server.ask("/health/")
    with server.connect() as connection:
        connection.sendall(b"no request\r\n\r\n")
        assert connection.recv(2**16).startswith(b"HTTP/1.1 400 ")
    after = server.metrics()
    differences = {name: value - before[name] for name, value in after.items()}
    assert differences['topk_jax_requests_total{path="/predict",status="200"}'] == 1
    assert differences['topk_jax_requests_total{path="/predict",status="415"}'] == 1
    for status in (307, 400, 404):
        assert differences[f'topk_jax_requests_total{{path="other",status="{status}"}}'] == 1
    # The earlier one.
    assert differences['topk_jax_requests_total{path="/metrics",status="200"}'] == 1
    assert differences["topk_jax_examples_total"] == 2
    assert differences["topk_jax_set_size_count"] == 2
    assert after["topk_jax_requests_in_progress"] == 0
    assert after["topk_jax_examples_waiting"] == 0


def test_mistakes_end_the_command_in_one_line(folder, server):
    cut = folder / "cut"
    cut.write_bytes((folder / "program").read_bytes()[:-5000])
    other = folder / "other"
    shutil.copy(folder / "program", other)
    for path in (cut, other):
        shutil.copy(folder / "program.json", f"{path}.json")
    description = files.read_checked(folder / "program.json", "a file")
    description["classes"].append("eleven")
    del description["training_images"]
    (folder / "other.json").write_text(json.dumps(description))
    address = f"127.0.0.1:{server.address[1]}"
    check_mistakes(
        "train.serve",
        [
            ([f"--program={folder}/program", f"--port={server.address[1]}"], address),
        ],
    )
    wrong = {cut: "is not the file that", other: "is not the program of its description"}
    for path, message in wrong.items():
        ended = start("train.serve", f"--program={path}", "--port=0")
        assert (ended.returncode, ended.stderr.count("\n")) == (2, 1), ended
        assert message in ended.stderr


def test_sigterm_loses_no_request_that_has_come(folder, images):
    """Under load: each request is answered, or refused in full, or its connection is."""
    answered, refused = [], []
    body, kind = form(images[0])

    with Server(folder / "program", "--max_waiting=1000") as server:
        # The parser of forms would log a line of its own.
        assert server.ask("/predict", b"--no form", {"Content-Type": kind}).status == 400

        def ask():
            while True:
                try:
                    connection = http.client.HTTPConnection(*server.address, timeout=60)
                    connection.connect()
                except OSError:
                    return
                try:
                    connection.request("POST", "/predict", body, {"Content-Type": kind})
                    response = connection.getresponse()
                    (answered if response.status == 200 else refused).append(response.read())
                except (OSError, http.client.HTTPException):
                    # The connection was in the system's queue when the port was closed.
                    return
                finally:
                    connection.close()

        clients = [threading.Thread(target=ask) for _ in range(8)]
        for client in clients:
            client.start()
        while len(answered) < 50:
            threading.Event().wait(0.01)
        ended = server.end()
        for client in clients:
            client.join(ANSWERS_WITHIN)
    assert ended.returncode == 0
    assert ended.stderr == ""
    number = 1 + len(answered) + len(refused)
    assert f"ended     {number:,} of {number:,} requests answered" in ended.stdout
    for one in answered:
        assert len(json.loads(one)["sets"]) == 1
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(server.address, timeout=1)
