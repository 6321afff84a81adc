"""Writes event files for TensorBoard."""

import io
import math
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
from PIL import Image
from tensorboardX import RecordWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import HistogramProto, Summary

from train.foundation import files

_SECONDS_BETWEEN_FLUSHES = 10


class Events:
    """An event file of TensorBoard.

    It uses only the record format of tensorboardX, and writes at once. tensorboardX's SummaryWriter
    writes in a thread: when the thread fails, on a full disk for example, the run hangs as soon as
    the queue is full.

    Args:
        directory: the folder of the event files; each start of a run adds one.
        first_step: TensorBoard hides what earlier files have of later steps.
    """

    def __init__(self, directory: Path, first_step: int) -> None:
        directory.mkdir(exist_ok=True)
        now = time.time()
        # TensorBoard reads the files in the order of their names; two starts can share one.
        starts = sum(1 for _ in directory.iterdir())
        self._path = directory / (
            f"events.out.tfevents.{int(now):010d}.{socket.gethostname()}.{starts}"
        )
        # A new file: if a folder of a stranger has anything of this name, it is not written to.
        with files.name_in_errors(self._path):
            self._path.touch(exist_ok=False)
        self._writer = RecordWriter(str(self._path))
        self._is_open = True
        self._add(Event(wall_time=now, file_version="brain.Event:2"))
        started = SessionLog(status=SessionLog.START)
        self._add(Event(wall_time=now, step=first_step + 1, session_log=started))
        self._next_flush = now

    def write(
        self,
        step: int,
        split: str,
        metrics: Mapping[str, float],
        size_counts: Mapping[str, np.ndarray] = MappingProxyType({}),
    ) -> None:
        """Adds the metrics that have a value, and histograms of the sizes of sets, by name."""
        values = [
            Summary.Value(tag=f"{split}/{name}", simple_value=value)
            for name, value in metrics.items()
            if not math.isnan(value)
        ]
        histograms = [
            Summary.Value(tag=f"{split}/{name}s", histo=_histogram(counts))
            for name, counts in size_counts.items()
        ]
        self._add_values(step, values + histograms)
        if time.time() > self._next_flush:
            self.flush()

    def write_image(self, step: int, tag: str, png: bytes) -> None:
        """Adds an image."""
        with Image.open(io.BytesIO(png)) as image:
            width, height = image.size
        picture = Summary.Image(height=height, width=width, colorspace=4, encoded_image_string=png)
        self._add_values(step, [Summary.Value(tag=tag, image=picture)])

    def flush(self) -> None:
        """Writes what was added to the disk."""
        with files.name_in_errors(self._path):
            self._writer.flush()
        self._next_flush = time.time() + _SECONDS_BETWEEN_FLUSHES

    def close(self) -> None:
        """Writes everything to the disk and closes the file; may be called again."""
        if self._is_open:
            self._is_open = False
            with files.name_in_errors(self._path):
                self._writer.close()

    def _add_values(self, step: int, values: list[Summary.Value]) -> None:
        self._add(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))

    def _add(self, event: Event) -> None:
        with files.name_in_errors(self._path):
            self._writer.write(event.SerializeToString())


def _histogram(counts: np.ndarray) -> HistogramProto:
    """The histogram of the integers 0, 1, 2, …, each in the middle of its own bucket.

    Neighbours that do not occur share a bucket: a set may have a million classes.
    """
    sizes = np.arange(len(counts))
    present = np.flatnonzero(counts)
    is_end = (counts > 0) | np.append(counts[1:] > 0, True)
    return HistogramProto(
        min=float(present[0]),
        max=float(present[-1]),
        num=float(counts.sum()),
        sum=float((counts * sizes).sum()),
        sum_squares=float((counts * sizes**2).sum()),
        bucket_limit=(sizes[is_end] + 0.5).tolist(),
        # Each has one number that occurs, or none.
        bucket=counts[is_end].astype(float).tolist(),
    )
