"""The paths of the server: /predict, /health and /metrics."""

import asyncio
import time
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from train.foundation import files
from train.serving.limits import RefusalError
from train.serving.service import ENDING, READY, Held, Service

_PREDICT = "/predict"


def make(service: Service) -> ASGIApp:
    """The application of a service."""

    async def predict(request: Request) -> Response:
        service.check_ready()
        with service.holding() as held:
            return _json({"sets": await _answer(service, request, held)})

    async def health(_request: Request) -> Response:
        return _json(service.describe(), 200 if service.state == READY else 503)

    async def metrics(_request: Request) -> Response:
        return Response(service.meter.text(), media_type="text/plain; version=0.0.4")

    async def refuse(_request: Request, error: Exception) -> Response:
        assert isinstance(error, RefusalError)
        return _json({"error": str(error)}, error.status)

    async def refuse_path(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        message = f"{request.method} {request.url.path[:100]} is not answered: {error.detail}"
        return _json({"error": message}, error.status_code, dict(error.headers or {}))

    async def end_by_mistake(_request: Request, _error: Exception) -> Response:
        return _json({"error": "a mistake of the server; its log has more"}, 500)

    routes = [
        Route(_PREDICT, predict, methods=["POST"]),
        Route("/health", health),
        Route("/metrics", metrics),
    ]
    handlers: dict[Any, Any] = {
        RefusalError: refuse,
        HTTPException: refuse_path,
        Exception: end_by_mistake,
    }
    return _Counted(Starlette(routes=routes, exception_handlers=handlers), service)


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
    too_large = RefusalError(413, f"the body has more than {most:,} bytes")
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > most:
        raise too_large
    body = bytearray()
    try:
        async for chunk in request.stream():
            if len(body) + len(chunk) > most:
                raise too_large
            held.add(more_bytes=len(chunk))
            body += chunk
    except ClientDisconnect as error:
        raise RefusalError(400, "the connection ended before the body did") from error
    return bytes(body)


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    retry = {"Retry-After": "1"} if status == 503 else {}
    return Response(files.to_json(value), status, {**(headers or {}), **retry}, "application/json")


class _Counted:
    """The application; requests for sets are counted until their response is sent."""

    def __init__(self, application: ASGIApp, service: Service) -> None:
        self._application = application
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != _PREDICT:
            await self._application(scope, receive, send)
            return
        begun, status = time.monotonic(), 500

        async def send_counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if self._service.state == ENDING:
                    message = {
                        **message,
                        "headers": [*message["headers"], (b"connection", b"close")],
                    }
            await send(message)

        with self._service.progressing():
            try:
                await self._application(scope, receive, send_counted)
            finally:
                self._service.meter.answer(status, time.monotonic() - begun)
