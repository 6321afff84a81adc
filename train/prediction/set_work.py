"""The work of making sets: batch by batch, so that processes can share it."""

import dataclasses
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from train.prediction.class_sets import ClassSet, Unreadable
from train.prediction.thumbnails import Photograph, Thumbnail
from train.sharing.work import Share, Work

Entry = ClassSet | Unreadable
_KIND = "kind"
_OF_SETS = (Unreadable, Photograph, Thumbnail)


def make(
    share: Share,
    number: int,
    count: Callable[[range], int],
    compute: Callable[[range], Iterator[list[Any]]],
    kind: type[ClassSet],
) -> Iterator[Any]:
    """The sets of all batches, one after another.

    Args:
        share: how this process takes part.
        number: the number of batches.
        count: the number of examples of some of them.
        compute: the sets of each of some batches.
        kind: the class of the sets.
    """
    kinds = {one.__name__: one for one in (kind, *_OF_SETS)}

    def decode(content: bytes) -> list[Any]:
        found: list[Any] = [_decoded(entry, kinds) for entry in json.loads(content)]
        return found

    work: Work[list[Any]] = Work(
        "sets", "making sets", "examples", number, count, compute, _encode, decode
    )
    return _each(share.results(work))


def _each(batches: Iterator[list[Any]]) -> Iterator[Any]:
    for entries in batches:
        yield from entries


def _encode(entries: Sequence[Entry]) -> bytes:
    # Lone surrogates, of names that are not UTF-8, are escapes in ASCII.
    return json.dumps([_plain(entry) for entry in entries]).encode()


def _plain(value: Any) -> Any:
    """A value as one of JSON; a float is the same when it is read back."""
    if dataclasses.is_dataclass(value):
        of_fields = {
            field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
        return {_KIND: type(value).__name__, **of_fields}
    if isinstance(value, Path):
        return {_KIND: "Path", "path": str(value)}
    if isinstance(value, bytes):
        return {_KIND: "bytes", "base64": b64encode(value).decode()}
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value


def _decoded(value: Any, kinds: dict[str, Any]) -> Any:
    """The value again; lists are tuples."""
    if isinstance(value, list):
        return tuple(_decoded(entry, kinds) for entry in value)
    if not isinstance(value, dict):
        return value
    fields = {name: _decoded(entry, kinds) for name, entry in value.items() if name != _KIND}
    kind = value.get(_KIND)
    if kind == "Path":
        return Path(fields["path"])
    if kind == "bytes":
        return b64decode(fields["base64"])
    return fields if kind is None else kinds[kind](**fields)
