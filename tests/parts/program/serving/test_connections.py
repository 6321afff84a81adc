"""Connections beyond the limit are closed, however many come at once."""

import asyncio
import contextlib

import uvicorn
from uvicorn.server import ServerState

from train.serving.connections import BoundedProtocol
from train.serving.limits import MOST_CONNECTIONS


class Transport(asyncio.Transport):
    """What a connection needs of one; it is lost at the next turn of a loop, which never comes."""

    def __init__(self):
        super().__init__()
        self.is_aborted = False

    def abort(self):
        self.is_aborted = True

    def is_closing(self):
        return self.is_aborted


async def answer(scope, receive, send):
    """An application that is never asked."""


def test_each_connection_of_a_burst_closes_another_one():
    config = uvicorn.Config(answer, lifespan="off", log_config=None)
    config.load()
    state, transports = ServerState(), [Transport() for _ in range(MOST_CONNECTIONS + 8)]
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        for transport in transports:
            BoundedProtocol(config, state, {}, loop).connection_made(transport)
    assert sum(not transport.is_aborted for transport in transports) == MOST_CONNECTIONS
