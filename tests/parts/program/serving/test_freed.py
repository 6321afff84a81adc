"""What a request needed is free after it, without a search for cycles, and goes to the system."""

import asyncio
import contextlib
import gc

import pytest
from starlette.requests import Request

from tests.parts.program.serving.served import form
from tests.parts.program.serving.test_request_reader import IMAGES, LIMITS, encoded
from train.prediction.exported_classifier import ExportedClassifier, ExportedRule
from train.serving import application
from train.serving import service as service_module
from train.serving.limits import RefusalError
from train.serving.meter import Meter
from train.serving.service import Service


class Piece(bytes):
    """A piece of a body that tells when it is freed."""

    freed = 0

    def __del__(self):
        Piece.freed += 1


@pytest.fixture
def service(tmp_path):
    classifier = ExportedClassifier(
        tmp_path, IMAGES.expected, ExportedRule("top_k=1"), lambda batch: (batch,)
    )
    service = Service(classifier, "", LIMITS, Meter(1), 2)
    yield service
    service.close()


def test_a_body_that_is_too_large_is_not_kept(service):
    async def receive():
        return {"type": "http.request", "body": Piece(2**20 + 1), "more_body": True}

    async def refuse():
        scope = {"type": "http", "headers": []}
        with contextlib.suppress(RefusalError), service.holding() as held:
            await application._read_body(Request(scope, receive), 2**20, held)

    gc.disable()
    try:
        asyncio.run(refuse())
        assert Piece.freed == 1
    finally:
        gc.enable()


def test_memory_goes_to_the_system_once_after_large_requests(service, monkeypatch):
    given_back = []
    image = encoded((90, 90))

    async def read():
        over = asyncio.Event()
        loop = asyncio.get_running_loop()

        def give_back():
            given_back.append(1)
            loop.call_soon_threadsafe(over.set)

        monkeypatch.setattr(service_module.freed_memory, "give_back", give_back)
        body, kind = form(image)
        # Small ones are not worth it.
        await service.read(kind, body, loop.time() + 60)
        assert not service._gives_back
        monkeypatch.setattr(service_module, "_MUCH", 8000)
        await asyncio.gather(*[service.read(kind, body, loop.time() + 60) for _ in range(3)])
        await asyncio.wait_for(over.wait(), 60)

    asyncio.run(read())
    assert given_back == [1]
