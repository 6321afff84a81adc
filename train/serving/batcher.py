"""One call of the program for all examples that wait."""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from train.classifiers.program import Program
from train.data.dataset import INPUT_DTYPES
from train.foundation.errors import UserError

# Few, because a program is compiled for each; a batch is padded to one of them.
_SIZES = (1, 4, 16, 64)
# A larger size is used only if it takes at most this part of the time of an example.
_WORTH_IT = 0.9
# How often, and how long, a call is measured.
_FEWEST, _MOST, _SECONDS = 3, 100, 0.2

# The outputs of the program for one example.
Row = tuple[np.ndarray, ...]


@dataclass
class _Asked:
    """The examples of a request.

    Attributes:
        answer: the rows of all examples, when the last one is known.
        rows: those that are known, by the number of the example.
        number: how many there are.
    """

    answer: "asyncio.Future[list[Row]]"
    number: int
    rows: dict[int, Row] = field(default_factory=dict)

    def add(self, index: int, row: Row) -> None:
        """The row of an example; in the thread of the event loop."""
        self.rows[index] = row
        if len(self.rows) == self.number and not self.answer.done():
            self.answer.set_result([self.rows[index] for index in range(self.number)])

    def fail(self, error: Exception) -> None:
        """The program has failed; in the thread of the event loop."""
        if not self.answer.done():
            self.answer.set_exception(error)


class Batcher:
    """A thread that calls the program, for examples that the event loop brings.

    Args:
        classifier: the program.
        on_batch: is called with the size of each batch and the number of its examples.
    """

    def __init__(self, classifier: Program, on_batch: Callable[[int, int], None]) -> None:
        self._classifier = classifier
        self._on_batch = on_batch
        # Requests that the thread has not seen yet, and requests that it has seen.
        self._arrived: list[tuple[_Asked, int, np.ndarray]] = []
        self._waiting: deque[tuple[_Asked, int, np.ndarray]] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        # The seconds that a call takes, by the size of the batch.
        self.seconds: Mapping[int, float] = {}

    def compile(self) -> None:
        """Compiles the program for each size of a batch, and measures it.

        Sizes grow as long as a larger one answers more examples per second.

        Raises:
            UserError: the program returns something else than its description has.
        """
        seconds: dict[int, float] = {}
        for size in _SIZES:
            zeros = self._zeros(size)
            self._check(self._call(zeros), size)
            taken = self._measure(zeros)
            if seconds and taken / size > _WORTH_IT * min(
                other / number for number, other in seconds.items()
            ):
                break
            seconds[size] = taken
        self.seconds = seconds

    async def answer(self, examples: Sequence[np.ndarray]) -> list[Row]:
        """The rows of the outputs for some examples."""
        loop = asyncio.get_running_loop()
        if not self._arrived:
            # To wake the thread takes as long as to read a small request: once is enough for all
            # that the loop reads before it waits again.
            loop.call_soon(self._hand_over)
        asked = _Asked(loop.create_future(), len(examples))
        self._arrived.extend((asked, index, one) for index, one in enumerate(examples))
        return await asked.answer

    def run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Answers until `close` is called; a thread runs it."""
        while taken := self._take():
            size = choose(len(taken), self.seconds)
            batch = self._zeros(size)
            for row, (_, _, example) in zip(batch, taken, strict=False):
                row[...] = example
            try:
                outputs = self._call(batch)
            except Exception as error:  # The next batch may have room in memory.
                _tell(loop, _fail, taken, error)
                continue
            _tell(loop, self._deliver, taken, outputs, size)

    def close(self) -> None:
        """Ends `run`."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _hand_over(self) -> None:
        with self._changed:
            self._waiting.extend(self._arrived)
            self._changed.notify()
        self._arrived.clear()

    def _take(self) -> list[tuple[_Asked, int, np.ndarray]]:
        """The examples of the next batch; none at the end."""
        with self._changed:
            while True:
                # Nobody waits for these any longer.
                while self._waiting and self._waiting[0][0].answer.done():
                    self._waiting.popleft()
                if self._waiting or self._is_closed:
                    break
                self._changed.wait()
            most = choose(max(1, len(self._waiting)), self.seconds)
            return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]

    def _deliver(
        self, taken: list[tuple[_Asked, int, np.ndarray]], outputs: Sequence[np.ndarray], size: int
    ) -> None:
        self._on_batch(size, len(taken))
        for row, (asked, index, _) in enumerate(taken):
            asked.add(index, tuple(output[row] for output in outputs))

    def _zeros(self, size: int) -> np.ndarray:
        classifier = self._classifier
        return np.zeros((size, *classifier.shape), INPUT_DTYPES[classifier.inputs])

    def _call(self, batch: np.ndarray) -> list[np.ndarray]:
        return [np.asarray(output) for output in self._classifier.call(batch)]

    def _measure(self, batch: np.ndarray) -> float:
        """The shortest time of a call: other programs may delay a few."""
        taken: list[float] = []
        while len(taken) < _FEWEST or (sum(taken) < _SECONDS and len(taken) < _MOST):
            begun = time.perf_counter()
            self._call(batch)
            taken.append(time.perf_counter() - begun)
        return min(taken)

    def _check(self, outputs: Sequence[np.ndarray], size: int) -> None:
        """Refuses a program that is not the one of its description."""
        shapes = [(size, *shape) for shape in self._classifier.outputs.values()]
        found = [output.shape for output in outputs]
        if found != shapes:
            raise UserError(
                f"--program {self._classifier.path} is not the program of its description: that "
                f"has outputs of the shapes {shapes}, and the program of {found}"
            )


def choose(number: int, seconds: Mapping[int, float]) -> int:
    """The size of the batch with which most of some waiting examples are answered per second.

    Args:
        number: how many wait; at least 1.
        seconds: the time of a call by the size of the batch.
    """
    return max(seconds, key=lambda size: min(number, size) / seconds[size])


def _fail(taken: list[tuple[_Asked, int, np.ndarray]], error: Exception) -> None:
    for asked, _, _ in taken:
        asked.fail(error)


def _tell(loop: asyncio.AbstractEventLoop, *call: Any) -> None:
    # At the end nobody waits any longer, and the loop may be closed.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(*call)
