"""Work that can be shared: units in an order, each with its result."""

import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

Result = TypeVar("Result")


@dataclass(frozen=True)
class Work(Generic[Result]):
    """Work in units, such as batches, whose results do not depend on each other.

    Attributes:
        name: what it is in names of files, such as "sets".
        what: what a bar calls it.
        counted: what its examples are called, such as "images".
        number: the number of units.
        count: the number of examples of some consecutive units.
        compute: the results of some consecutive units, one after another. A result is the same
            whichever units are computed before it.
        encode: a result as bytes.
        decode: the result again, equal in every bit.
    """

    name: str
    what: str
    counted: str
    number: int
    count: Callable[[range], int]
    compute: Callable[[range], Iterator[Result]]
    encode: Callable[[Result], bytes]
    decode: Callable[[bytes], Result]


class Share(Protocol):
    """How a process takes part in some work."""

    def results(self, work: Work[Result]) -> Iterator[Result]:
        """The results of all units, in their order.

        Raises:
            PartWritten: this process has computed its own share, which is in a file now.
        """


class Alone:
    """Computes all units in this process."""

    def results(self, work: Work[Result]) -> Iterator[Result]:
        """The results of all units, in their order."""
        return work.compute(range(work.number))


ALONE = Alone()


class PartWritten(Exception):  # noqa: N818 (it is no error)
    """This process has written its part, in the place of the results of all units."""


def counting(examples: int, size: int) -> Callable[[range], int]:
    """The `count` of a work whose units have one size, except the last."""
    return lambda units: max(0, min(units.stop * size, examples) - units.start * size)


def arrays_to_bytes(arrays: Mapping[str, np.ndarray], fields: Any = None) -> bytes:
    """Arrays of numbers, and a value of JSON, as bytes."""
    content = io.BytesIO()
    text = np.frombuffer(json.dumps(fields).encode(), np.uint8)
    np.savez(content, allow_pickle=False, **arrays, **{_FIELDS: text})
    return content.getvalue()


def arrays_from_bytes(content: bytes) -> tuple[dict[str, np.ndarray], Any]:
    """The arrays and the value of `arrays_to_bytes`."""
    with np.load(io.BytesIO(content), allow_pickle=False) as found:
        arrays = {name: found[name] for name in found.files}
    return arrays, json.loads(arrays.pop(_FIELDS).tobytes())


_FIELDS = "fields of JSON"
