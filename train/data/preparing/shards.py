"""Writes the records of a data set so that a second start continues after the first one.

A split is cut into shards before anything is written. A shard is written under another name, made
durable, renamed and then noted in a journal. A shard that is not in the journal is written again.
"""

import functools
import hashlib
import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter
from PIL import Image, UnidentifiedImageError

from train.data.builders import full_disk
from train.data.preparing.sources import Source
from train.foundation import files, reading
from train.foundation.errors import UserError

# Some 100 MB of photographs, which is the most work that a kill can lose.
EXAMPLES_PER_SHARD = 1024
# The formats that training decodes. ImageNet has one PNG among its JPEG files.
_FORMATS = ("JPEG", "PNG")
# Encoded images that wait to be written.
_AHEAD = 16


@dataclass(frozen=True, slots=True)
class Example:
    """An image of a data set.

    Attributes:
        path: its path in the source.
        label: its class.
        features: the other features stored with it.
        credit: its author and its licence, empty if not known, which are beside the records.
    """

    path: str
    label: int
    features: Mapping[str, Any]
    credit: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class WrittenShard:
    """A written shard; `skipped` are the paths of the images left out as unreadable."""

    split: str
    index: int
    num_examples: int
    num_bytes: int
    skipped: list[str]


class UnreadableError(UserError):
    """An image that cannot be decoded."""


class Journal:
    """The list of written shards, one line per shard; emptied if their contents have changed.

    Args:
        path: the file.
        fingerprint: a digest of everything that determines the contents of the shards.
    """

    def __init__(self, path: Path, fingerprint: str) -> None:
        self._path = path
        self._shards: dict[tuple[str, int], WrittenShard] = {}
        header = files.to_json({"fingerprint": fingerprint})
        kept = [header]
        first, *lines = path.read_bytes().splitlines(keepends=True) if path.exists() else [b""]
        for line in lines if first == header else []:
            try:
                shard = WrittenShard(**json.loads(line))
            except (ValueError, TypeError):
                break  # Torn by a kill, and so the last.
            self._shards[shard.split, shard.index] = shard
            kept.append(line.rstrip(b"\n") + b"\n")
        files.write_whole(path, b"".join(kept))

    def shard(self, split: str, index: int) -> WrittenShard | None:
        """The entry of a shard; None if the journal does not have it."""
        return self._shards.get((split, index))

    def note(self, shard: WrittenShard) -> None:
        """Adds a shard that is on disk under its final name."""
        files.append(self._path, files.to_json(asdict(shard)))
        self._shards[shard.split, shard.index] = shard


def fingerprint(name: str, splits: Mapping[str, Sequence[Example]], source: Source) -> str:
    """A digest of the examples, their order, their division into shards, and their images."""
    digest = hashlib.sha256(f"{name} {EXAMPLES_PER_SHARD}\n".encode())
    for split, examples in splits.items():
        for example in examples:
            features = json.dumps([example.label, example.features], sort_keys=True)
            content = source.fingerprint(example.path)
            digest.update(f"{split} {example.path} {features} {content}\n".encode())
    return digest.hexdigest()


def ranges(num_examples: int) -> list[range]:
    """The indices of the examples of each shard: as few shards as possible, of equal size or so."""
    num_shards = -(-num_examples // EXAMPLES_PER_SHARD)
    bounds = [index * num_examples // num_shards for index in range(num_shards + 1)]
    return [range(*pair) for pair in itertools.pairwise(bounds)]


def is_whole(path: Path, shard: WrittenShard) -> bool:
    """Whether the file of a shard has the size and the number of records of its journal entry."""
    if not path.exists() or path.stat().st_size != shard.num_bytes:
        return False
    return _num_records(path) == shard.num_examples


def write(
    path: Path,
    examples: Sequence[Example],
    source: Source,
    serialize: Callable[[dict[str, Any]], bytes],
    *,
    skip_unreadable: bool,
) -> tuple[int, list[str]]:
    """Writes a shard, which gets its final name when it is complete.

    Returns:
        The number of records, and the paths of the images left out.

    Raises:
        UnreadableError: an image cannot be decoded, unless such images are to be skipped.
        OSError: the shard cannot be written.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    skipped = []
    try:
        writer = ArrayRecordWriter(str(temporary), "group_size:1")
        try:
            check = functools.partial(_checked, source=source)
            found = reading.in_threads(check, examples, ahead=_AHEAD)
            for example, encoded in zip(examples, found, strict=True):
                if isinstance(encoded, bytes):
                    record = {**example.features, "image": encoded, "label": example.label}
                    writer.write(serialize(record))
                elif skip_unreadable:
                    skipped.append(example.path)
                else:
                    raise encoded
        finally:
            writer.close()
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        if _num_records(temporary) != len(examples) - len(skipped):
            raise OSError(f"cannot write {path}: not all of it has reached the disk")
        temporary.replace(path)
    except RuntimeError as error:
        raise full_disk(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)
    return len(examples) - len(skipped), skipped


def _num_records(path: Path) -> int:
    try:
        reader = ArrayRecordReader(str(path))
        try:
            return int(reader.num_records())
        finally:
            reader.close()
    except RuntimeError:  # No such file at all.
        return -1


def _checked(example: Example, source: Source) -> bytes | UnreadableError:
    """The bytes of an image, or the error that all of it cannot be decoded."""
    encoded = source.read(example.path)
    try:
        with Image.open(BytesIO(encoded), formats=_FORMATS) as image:
            image.load()
    except UnidentifiedImageError:
        what = "is empty" if not encoded else "is neither a JPEG nor a PNG image"
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        what = f"is damaged ({error})"
    else:
        return encoded
    return UnreadableError(
        f"{source.where(example.path)} {what}; --skip_unreadable leaves such images out"
    )
