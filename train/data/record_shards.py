"""The records of many files; only a few files are open at a time."""

import bisect
import itertools
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

from array_record.python.array_record_module import ArrayRecordReader

# The files of a split that are open at a time. A process may often have 1,024 files open, on some
# systems 256, and a run reads from three splits. To open one for a record takes 50 µs; to decode a
# photograph takes 5 ms.
MOST_OPEN = 64


class RecordRange(NamedTuple):
    """A file, and the records that are used of it: the first one, and how many."""

    path: str
    first: int
    number: int


class RecordShards(Sequence[bytes]):
    """The records of a split; several threads may read them.

    Grain's own source keeps each file open that it has read from. ImageNet has 1,024.

    Args:
        shards: the files in their order.
    """

    def __init__(self, shards: Sequence[RecordRange]) -> None:
        self._shards = tuple(shards)
        self._ends = list(itertools.accumulate(shard.number for shard in shards))
        self._readers: OrderedDict[int, ArrayRecordReader] = OrderedDict()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """Sent to the processes that decode without what is open here."""
        return RecordShards, (self._shards,)

    def __len__(self) -> int:
        """The number of records."""
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: Any) -> Any:
        """The bytes of a record, counted from 0."""
        place = bisect.bisect_right(self._ends, index)
        shard = self._shards[place]
        within = index - self._ends[place] + shard.number
        return self._reader(place).read([shard.first + within])[0]

    def _reader(self, place: int) -> ArrayRecordReader:
        """The reader of a file. One that is left out is closed when no thread reads from it."""
        with self._lock:
            reader = self._readers.pop(place, None)
            if reader is None:
                if len(self._readers) == MOST_OPEN:
                    self._readers.popitem(last=False)
                reader = ArrayRecordReader(
                    self._shards[place].path,
                    # Records are read one by one: nothing is read ahead.
                    options="readahead_buffer_size:0",
                    file_reader_buffer_size=32768,
                )
            self._readers[place] = reader
            return reader
