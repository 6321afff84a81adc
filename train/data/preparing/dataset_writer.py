"""Writes a data set into a folder that tfds reads, all of it or none.

Everything is written into a folder `incomplete.VERSION` beside the final one, tfds's description
last. That folder is then renamed. Nothing else makes a data set prepared.
"""

import errno
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from train.data.builders import FILE_FORMAT, check_writable, write_checksums
from train.data.credits import Credits
from train.data.prepared_files import credits_file, labels_content, labels_file
from train.data.preparing import shards
from train.data.preparing.shards import Example, Journal, WrittenShard
from train.data.preparing.sources import Source
from train.foundation import files, folder_lock
from train.foundation.console import show_line
from train.foundation.errors import UserError
from train.foundation.folder_lock import LOCK
from train.foundation.progress_bar import ImageProgress
from train.sharing import kinds
from train.sharing.share_flags import NOT_SHARED, ChosenShare
from train.sharing.sharing import taking_part
from train.sharing.work import PartWritten, Work

_JOURNAL = "journal.jsonl"
_WHAT = "checking and writing"


@dataclass(frozen=True)
class _Unit:
    """A shard to write.

    Attributes:
        split: its split.
        index: which of the shards of the split it is.
        indices: the indices of its examples in the split.
        path: its file.
    """

    split: str
    index: int
    indices: range
    path: Path


@dataclass(frozen=True)
class Contents:
    """The content of a data set, known before any image is read.

    Attributes:
        splits: the examples of each split, in the order in which they are stored.
        class_names: the name of each class, for tfds.
        classes: other attributes of each class, for the file classes.json.
        source: the source of the images.
    """

    splits: Mapping[str, Sequence[Example]]
    class_names: Sequence[str]
    classes: Sequence[Mapping[str, str]]
    source: Source


def write(
    builder: tfds.core.DatasetBuilder,
    contents: Contents,
    *,
    skip_unreadable: bool,
    shared: ChosenShare = NOT_SHARED,
) -> dict[str, int]:
    """Writes a data set; continues after the shards that an earlier call has written.

    Returns:
        The number of images that were left out as unreadable, by split.

    Raises:
        PartWritten: this process has written its part.
        UserError: an image is unreadable, or a class has no readable image in a split, or the
            folder cannot be written to.
        OSError: the disk is full.
    """
    final = Path(builder.data_dir)
    check_absent(final)
    check_writable(builder)
    unfinished = final.with_name(f"incomplete.{final.name}")
    unfinished.mkdir(parents=True, exist_ok=True)
    files_of = _Files(builder, contents, unfinished, skip_unreadable=skip_unreadable)
    share = shared.share(final, lambda: kinds.of("prepare", inputs=files_of.fingerprint))
    with taking_part(share) as part:
        results = share.results(files_of.work()) if shared.is_shared else None
        left_out = _finish(files_of, final, results)
    if part.is_written:
        raise PartWritten
    return left_out


def _finish(
    written_files: "_Files", final: Path, results: Iterator[WrittenShard] | None
) -> dict[str, int]:
    """Completes the folder of the files, and gives it its name.

    Args:
        written_files: the files.
        final: the folder's name.
        results: the shards that other processes have written; None to write them here.
    """
    builder, contents = written_files.builder, written_files.contents
    unfinished = written_files.folder
    with locked(unfinished):
        if results is None:
            written = written_files.write_missing()
        else:
            written = written_files.merged(results)
        kept = {
            split: _without_skipped(examples, written[split])
            for split, examples in contents.splits.items()
        }
        for split, examples in kept.items():
            _check_classes(split, examples, contents)
        _describe(builder, contents, kept, written, unfinished)
        if final.exists():
            final.rmdir()
        unfinished.rename(final)
        # Last: without its journal, a folder that is not renamed yet would be written from scratch.
        for temporary in (_JOURNAL, LOCK):
            (final / temporary).unlink(missing_ok=True)
    return {split: len(contents.splits[split]) - len(examples) for split, examples in kept.items()}


