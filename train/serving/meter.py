"""What workers count, in memory that they share: any of them answers /metrics for all.

The package prometheus_client has a way for several processes, which writes files.
"""

import mmap
from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate, product

import numpy as np
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

PREDICT, OTHER = "/predict", "other"
# The values of the labels: clients choose paths, and cannot make more series than these.
_PATHS = (PREDICT, "/health", "/metrics", OTHER)
_STATUSES = (200, 307, 400, 404, 405, 408, 413, 415, 422, 500, 503, 504)
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SET_SIZES = (0, 1, 2, 3, 5, 10, 20, 50, 100, 1000)
_PREFIX = "topk_jax_"


class _Histogram:
    """The cells of a histogram: one for each bucket, one for what is larger, and the sum."""

    def __init__(self, first: int, bounds: tuple[float, ...]) -> None:
        self.first = first
        self.bounds = bounds
        self.end = first + len(bounds) + 2

    def add(self, cells: np.ndarray, value: float) -> None:
        cells[self.first + bisect_left(self.bounds, value)] += 1
        cells[self.end - 1] += value

    def family(self, cells: np.ndarray, name: str, words: str) -> HistogramMetricFamily:
        counts = accumulate(cells[self.first : self.end - 1].tolist())
        bounds = [*(str(float(bound)) for bound in self.bounds), "+Inf"]
        return HistogramMetricFamily(
            _PREFIX + name,
            words,
            buckets=list(zip(bounds, counts, strict=True)),
            sum_value=float(cells[self.end - 1]),
        )


class Meter(Collector):
    """The counts of all workers, [workers, cells]; each worker adds to its own row.

    A worker that is started again continues with the counts of its row.

    Args:
        workers: how many there are.
    """

    def __init__(self, workers: int) -> None:
        self._seconds = _Histogram(len(_PATHS) * len(_STATUSES), _SECONDS)
        self._sizes = _Histogram(self._seconds.end, _SET_SIZES)
        self._batches = self._sizes.end
        self._examples, self._padding, self._new = (self._batches + i for i in (1, 2, 3))
        self._in_progress, self._waiting = self._batches + 4, self._batches + 5
        self._accepted, cells = self._batches + 6, self._batches + 7
        # A process that is forked later shares it.
        memory = mmap.mmap(-1, workers * cells * 8)
        self._table = np.frombuffer(memory, np.float64).reshape(workers, cells)
        self._own = self._table[0]
        self.information: dict[str, str] = {}

    def choose_worker(self, index: int) -> None:
        """Counts in the row of a worker from now on."""
        self._own = self._table[index]
        self._own[[self._in_progress, self._waiting]] = 0

    def accept(self) -> None:
        """A request for sets has come."""
        self._own[self._accepted] += 1

    def answer(self, path: str, status: int) -> None:
        """A request was answered."""
        row = _PATHS.index(path if path in _PATHS else OTHER)
        column = _STATUSES.index(status if status in _STATUSES else 500)
        self._own[row * len(_STATUSES) + column] += 1

    def answer_predict(self, status: int, seconds: float) -> None:
        """A request for sets was answered, after some seconds."""
        self.answer(PREDICT, status)
        self._seconds.add(self._own, seconds)

    def add_batch(self, size: int, examples: int) -> None:
        """The program was called."""
        self._own[self._batches] += 1
        self._own[self._examples] += examples
        self._own[self._padding] += size - examples

    def add_set(self, size: int, *, none_of_these: bool) -> None:
        """A set was made."""
        self._sizes.add(self._own, size)
        self._own[self._new] += none_of_these

    def show(self, in_progress: int, waiting: int) -> None:
        """The requests that are not answered yet, and the examples that wait."""
        self._own[self._in_progress] = in_progress
        self._own[self._waiting] = waiting

    def totals(self) -> tuple[int, int]:
        """How many requests for sets have come, and how many were answered."""
        cells = self._table.sum(axis=0)
        # The cells of the path for sets come first.
        return int(cells[self._accepted]), int(cells[: len(_STATUSES)].sum())

    def text(self) -> bytes:
        """The counts of all workers, in the format of Prometheus."""
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)

    def collect(self) -> Iterator[Metric]:
        """The families of the counts."""
        cells = self._table.sum(axis=0)
        yield InfoMetricFamily(_PREFIX + "program", "What is served.", self.information)
        requests = CounterMetricFamily(
            f"{_PREFIX}requests", "Answers, by path and status.", labels=["path", "status"]
        )
        for place, (path, status) in enumerate(product(_PATHS, _STATUSES)):
            requests.add_metric([path, str(status)], float(cells[place]))
        yield requests
        for name, words, place in (
            ("batches", "Calls of the program.", self._batches),
            ("examples", "Examples in the calls of the program.", self._examples),
            ("padding", "Rows of zeros in the calls of the program.", self._padding),
            ("none_of_these", "Sets that say that it may be none of the classes.", self._new),
        ):
            yield CounterMetricFamily(_PREFIX + name, words, value=float(cells[place]))
        for name, words, place in (
            ("requests_in_progress", "Requests that are not answered yet.", self._in_progress),
            ("examples_waiting", "Examples that wait for their answer.", self._waiting),
        ):
            yield GaugeMetricFamily(_PREFIX + name, words, value=float(cells[place]))
        words = "Seconds from the head of a request for sets to the end of its response."
        yield self._seconds.family(cells, "request_seconds", words)
        yield self._sizes.family(cells, "set_size", "Classes in a set.")
