"""`train.serve` answers each example with its own set, refuses in one line, and ends well."""

import base64
import contextlib
import hashlib
import io
import json
import os
import shutil
import signal
import socket
import threading

import numpy as np
import pytest
from PIL import Image

from tests.parts.program.forked import start
from tests.parts.program.package import small_program
from tests.parts.program.package.served import ANSWERS_WITHIN, FORM, Server, form


def encoded(level, size=(20, 20), kind="PNG"):
    """A file of an image of one grey level, of some pixels."""
    file = io.BytesIO()
    Image.new("L", size, level).save(file, kind)
    return file.getvalue()


LEVELS = dict(zip(small_program.CLASSES, (0, 128, 255), strict=True))
IMAGES = {name: encoded(level) for name, level in LEVELS.items()}
DARK, MIDDLE, LIGHT = IMAGES.values()
TEXT = base64.b64encode(LIGHT).decode()
LIMITS = ("--max_request_mb=1", "--max_megapixels=1", "--timeout_s=60")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("program") / "program"
    small_program.write(path)
    return path


@pytest.fixture(scope="module")
def server(program, tmp_path_factory):
    """A server that the tests share."""
    with Server(program, *LIMITS) as server:
        yield server


def classes(answer):
    """The likeliest class of each set of an answer."""
    assert answer.status == 200, answer
    return [one["set"][0]["class"] for one in answer.value["sets"]]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (form(LIGHT), FORM),
        (form(LIGHT, head='name="image"'), FORM),
        (form(LIGHT, head="name=\"image\"; filename*=UTF-8''x.png"), FORM),
        (b"a preamble\r\n" + form(LIGHT) + b"an epilogue", FORM),
        (form(LIGHT), FORM.upper().replace("BOUNDARY=BOUNDARY", "boundary=boundary")),
        (form(encoded(255, kind="JPEG")), FORM),
        (json.dumps({"images": [TEXT]}).encode(), "application/json; charset=utf-8"),
        (json.dumps({"images": [f"data:image/png;base64,{TEXT}"]}).encode(), "application/json"),
        (json.dumps({"images": [f"{TEXT[:30]}\r\n{TEXT[30:]}\n"]}).encode(), "application/json"),
    ],
)
def test_an_image_comes_in_a_form_or_as_base64(server, body, kind):
    assert classes(server.ask("/predict", body, kind)) == ["light"]


def test_a_request_of_many_images_has_its_sets_in_their_order(server):
    names = [*np.random.default_rng(0).choice(small_program.CLASSES, 64)]
    assert classes(server.predict(*(IMAGES[name] for name in names))) == names