def check_absent(final: Path) -> None:
    """Refuses a folder that has something else in it."""
    # The files get the name of the folder in one step, which a link does not allow.
    if final.is_symlink() or (final.exists() and (not final.is_dir() or any(final.iterdir()))):
        raise UserError(
            f"{final} exists and is not a complete prepared data set; delete it to prepare it again"
        )


class _Files:
    """The files of the shards of all splits.

    Args:
        builder: of the data set.
        contents: its content.
        folder: the folder of the files.
        skip_unreadable: whether images that cannot be decoded are left out.
    """

    def __init__(
        self,
        builder: tfds.core.DatasetBuilder,
        contents: Contents,
        folder: Path,
        *,
        skip_unreadable: bool,
    ) -> None:
        self.builder = builder
        self.contents = contents
        self.folder = folder
        self._skip_unreadable = skip_unreadable
        self._units: list[_Unit] = []
        for split, examples in contents.splits.items():
            ranges = shards.ranges(len(examples))
            template = _template(builder, split, folder)
            for index, indices in enumerate(ranges):
                path = Path(template.sharded_filepath(shard_index=index, num_shards=len(ranges)))
                self._units.append(_Unit(split, index, indices, path))

    @cached_property
    def fingerprint(self) -> str:
        """A digest of what is in the files."""
        name = f"{self.builder.name} {self.builder.version}"
        return shards.fingerprint(name, self.contents.splits, self.contents.source)

    def write_missing(self) -> dict[str, list[WrittenShard]]:
        """Writes the shards that are not there yet, and returns all of them, in order."""
        journal = Journal(self.folder / _JOURNAL, self.fingerprint)
        self._remove_others(_JOURNAL)
        found: dict[_Unit, WrittenShard] = {}
        missing = []
        for unit in self._units:
            noted = journal.shard(unit.split, unit.index)
            # An earlier start may have skipped images that this one must not skip.
            may_keep = noted is not None and (self._skip_unreadable or not noted.skipped)
            if noted is not None and may_keep and shards.is_whole(unit.path, noted):
                found[unit] = noted
            else:
                missing.append(unit)
        total = sum(len(unit.indices) for unit in self._units)
        done = total - sum(len(unit.indices) for unit in missing)
        if done:
            show_line(f"continuing: {done:,} of {total:,} images are written already")
        with ImageProgress(_WHAT, total, done=done) as progress:
            for unit, shard in zip(missing, self._write(missing), strict=True):
                journal.note(shard)
                found[unit] = shard
                progress.advance(len(unit.indices))
        return self._by_split(found[unit] for unit in self._units)

    def work(self) -> Work[WrittenShard]:
        """The work of writing all files, one unit each; its results describe what is in them."""
        return Work(
            "files",
            _WHAT,
            "images",
            len(self._units),
            lambda units: sum(len(unit.indices) for unit in self._units[units.start : units.stop]),
            lambda units: self._write(self._units[units.start : units.stop]),
            lambda shard: json.dumps(asdict(shard)).encode(),
            lambda content: WrittenShard(**json.loads(content)),
        )

    def merged(self, results: Iterator[WrittenShard]) -> dict[str, list[WrittenShard]]:
        """The shards that other processes have written, if their files are there."""
        self._remove_others()
        found = []
        for unit, shard in zip(self._units, results, strict=True):
            if not shards.is_whole(unit.path, shard):
                raise UserError(
                    f"{unit.path} does not match its part; delete the parts, and start them again"
                )
            found.append(shard)
        return self._by_split(found)

    def _by_split(self, found: Iterable[WrittenShard]) -> dict[str, list[WrittenShard]]:
        by_split: dict[str, list[WrittenShard]] = {split: [] for split in self.contents.splits}
        for shard in found:
            by_split[shard.split].append(shard)
        return by_split

    def _remove_others(self, *kept: str) -> None:
        """Removes files from a killed start, or with other contents."""
        expected = {unit.path for unit in self._units}
        for path in self.folder.iterdir():
            if path not in expected and path.name not in (*kept, LOCK):
                path.unlink()

    def _write(self, units: Sequence["_Unit"]) -> Iterator[WrittenShard]:
        """Writes some shards, one after another."""
        _check_space(self.contents, units, self.folder)
        features = self.builder.info.features
        serializer = tfds.core.ExampleSerializer(features.get_serialized_info())

        def serialize(example: dict[str, Any]) -> bytes:
            # As tfds does it, but with the features in one order: files equal if their contents do.
            message = serializer.get_tf_example(features.encode_example(example))
            record: bytes = message.SerializeToString(deterministic=True)
            return record

        for unit in units:
            indices = unit.indices
            num_examples, skipped = shards.write(
                unit.path,
                self.contents.splits[unit.split][indices.start : indices.stop],
                self.contents.source,
                serialize,
                skip_unreadable=self._skip_unreadable,
            )
            num_bytes = unit.path.stat().st_size
            yield WrittenShard(unit.split, unit.index, num_examples, num_bytes, skipped)


