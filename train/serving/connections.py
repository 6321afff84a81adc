"""Connections that must bring a request in time; uvicorn has no limit for that.

A connection that waits for a request without sending one costs a file of the process. If there are
too many, the one that has waited longest is closed.
"""

import asyncio
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from train.serving.limits import MOST_CONNECTIONS
from train.serving.meter import OTHER, Meter

# For the head of a request, and for the rest of a body after its response.
_SECONDS = 10.0
# In bytes: the head of a request, and what else a request has beside its body, such as the sizes of
# chunks.
_MOST_HEAD = 2**14
_MOST_BESIDE = 2**20
# The bytes of a small piece of a body, and how many of these a request may have. Each costs the
# event loop as much as a large one, and other clients wait for it.
_SMALL = 512
_MOST_SMALL = 1000
# Requests of a connection that wait for the response to an earlier one.
_MOST_PIPELINED = 100
_REFUSED = "Invalid HTTP request received."


class BoundedProtocol(HttpToolsProtocol):
    """A connection with limits for the time and the bytes before and after a request.

    The application has its own limits for the time between, and for the body.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._patience: asyncio.TimerHandle | None = None
        self._since = 0.0
        # The bytes of what was read last, without bodies.
        self._piece = 0
        # The request that is being read.
        self._in_head = False
        self._head = self._beside = self._small = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Makes room for the connection, and waits for its request."""
        super().connection_made(transport)
        self._since = self.loop.time()
        if len(self.connections) > MOST_CONNECTIONS:
            # Those that are closed are there until the loop turns.
            kept = [
                one
                for one in self.connections
                if isinstance(one, BoundedProtocol) and not one.transport.is_closing()
            ]
            if len(kept) > MOST_CONNECTIONS:
                # This one is among them.
                waiting = (one for one in kept if not one.has_request)
                min(waiting, key=lambda one: one._since).transport.abort()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the connection."""
        self._be_patient()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Takes a piece of a request."""
        self._piece = len(data)
        super().data_received(data)
        self._beside += self._piece
        # The parser keeps what it has of a line.
        is_large = self._beside > (_MOST_HEAD if self._in_head else _MOST_BESIDE)
        if is_large and not self.transport.is_closing():
            self.send_400_response(_REFUSED)
        self._watch()

    def on_message_begin(self) -> None:
        """A request starts."""
        super().on_message_begin()
        self._in_head = True
        self._head = self._beside = self._small = 0

    def on_url(self, url: bytes) -> None:
        """A piece of the address of a request."""
        self._add_to_head(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a line after the last chunk of a body."""
        self._add_to_head(name, value)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head of a request is complete."""
        self._in_head = False
        if len(self.pipeline) == _MOST_PIPELINED:
            raise httptools.HttpParserError(f"more than {_MOST_PIPELINED} requests wait")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of a body."""
        self._piece -= len(body)
        if len(body) < _SMALL:
            self._small += 1
            if self._small > _MOST_SMALL:
                raise httptools.HttpParserError(f"more than {_MOST_SMALL} small chunks")
        super().on_body(body)

    def on_response_complete(self) -> None:
        """Waits for the rest of a body that was not read; the next request may take its time."""
        super().on_response_complete()
        self._since = self.loop.time()
        if self.cycle.more_body:
            self._watch()

    @property
    def has_request(self) -> bool:
        """Whether a complete request has come, and is not answered yet."""
        return self._is_answering and not self.cycle.more_body

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _add_to_head(self, *pieces: bytes) -> None:
        self._head += sum(map(len, pieces))
        if self._head > _MOST_HEAD:
            raise httptools.HttpParserError(f"a head of more than {_MOST_HEAD} bytes")

    def _watch(self) -> None:
        if self._is_answering or self.transport.is_closing():
            self._be_patient()
        elif self._patience is None:
            self._patience = self.loop.call_later(_SECONDS, self.transport.abort)

    def _be_patient(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


def counted_by(meter: Meter) -> type[BoundedProtocol]:
    """Connections whose refusals are counted: the application never gets these requests."""

    class CountedProtocol(BoundedProtocol):
        def send_400_response(self, msg: str) -> None:
            meter.answer(OTHER, 400)
            super().send_400_response(msg)

    return CountedProtocol
