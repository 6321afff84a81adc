"""The paths of the server: /predict, /health and /metrics."""

import asyncio
import time
from typing import Any

from absl import logging
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from train.foundation import files
from train.serving.limits import RefusalError
from train.serving.meter import PREDICT
from train.serving.service import ENDING, READY, Held, Service

_MORE_HEADERS = {405: {"Allow": "POST"}, 503: {"Retry-After": "1"}}
_MISTAKE = "an error of the server; see its log"


def make(service: Service) -> ASGIApp:
    """The application of a service."""

    async def health(_request: Request) -> Response:
        return _json(service.describe(), 200 if service.state == READY else 503)

    async def metrics(_request: Request) -> Response:
        return Response(service.meter.text(), media_type="text/plain; version=0.0.4")

    async def refuse_path(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        message = f"{request.method} {request.url.path[:100]} is not answered: {error.detail}"
        return _json({"error": message}, error.status_code, dict(error.headers or {}))

    async def end_by_mistake(_request: Request, _error: Exception) -> Response:
        return _json({"error": _MISTAKE}, 500)

    routes = [Route("/health", health), Route("/metrics", metrics)]
    handlers: dict[Any, Any] = {HTTPException: refuse_path, Exception: end_by_mistake}
    return _Application(Starlette(routes=routes, exception_handlers=handlers), service)


async def _answer(service: Service, request: Request, held: Held) -> list[dict[str, Any]]:
    content_type = request.headers.get("content-type", "")
    service.reader.check_type(content_type, request.headers.get("content-encoding", ""))
    is_read = False
    try:
        async with asyncio.timeout(service.limits.seconds):
            body = await _read_body(request, service.limits.request_bytes, held)
            is_read = True
            held.add(more_examples=1)
            examples = await service.read(content_type, body, held.until)
            held.add(more_examples=len(examples) - 1)
            return await service.answer(examples)
    except TimeoutError as error:
        seconds = f"{service.limits.seconds:g} s"
        if not is_read:
            raise RefusalError(408, f"the request did not come within {seconds}") from error
        raise RefusalError(504, f"there is no answer within {seconds}") from error


async def _read_body(request: Request, most: int, held: Held) -> bytes:
    """The body, of at most some bytes.

    Raises:
        RefusalError: it is larger, or does not come.
    """
    length = request.headers.get("content-length", "0")
    # Python refuses to read numbers of thousands of digits.
    if not length.isdecimal() or len(length) > 20 or int(length) > most:
        raise _too_large(most)
    body = bytearray()
    try:
        async for chunk in request.stream():
            if len(body) + len(chunk) > most:
                raise _too_large(most)
            held.add(more_bytes=len(chunk))
            body += chunk
    except ClientDisconnect as error:
        raise RefusalError(400, "the connection ended before the body did") from error
    return bytes(body)


def _too_large(most: int) -> RefusalError:
    # Made at the place that raises it: a frame that keeps its own error keeps the body, too.
    return RefusalError(413, f"the body has more than {most:,} bytes")


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    more = _MORE_HEADERS.get(status, {})
    return Response(files.to_json(value), status, {**(headers or {}), **more}, "application/json")


class _Application:
    """Answers requests for sets; Starlette answers all others. All answers are counted.

    Starlette's own way to the answer takes as long as a small network.
    """

    def __init__(self, others: ASGIApp, service: Service) -> None:
        self._others = others
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, meter = scope["path"], self._service.meter
        begun, status = time.monotonic(), 500

        async def send_counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if path == PREDICT and self._service.state == ENDING:
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        if path != PREDICT:
            try:
                await self._others(scope, receive, send_counted)
            finally:
                meter.answer(path, status)
            return
        with self._service.progressing():
            try:
                response = await self._respond(Request(scope, receive))
                await response(scope, receive, send_counted)
            finally:
                meter.answer_predict(status, time.monotonic() - begun)

    async def _respond(self, request: Request) -> Response:
        try:
            if request.method != "POST":
                raise RefusalError(405, f"{request.method} {PREDICT} is not answered: use POST")
            self._service.check_ready()
            with self._service.holding() as held:
                return _json({"sets": await _answer(self._service, request, held)})
        except RefusalError as error:
            return _json({"error": str(error)}, error.status)
        except Exception:
            logging.exception("a request was not answered")
            return _json({"error": _MISTAKE}, 500)
