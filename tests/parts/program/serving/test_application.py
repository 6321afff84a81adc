"""Requests at the wrong time, slow ones and too many of them are answered in one line."""

import asyncio
import json

import pytest

from tests.parts.program.serving.small_program import of_features
from train.serving import application
from train.serving.limits import Limits, RefusalError
from train.serving.meter import Meter
from train.serving.service import ENDING, READY, STARTING, Service

BODY = b'{"features": [[1, 2], [3, 4]]}'


def service_of(*, waiting=64, seconds=60.0, state=READY):
    """A service whose program never answers: no thread calls it."""
    classifier = of_features(lambda batch: (batch, batch > 0))
    limits = Limits(request_bytes=2**20, pixels=1, waiting=waiting, seconds=seconds)
    service = Service(classifier, "", limits, Meter(1), threads=1)
    service.state = state
    return service


async def ask(service, *, comes=True, path="/predict"):
    """The status, the headers and the error that a request gets; its body may never come."""
    sent = []

    async def receive():
        if not comes:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": BODY, "more_body": False}

    async def send(message):
        sent.append(message)

    headers = {b"content-type": b"application/json", b"content-length": b"%d" % len(BODY)}
    scope = {"type": "http", "method": "POST", "path": path, "headers": [*headers.items()]}
    await application.make(service)(scope, receive, send)
    start, body = sent
    return start["status"], dict(start["headers"]), json.loads(body["body"])["error"]


@pytest.mark.parametrize("state", [STARTING, ENDING])
def test_a_server_that_does_not_answer_yet_or_any_longer_says_when_to_ask_again(state):
    status, headers, error = asyncio.run(ask(service_of(state=state)))
    assert (status, error) == (503, f"the server is {state}")
    assert headers[b"retry-after"] == b"1"
    assert headers.get(b"connection") == (b"close" if state == ENDING else None)


@pytest.mark.parametrize(
    ("comes", "status", "message"),
    [(True, 504, "there is no answer within"), (False, 408, "the request did not come within")],
)
def test_a_request_that_takes_too_long_is_given_up(comes, status, message):
    service = service_of(seconds=0.01)
    found, _, error = asyncio.run(ask(service, comes=comes))
    assert (found, error) == (status, f"{message} 0.01 s")
    check_idle(service)


def test_more_examples_than_may_wait_are_refused():
    service = service_of(waiting=3, seconds=0.01)

    async def ask_twice():
        return await asyncio.gather(ask(service), ask(service))

    (waited, _, _), (refused, headers, error) = asyncio.run(ask_twice())
    assert (waited, refused) == (504, 503)
    assert error == "too many requests wait; ask again in a moment"
    assert headers[b"retry-after"] == b"1"
    check_idle(service)


def test_answers_to_unknown_paths_are_counted():
    service = service_of()
    for number in range(3):
        status, _, _ = asyncio.run(ask(service, path=f"/none/{number}"))
        assert status == 404
    text = service.meter.text().decode()
    assert 'topk_jax_requests_total{path="other",status="404"} 3.0' in text
    assert service.meter.totals() == (0, 0)


def test_more_bytes_than_may_wait_are_refused():
    service = service_of()
    most = service.limits.held_bytes
    with service.holding() as held:
        held.add(more_bytes=most)
        with service.holding() as other, pytest.raises(RefusalError, match="too many requests"):
            other.add(more_bytes=1)
    check_idle(service)


def check_idle(service):
    """Nothing is held any longer."""
    assert service.idle.is_set()
    with service.holding() as held:
        held.add(more_bytes=service.limits.held_bytes, more_examples=service.limits.waiting)
