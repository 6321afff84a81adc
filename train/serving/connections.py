"""Connections that must bring a request in time; uvicorn has no limit for that.

A connection that waits for a request without sending one costs a file of the process. If there are
too many, the one that has waited longest is closed.
"""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from train.serving.limits import MOST_CONNECTIONS

# For the head of a request, and for the rest of a body after its response.
_SECONDS = 10.0
# The bytes of a small piece of a body, and how many of these a request may have. Each costs the
# event loop as much as a large one, and other clients wait for it.
_SMALL = 512
_MOST_SMALL = 1000


class BoundedConnection(h11.Connection):
    """HTTP on a connection, which refuses bodies in very many small chunks."""

    # Of the request that is read.
    _small = 0

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """The next part of a request; an error at a small piece too many."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._small = 0
        elif isinstance(event, h11.Data) and len(event.data) < _SMALL:
            self._small += 1
            if self._small > _MOST_SMALL:
                raise h11.RemoteProtocolError(f"more than {_MOST_SMALL} small chunks")
        return event


class BoundedProtocol(H11Protocol):
    """A connection with limits for the time before and after a request.

    The application has its own limit for the time between.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conn = BoundedConnection(h11.SERVER)
        self._patience: asyncio.TimerHandle | None = None
        self._since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Makes room for the connection, and waits for its request."""
        super().connection_made(transport)
        self._since = self.loop.time()
        if len(self.connections) > MOST_CONNECTIONS:
            waiting = [
                one
                for one in self.connections
                if isinstance(one, BoundedProtocol) and not one.has_request
            ]
            # This one is among them.
            min(waiting, key=lambda one: one._since).transport.abort()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the connection."""
        self._be_patient()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Takes a piece of a request."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Waits for the rest of a body that was not read; the next request may take its time."""
        super().on_response_complete()
        self._since = self.loop.time()
        if self.conn.their_state is h11.SEND_BODY:
            self._watch()

    @property
    def has_request(self) -> bool:
        """Whether a whole request has come, and is not answered yet."""
        return self._is_answering and not self.cycle.more_body

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _watch(self) -> None:
        if self._is_answering or self.transport.is_closing():
            self._be_patient()
        elif self._patience is None:
            self._patience = self.loop.call_later(_SECONDS, self.transport.abort)

    def _be_patient(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
