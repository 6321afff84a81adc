"""A worker: an event loop for connections, a thread for the program and some for examples."""

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import uvicorn

from train.classifiers.program import ProgramFile
from train.data import reading
from train.foundation.errors import UserError, first_line
from train.serving import application, connections, multipart
from train.serving.limits import Limits
from train.serving.meter import Meter
from train.serving.service import ENDING, READY, Service

_STOPPING = (signal.SIGINT, signal.SIGTERM)
# Clients take the rest of their responses in this time.
SECONDS_TO_SEND = 5
# Longer than proxies keep an idle connection: they would send a request into one that ends.
_SECONDS_IDLE = 75


@dataclass(frozen=True, kw_only=True)
class Worker:
    """What a worker is started with.

    Attributes:
        program: the program, as it was read at the start of the server.
        limits: the limits of requests.
        socket: listens, for all workers.
        meter: what is counted, for all workers.
        threads: how many read the examples of requests.
    """

    program: ProgramFile
    limits: Limits
    socket: socket.socket
    meter: Meter
    threads: int

    def run(
        self,
        on_ready: Callable[[], None],
        *,
        answers_early: bool = True,
        parent: int | None = None,
    ) -> None:
        """Answers until SIGTERM or SIGINT comes, and then what has come before.

        Args:
            on_ready: is called when the program is compiled.
            answers_early: whether /health is answered before.
            parent: a file that ends with the process that has started this one.

        Raises:
            UserError: the program is something else, or cannot be compiled.
        """
        reading.ignore_warnings()
        multipart.log_nothing()
        classifier = self.program.load()
        service = Service(classifier, self.program.digest, self.limits, self.meter, self.threads)
        self.meter.information = {"sha256": self.program.digest, "rule": str(classifier.own_rule)}
        if not answers_early:
            _compile(self.program, service)
        server = _Server(
            uvicorn.Config(
                application.make(service),
                http=connections.counted_by(self.meter),
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=_SECONDS_IDLE,
                timeout_graceful_shutdown=SECONDS_TO_SEND,
            ),
            service,
            parent,
        )
        factory = server.config.get_loop_factory()
        with asyncio.Runner(loop_factory=factory) as runner:
            thread = threading.Thread(
                target=_answer,
                args=(self.program, service, server, runner.get_loop(), on_ready),
                name="program",
                daemon=True,
            )
            thread.start()
            runner.run(server.serve(sockets=[self.socket]))
        service.close()
        if server.mistake is not None:
            raise server.mistake


class _Server(uvicorn.Server):
    """A server that answers what it has taken on before it ends.

    Attributes:
        mistake: why it cannot serve.
    """

    def __init__(self, config: uvicorn.Config, service: Service, parent: int | None) -> None:
        super().__init__(config)
        self.mistake: Exception | None = None
        self._service = service
        self._parent = parent
        self._ending: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Ends at a signal; without a parent, at once at a second one."""
        loop = asyncio.get_running_loop()
        for number in _STOPPING:
            loop.add_signal_handler(number, self._receive, number)
        if self._parent is not None:
            loop.add_reader(self._parent, self.end)
        try:
            yield
        finally:
            for number in _STOPPING:
                loop.remove_signal_handler(number)

    def end(self) -> None:
        """Refuses new requests from now on, and ends when none is in progress."""
        if self._parent is not None:
            asyncio.get_running_loop().remove_reader(self._parent)
        if self._ending is None:
            self._service.state = ENDING
            self._ending = asyncio.create_task(self._end_when_idle())

    def fail(self, error: Exception) -> None:
        """Ends because of a mistake."""
        self.mistake = error
        self.end()

    def _receive(self, number: int) -> None:
        if self._ending is not None and self._parent is None:
            os._exit(128 + number)
        # Managers of services and terminals send it to a worker, as its parent does.
        self.end()

    async def _end_when_idle(self) -> None:
        # Each request ends in time.
        await self._service.idle.wait()
        self.should_exit = True


def _answer(
    program: ProgramFile,
    service: Service,
    server: _Server,
    loop: asyncio.AbstractEventLoop,
    on_ready: Callable[[], None],
) -> None:
    """What the thread of the program does."""
    try:
        if not service.batcher.seconds:
            _compile(program, service)
    except Exception as error:
        loop.call_soon_threadsafe(server.fail, error)
        return

    def be_ready() -> None:
        if service.state != ENDING:
            service.state = READY
            on_ready()

    loop.call_soon_threadsafe(be_ready)
    service.batcher.run(loop)


def _compile(program: ProgramFile, service: Service) -> None:
    try:
        service.batcher.compile()
    except UserError:
        raise
    except Exception as error:  # A damaged program can make the compiler raise anything.
        raise UserError(
            f"--program {program.path} cannot be compiled: {first_line(error)}"
        ) from error