def _template(
    builder: tfds.core.DatasetBuilder, split: str, folder: Path
) -> tfds.core.ShardedFileTemplate:
    return tfds.core.ShardedFileTemplate(
        data_dir=folder, dataset_name=builder.name, split=split, filetype_suffix=FILE_FORMAT
    )


def _check_space(contents: Contents, missing: Sequence[_Unit], folder: Path) -> None:
    """Refuses a disk that is too small, before an hour of work."""
    needed = sum(
        contents.source.size(contents.splits[unit.split][index].path)
        for unit in missing
        for index in unit.indices
    )
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(
            errno.ENOSPC,
            f"the disk is too small: {needed / 1e9:.1f} GB are needed and {free / 1e9:.1f} GB are "
            "free",
            str(folder),
        )


def _without_skipped(
    examples: Sequence[Example], written: Sequence[WrittenShard]
) -> Sequence[Example]:
    skipped = {path for shard in written for path in shard.skipped}
    return [example for example in examples if example.path not in skipped]


def _check_classes(split: str, examples: Sequence[Example], contents: Contents) -> None:
    counts = np.bincount(
        [example.label for example in examples], minlength=len(contents.class_names)
    )
    if counts.min() == 0:
        raise UserError(
            f"no image of the class {contents.class_names[int(counts.argmin())]!r} in {split} is "
            "readable; every class needs images in every split"
        )


def _describe(
    builder: tfds.core.DatasetBuilder,
    contents: Contents,
    kept: Mapping[str, Sequence[Example]],
    written: Mapping[str, Sequence[WrittenShard]],
    folder: Path,
) -> None:
    """Writes the classes, the labels, the credits, and tfds's description."""
    files.write_whole(folder / "classes.json", files.to_json(contents.classes, indent=1))
    for split, examples in kept.items():
        labels = np.array([example.label for example in examples], np.int32)
        files.write_whole(folder / labels_file(split), labels_content(labels))
        if any(any(example.credit) for example in examples):
            credited = Credits.of_pairs([example.credit for example in examples])
            files.write_whole(folder / credits_file(split), files.to_json(credited.to_plain()))
    info = builder.info
    info.features["label"].names = list(contents.class_names)
    info.set_splits(
        tfds.core.SplitDict(
            [
                tfds.core.SplitInfo(
                    name=split,
                    shard_lengths=[shard.num_examples for shard in parts],
                    num_bytes=sum(shard.num_bytes for shard in parts),
                    filename_template=_template(builder, split, Path(builder.data_dir)),
                )
                for split, parts in written.items()
            ]
        )
    )
    with files.name_in_errors(folder / "dataset_info.json"):
        info.write_to_directory(folder)
    write_checksums(folder, without=(_JOURNAL, LOCK))
    # The shards are durable already; a description that is not must not get the folder its name.
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())


def locked(folder: Path) -> AbstractContextManager[None]:
    """Keeps other preparations from writing here; one that is killed loses its lock."""
    return folder_lock.held(folder, "another preparation")
