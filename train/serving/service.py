"""The state of a worker: the program, what it has taken on, and whether it takes more."""

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from topk_jax.rules import Answer
from train.classifiers.program import CHOSEN, NODES, NONE_OF_THESE, PROBABILITIES, Program
from train.prediction.entries import Entry, to_line
from train.serving.batcher import Batcher, Row
from train.serving.limits import Limits, RefusalError
from train.serving.meter import Meter
from train.serving.request_reader import Parsed, RequestReader

# Pixels of a request: decoding them takes a part of a second. Phones make pictures of 12 millions.
_LARGE = 16_000_000
# Decoding so few takes a part of a millisecond in every format.
_TINY, _TINY_BODY = 2**12, 2**12
STARTING, READY, ENDING = "starting", "ready", "ending"


class Service:
    """Answers requests with the program.

    Attributes:
        state: starting, ready or ending.
        idle: is set while no request is in progress.
    """

    def __init__(
        self,
        classifier: Program,
        digest: str,
        limits: Limits,
        meter: Meter,
        threads: int,
    ) -> None:
        """The service of a program.

        Args:
            classifier: the program.
            digest: its SHA-256.
            limits: the limits of requests.
            meter: what is counted.
            threads: how many read the examples of requests.
        """
        self.limits = limits
        self.meter = meter
        self.reader = RequestReader(classifier, limits)
        self.batcher = Batcher(classifier, meter.add_batch)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="requests")
        self._large = ThreadPoolExecutor(max(1, threads // 2), thread_name_prefix="large")
        self.state = STARTING
        self.idle = asyncio.Event()
        self.idle.set()
        self._classifier = classifier
        self._digest = digest
        self._in_progress = self._waiting = self._held_bytes = 0
        # Whether it will do so in a moment.

    def describe(self) -> dict[str, Any]:
        """What is served, for /health."""
        classifier = self._classifier
        return {
            "status": self.state,
            "program": classifier.path.name,
            "sha256": self._digest,
            "inputs": classifier.inputs,
            "shape": classifier.shape,
            "classes": len(classifier.classes),
            "rule": str(classifier.own_rule),
            "rule_in_words": classifier.own_rule.in_words,
        }

    def check_ready(self) -> None:
        """Refuses a request before and after the time of the service."""
        if self.state != READY:
            raise RefusalError(503, f"the server is {self.state}")

    @contextlib.contextmanager
    def progressing(self) -> Iterator[None]:
        """A request is in progress in this context."""
        self.meter.accept()
        self._in_progress += 1
        self.idle.clear()
        self._show()
        try:
            yield
        finally:
            self._in_progress -= 1
            self._show()
            if self._in_progress == 0:
                self.idle.set()

    @contextlib.contextmanager
    def holding(self) -> "Iterator[Held]":
        """What a request needs of the worker is given back after this context."""
        held = Held(self)
        try:
            yield held
        finally:
            self._held_bytes -= held.bytes
            self._waiting -= held.examples

    def hold(self, more_bytes: int, more_examples: int) -> None:
        """Takes on more of a request.

        Raises:
            RefusalError: it would be more than the limits.
        """
        held_bytes, waiting = self._held_bytes + more_bytes, self._waiting + more_examples
        if held_bytes > self.limits.held_bytes or waiting > self.limits.waiting:
            raise RefusalError(503, "too many requests wait; ask again in a moment")
        self._held_bytes, self._waiting = held_bytes, waiting
        self._show()

    async def read(self, content_type: str, body: bytes, until: float) -> list[np.ndarray]:
        """The examples of a request; see `RequestReader`.

        What takes no longer than a change of threads is done at once. Large images are decoded in
        other threads than all other work: the requests of other clients do not wait for them.
        """
        loop = asyncio.get_running_loop()
        pixels = 0

        def read(most_pixels: int) -> Parsed | list[np.ndarray]:
            nonlocal pixels
            parsed = self.reader.parse(content_type, body)
            pixels = parsed.pixels
            return parsed if pixels > most_pixels else self.reader.decode(parsed, until)

        if len(body) <= _TINY_BODY:
            found = read(_TINY)
        else:
            found = await loop.run_in_executor(self._threads, read, _LARGE)
        if isinstance(found, Parsed):
            threads = self._large if pixels > _LARGE else self._threads
            return await loop.run_in_executor(threads, self.reader.decode, found, until)
        return found

    def close(self) -> None:
        """Ends the threads, which finish what they are at."""
        for threads in (self._threads, self._large):
            threads.shutdown(wait=False, cancel_futures=True)
        self.batcher.close()

    async def answer(self, examples: Sequence[np.ndarray]) -> list[dict[str, Any]]:
        """The sets of some examples, as the fields of their lines."""
        return [self._describe_set(row) for row in await self.batcher.answer(examples)]

    def _describe_set(self, row: Row) -> dict[str, Any]:
        rule = self._classifier.own_rule
        outputs: dict[str, Any] = dict(zip(self._classifier.outputs, row, strict=True))
        answer = Answer(outputs[CHOSEN], outputs.get(NODES), outputs.get(NONE_OF_THESE))
        entry = Entry(probabilities=outputs[PROBABILITIES]).answered(answer, rule.tree)
        self.meter.add_set(len(entry.classes), none_of_these=bool(entry.none_of_these))
        return to_line(entry, rule, self._classifier.classes.names)

    def _show(self) -> None:
        self.meter.show(self._in_progress, self._waiting)


class Held:
    """What a request holds of the worker.

    Attributes:
        bytes: of its body.
        examples: how many it has.
        until: the time of `time.monotonic` at which it is given up.
    """

    def __init__(self, service: Service) -> None:
        self.bytes = self.examples = 0
        self.until = time.monotonic() + service.limits.seconds
        self._service = service

    def add(self, *, more_bytes: int = 0, more_examples: int = 0) -> None:
        """Holds more; see `Service.hold`."""
        self._service.hold(more_bytes, more_examples)
        self.bytes += more_bytes
        self.examples += more_examples
