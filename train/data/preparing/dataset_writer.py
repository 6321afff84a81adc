"""Writes a data set into a folder that tfds reads, all of it or none.

Everything is written into a folder `incomplete.VERSION` beside the final one, tfds's description
last. That folder is then renamed. Nothing else makes a data set prepared.
"""

import errno
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from train.data.builders import FILE_FORMAT, check_writable, write_checksums
from train.data.prepared_files import labels_content, labels_file
from train.data.preparing import shards
from train.data.preparing.shards import Example, Journal, Shard
from train.data.preparing.sources import Source
from train.foundation import files, folder_lock
from train.foundation.console import show_line
from train.foundation.errors import UserError
from train.foundation.folder_lock import LOCK
from train.foundation.progress_bar import ImageProgress

_JOURNAL = "journal.jsonl"


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
    builder: tfds.core.DatasetBuilder, contents: Contents, *, skip_unreadable: bool
) -> dict[str, int]:
    """Writes a data set; continues after the shards that an earlier call has written.

    Returns:
        The number of images that were left out as unreadable, by split.

    Raises:
        UserError: an image is unreadable, or a class has no readable image in a split, or the
            folder cannot be written to.
        OSError: the disk is full.
    """
    final = Path(builder.data_dir)
    check_absent(final)
    check_writable(builder)
    unfinished = final.with_name(f"incomplete.{final.name}")
    unfinished.mkdir(parents=True, exist_ok=True)
    with locked(unfinished):
        written = _write_splits(builder, contents, unfinished, skip_unreadable=skip_unreadable)
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
            (final / temporary).unlink()
    return {split: len(contents.splits[split]) - len(examples) for split, examples in kept.items()}


def check_absent(final: Path) -> None:
    """Refuses a folder that has something else in it."""
    # The files get the name of the folder in one step, which a link does not allow.
    if final.is_symlink() or (final.exists() and (not final.is_dir() or any(final.iterdir()))):
        raise UserError(
            f"{final} exists and is not a whole prepared data set; delete it to prepare it anew"
        )


def _write_splits(
    builder: tfds.core.DatasetBuilder,
    contents: Contents,
    folder: Path,
    *,
    skip_unreadable: bool,
) -> dict[str, list[Shard]]:
    """Writes the shards that are not there yet, and returns all of them, in order."""
    name = f"{builder.name} {builder.version}"
    journal = Journal(folder / _JOURNAL, shards.fingerprint(name, contents.splits, contents.source))
    features = builder.info.features
    serializer = tfds.core.ExampleSerializer(features.get_serialized_info())

    def serialize(example: dict[str, Any]) -> bytes:
        # As tfds does it, but with the features in one order: files equal if their contents do.
        message = serializer.get_tf_example(features.encode_example(example))
        record: bytes = message.SerializeToString(deterministic=True)
        return record

    written: dict[str, list[Shard]] = {}
    # Split, index of the shard, indices of its examples, file.
    missing: list[tuple[str, int, range, Path]] = []
    expected = {folder / _JOURNAL, folder / LOCK}
    for split, examples in contents.splits.items():
        ranges = shards.ranges(len(examples))
        written[split] = [Shard(split, index, 0, 0, []) for index in range(len(ranges))]
        template = _template(builder, split, folder)
        for index, indices in enumerate(ranges):
            path = Path(template.sharded_filepath(shard_index=index, num_shards=len(ranges)))
            expected.add(path)
            noted = journal.shard(split, index)
            # An earlier start may have skipped images that this one must not skip.
            may_keep = noted is not None and (skip_unreadable or not noted.skipped)
            if noted is not None and may_keep and shards.is_whole(path, noted):
                written[split][index] = noted
            else:
                missing.append((split, index, indices, path))
    for path in set(folder.iterdir()) - expected:
        path.unlink()  # From a killed start, or with other contents.
    total = sum(len(examples) for examples in contents.splits.values())
    done = total - sum(len(indices) for _, _, indices, _ in missing)
    if done:
        show_line(f"going on: {done:,} of {total:,} images are written already")
    _check_space(contents, missing, folder)
    with ImageProgress("checking and writing", total, done=done) as progress:
        for split, index, indices, path in missing:
            num_examples, skipped = shards.write(
                path,
                contents.splits[split][indices.start : indices.stop],
                contents.source,
                serialize,
                skip_unreadable=skip_unreadable,
            )
            shard = Shard(split, index, num_examples, path.stat().st_size, skipped)
            journal.note(shard)
            written[split][index] = shard
            progress.advance(len(indices))
    return written


def _template(
    builder: tfds.core.DatasetBuilder, split: str, folder: Path
) -> tfds.core.ShardedFileTemplate:
    return tfds.core.ShardedFileTemplate(
        data_dir=folder, dataset_name=builder.name, split=split, filetype_suffix=FILE_FORMAT
    )


def _check_space(
    contents: Contents, missing: Sequence[tuple[str, int, range, Path]], folder: Path
) -> None:
    """Refuses a disk that is too small, before an hour of work."""
    needed = sum(
        contents.source.size(contents.splits[split][index].path)
        for split, _, indices, _ in missing
        for index in indices
    )
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(
            errno.ENOSPC,
            f"the disk is too small: {needed / 1e9:.1f} GB are needed and {free / 1e9:.1f} GB are "
            "free",
            str(folder),
        )


def _without_skipped(examples: Sequence[Example], written: Sequence[Shard]) -> Sequence[Example]:
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
    written: Mapping[str, Sequence[Shard]],
    folder: Path,
) -> None:
    """Writes the classes, the labels, and tfds's description."""
    files.write_whole(folder / "classes.json", files.to_json(contents.classes, indent=1))
    for split, examples in kept.items():
        labels = np.array([example.label for example in examples], np.int32)
        files.write_whole(folder / labels_file(split), labels_content(labels))
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
    with files.naming(folder / "dataset_info.json"):
        info.write_to_directory(folder)
    write_checksums(folder, without=(_JOURNAL, LOCK))
    # The shards are durable already; a description that is not must not get the folder its name.
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())


def locked(folder: Path) -> AbstractContextManager[None]:
    """Keeps other preparations from writing here; one that is killed loses its lock."""
    return folder_lock.held(folder, "another preparation")
