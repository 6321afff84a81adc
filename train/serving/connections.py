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


class BoundedProtocol(H11Protocol):
    """A connection with limits for the time before and after a request.

    The application has its own limit for the time between.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
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