def test_many_clients_get_their_own_sets(server):
    names, answers = small_program.CLASSES * 8, {}

    def ask(index):
        answers[index] = classes(server.predict(*[IMAGES[names[index]]] * (1 + index % 3)))

    threads = [threading.Thread(target=ask, args=[index]) for index in range(len(names))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(ANSWERS_WITHIN)
    assert answers == {index: [name] * (1 + index % 3) for index, name in enumerate(names)}


def test_features_are_answered_with_all_that_a_rule_says(tmp_path):
    path = tmp_path / "program"
    small_program.write_features(path)
    with Server(path) as server:
        answer = server.predict_json({"features": [[0.5, 0.4, -3.0], [-9.0, -9.0, -9.0]]})
        known, new = answer.value["sets"]
        assert [one["class"] for one in known["set"]] == ["Rosa alba", "Rosa rugosa"]
        assert [one["name"] for one in known["names"]] == ["Rosa"]
        assert (known["none_of_these"], new["none_of_these"]) == (False, True)
        wrong = ([1, 2], [1, 2, "3"], [1, 2, 1e300], [1, 2, None], 1, [[1, 2, 3]])
        for one in wrong:
            refused = server.predict_json({"features": [one]})
            assert refused.status == 422
            assert refused.value == {"error": "each example must be a list of 3 finite numbers"}
        refused = server.ask("/predict", form(LIGHT), FORM)
        assert refused.value == {"error": "the Content-Type must be application/json"}


REFUSED = {
    "another type": (b"x", "text/plain", 415, "the Content-Type must be"),
    "no boundary": (form(LIGHT), "multipart/form-data", 400, "has no boundary"),
    "rubbish": (b"--boundary\rrubbish", FORM, 400, "is not a form"),
    "a cut form": (form(LIGHT, DARK)[:-30], FORM, 400, "the form is cut"),
    "another field": (form(LIGHT, head='name="x"'), FORM, 400, 'of the field "image"'),
    "a part without a name": (form(LIGHT, head="x"), FORM, 400, "is not a form"),
    "no file": (form(), FORM, 400, "has no images"),
    "65 files": (form(*[LIGHT] * 65), FORM, 413, "at most 64 examples"),
    "a large body": (form(bytes(2**20)), FORM, 413, "more than 1,048,576 bytes"),
    "a text": (form(b"hello"), FORM, 415, "has none of the formats"),
    "TIFF": (form(encoded(0, kind="TIFF")), FORM, 415, "has none of the formats"),
    "a cut image": (form(encoded(9, (300, 300))[:90]), FORM, 422, "cannot decode the image: "),
    "pixels": (form(encoded(0, (1001, 1000))), FORM, 413, "1001 x 1000 pixels, is too large"),
    "pixels together": (form(*[encoded(0, (800, 800))] * 2), FORM, 413, "image 2, 800 x 800"),
    "a narrow image": (form(encoded(0, (90_000, 1))), FORM, 413, "is too large"),
    "a bomb": (form(encoded(0, (20_000, 10_000))), FORM, 413, "more pixels than Pillow decodes"),
    "no JSON": (b"{", "application/json", 400, "the body is not JSON"),
    "deep JSON": (b"[" * 100_000, "application/json", 400, "the body is not JSON"),
    "another object": (b'{"x": []}', "application/json", 400, 'must be {"images": [...]}'),
    "no list": (b'{"images": "x"}', "application/json", 400, 'must be {"images": [...]}'),
    "an empty list": (b'{"images": []}', "application/json", 400, "must be"),
    "65 texts": (b'{"images": [' + b'"",' * 64 + b'""]}', "application/json", 413, "at most 64"),
    "no text": (b'{"images": [null]}', "application/json", 422, "a file in base64"),
    "no base64": (b'{"images": ["*"]}', "application/json", 422, "a file in base64"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_what_is_refused_is_told_in_one_line(server, name):
    body, kind, status, message = REFUSED[name]
    answer = server.ask("/predict", body, kind)
    assert (answer.status, [*answer.value]) == (status, ["error"])
    assert message in answer.value["error"]
    assert not set("\n<") & set(answer.value["error"])


def test_compressed_bodies_other_paths_and_methods_are_refused(server):
    options = {"Content-Encoding": "gzip"}
    assert server.ask("/predict", form(LIGHT), FORM, **options).status == 415
    assert server.ask("/predict").status == 405
    assert server.ask("/other").status == 404
    assert server.ask("/predict", iter([bytes(2**20)] * 2), FORM).status == 413


def test_health_tells_what_is_served(server, program):
    health = server.ask("/health").value
    assert health["sha256"] == hashlib.sha256(program.read_bytes()).hexdigest()
    assert (health["status"], health["classes"]) == ("ready", 3)
    assert health["rule"] == "average_k=1.5"


def test_metrics_count_what_was_answered(server):
    before = server.metrics()
    server.predict(DARK, LIGHT)
    server.predict(b"")
    after = server.metrics()
    more = {name: value - before.get(name, 0) for name, value in after.items()}
    assert more['topk_jax_requests_total{status="200"}'] == 1
    assert more['topk_jax_requests_total{status="415"}'] == 1
    assert more["topk_jax_examples_total"] == more["topk_jax_set_size_count"] == 2
    assert more["topk_jax_request_seconds_count"] == 2


def test_more_than_may_wait_is_refused(program):
    with Server(program, "--max_waiting=64") as server, server.connect() as slow:
        slow.sendall(head_of(form(LIGHT)))
        refused = server.predict(*[LIGHT] * 64)
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")


def test_what_takes_too_long_is_given_up(program):
    with Server(program, "--timeout_s=1") as server:
        with server.connect() as slow:
            slow.sendall(head_of(form(LIGHT)))
            assert slow.recv(2**16).startswith(b"HTTP/1.1 504 ")
        # Nothing is held any longer.
        assert classes(server.predict(LIGHT, DARK)) == ["light", "dark"]


def head_of(body):
    """The head of a request whose body comes later."""
    return (
        f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: {FORM}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n".encode()
    )


def test_sigterm_loses_no_request_that_has_come(program):
    """One whose body still comes, and those of clients that ask all the time."""
    answered, lost = [], []
    body = form(LIGHT)
    with Server(program) as server, server.connect() as slow:
        slow.sendall(head_of(body) + body[:20])

        def ask():
            with contextlib.suppress(ConnectionError):
                while True:
                    answered.append(server.predict(LIGHT))
            # Not one that was told that it would be answered.
            lost.append(server.address)

        clients = [threading.Thread(target=ask) for _ in range(4)]
        for client in clients:
            client.start()
        while len(answered) < 20:
            threading.Event().wait(0.01)
        server.stop()
        for client in clients:
            client.join(ANSWERS_WITHIN)
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(server.address, timeout=1)
        slow.sendall(body[20:])
        assert slow.recv(2**16).startswith(b"HTTP/1.1 200 ")
        ended = server.end()
    assert (ended.returncode, len(lost)) == (0, 4)
    assert "Traceback" not in ended.stderr
    assert {answer.status for answer in answered} == {200}


def test_all_workers_count_and_one_that_dies_is_replaced_by_the_same(program, tmp_path):
    copy = tmp_path / "program"
    for suffix in ("", ".json"):
        shutil.copy(f"{program}{suffix}", f"{copy}{suffix}")
    with Server(copy, "--workers=2") as server:
        digest = server.ask("/health").value["sha256"]
        for suffix in ("", ".json"):
            copy.with_name(f"program{suffix}").write_text("another")
        assert [classes(server.predict(LIGHT)) for _ in range(20)] == [["light"]] * 20
        assert server.metrics()['topk_jax_requests_total{status="200"}'] == 20
        for worker in server.workers():
            os.kill(worker, signal.SIGKILL)
        # The port stays open: this waits for a new worker.
        assert server.ask("/health").value["sha256"] == digest
        assert classes(server.predict(LIGHT)) == ["light"]
        assert server.metrics()['topk_jax_requests_total{status="200"}'] == 21
        ended = server.end()
    assert ended.returncode == 0


def test_mistakes_end_the_command_in_one_line(server, program, tmp_path):
    changed = tmp_path / "changed"
    changed.write_bytes(program.read_bytes()[:-100])
    other = tmp_path / "other"
    shutil.copy(program, other)
    description = json.loads(program.with_name("program.json").read_text())
    changed.with_name("changed.json").write_text(json.dumps(description))
    description["classes"].append("another")
    other.with_name("other.json").write_text(json.dumps(description))
    for arguments, code, message in (
        ([f"--program={program}", f"--port={server.address[1]}"], 1, "Address already in use"),
        ([f"--program={tmp_path}/none"], 2, "--program"),
        ([f"--program={changed}", "--port=0"], 2, "changed.json is not the description"),
        ([f"--program={other}", "--port=0"], 2, "other.json is not a description"),
        ([f"--program={other}", "--port=0", "--workers=2"], 2, "other.json is not a"),
        ([f"--program={program}", "--workers=0"], 2, "--workers must be"),
    ):
        ended = start("train.serve", *arguments)
        assert (ended.returncode, ended.stdout) == (code, ""), ended
        assert ended.stderr.startswith("error: ")
        assert message in ended.stderr
        assert ended.stderr.count("\n") == 1
