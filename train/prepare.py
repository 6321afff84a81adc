"""Prepares a data set: `python -m train.prepare --dataset=plantnet300k --manual_dir=downloads`.

A data set of tensorflow-datasets is named after `tfds:`, as in --dataset=tfds:oxford_flowers102.
Your own images are written as records by --dataset=folder --path=photos --out=photos.records, or by
--dataset=table with the path of a table. With --genera, a sample of them is listed instead, as the
construction of Pl@ntNet-300K draws one from a table with a column genus:

    python -m train.prepare --dataset=table --path=all.csv --genera=0.1 --out=sample.csv

If a command that was stopped is given again, it copies only what is missing of ImageNet-LT and
Pl@ntNet-300K, and all of another data set. Nothing is installed, and nothing but CIFAR-100 is
downloaded.

For your own images, ImageNet-LT and Pl@ntNet-300K, --shard=i/n checks and copies one share of the
images, and --merge makes the data set of all shares. Tasks of a job array or of srun do so without
a flag.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import tensorflow_datasets as tfds
from absl import flags, logging

from train.data import DATASET_NAME, DATASETS, DatasetFamily, builders, find, prepared_files
from train.data.builders import ReadOnlyBuilder
from train.data.own import folders, image_records, tables, tfds_images
from train.data.own.determinations import Reading
from train.data.own.found_images import FoundImages
from train.data.own.tfds_images import PREFIX
from train.data.preparing import genus_table, records_writer
from train.foundation import (
    command_line,
    fields,
    flag_rules,
    flag_types,
    folder_lock,
    import_paths,
    interruption,
    names,
)
from train.foundation.console import show_line
from train.foundation.errors import UserError
from train.foundation.flag_rules import Flag, Needed, Together
from train.foundation.messages import in_words
from train.foundation.spelling import flags_for_fields
from train.sharing import kinds, share_flags
from train.sharing.share_flags import NOT_SHARED, ChosenShare
from train.sharing.sharing import WritesPart, taking_part
from train.sharing.work import PartWritten
from train.workdir import output_files

_DATASET = flags.DEFINE_string(
    "dataset",
    None,
    f"Needed. The data set: one of {', '.join(DATASETS)}, or tfds:NAME for one of "
    "tensorflow-datasets.",
)
_PATH = flags.DEFINE_string("path", None, "the folder of images, or the table.")
_OUT = flags.DEFINE_string(
    "out",
    None,
    "the new folder that the records are written to; with --genera the new table, a .csv file.",
)
_GENERA = flags.DEFINE_float(
    "genera",
    None,
    "the share of the genera that are drawn: a table is written of all their species with more "
    "than 4 images, divided by the rule of Pl@ntNet-300K (whose share is 0.1). It has all columns "
    "of the given table, such as authors and licences.",
)
_SEED = flag_types.define_integer("seed", "the seed of the draw; by default 0.", lower_bound=0)
_TAXONOMY = flags.DEFINE_string(
    "taxonomy",
    None,
    "where the genera are from: a table of classes and their ranks, or first_word for the first "
    "words of the names; by default the column genus, or with --nested the folders.",
)
_NESTED = flags.DEFINE_boolean("nested", False, "whether each folder with images is a class.")
_GROUP = flags.DEFINE_string(
    "group", None, "the column of the groups; by default the column group of a table that has one."
)
_DATA_DIR = flags.DEFINE_string(
    "data_dir",
    None,
    "The folder of prepared data sets; by default the environment variable TFDS_DATA_DIR, or "
    "else ~/tensorflow_datasets.",
)
_MANUAL_DIR = flags.DEFINE_string(
    "manual_dir",
    None,
    "The folder with the downloaded archives, or with what was in them; by default "
    "downloads/manual below the data directory.",
)
_SKIP_UNREADABLE = flags.DEFINE_boolean(
    "skip_unreadable",
    False,
    "Whether images that cannot be decoded are left out and counted; otherwise they end the "
    "preparation. If tfds prepares the data set, images are not checked.",
)


_SHARE = share_flags.define()

# Finds images at a path, given whether each folder with images is a class, and the column of the
# groups.
_OWN_IMAGES: Mapping[str, Callable[[Path, bool, str | None], FoundImages]] = {
    "folder": lambda path, nested, _group: folders.find(path, nested=nested),
    "table": lambda path, _nested, group: tables.find(path, reading=Reading.of_group(group)),
}


def _check_name(name: str) -> str | None:
    """What the name of a data set must be instead; None if it is fine."""
    return None if name.startswith(PREFIX) else DATASET_NAME(name)


_OWN = tuple(f"dataset={name}" for name in _OWN_IMAGES)
_ROWS = flag_rules.declare(
    Needed(("dataset",), f"one of {', '.join(DATASETS)}, or tfds:NAME"),
    Flag("dataset", _check_name),
    *(Flag(flag.name, fields.text("a folder")) for flag in (_DATA_DIR, _MANUAL_DIR)),
    *(Flag(flag.name, fields.text("a path"), _OWN) for flag in (_PATH, _OUT)),
    Flag("nested", needs=("dataset=folder",)),
    Flag(
        "group",
        fields.text("a column"),
        ("dataset=table",),
        because="a run on the records of a folder chooses its groups",
    ),
    Flag("genera", fields.Number(above=0, at_most=1), needs=("path",)),
    Flag(
        "genera",
        excludes=("skip_unreadable",),
        because="images are listed, and not read",
    ),
    Flag("seed", needs=("genera",)),
    Flag(
        "taxonomy",
        fields.text(),
        needs=("genera",),
        because="a run on records has config.dataset.taxonomy",
    ),
    Together(("path", "out")),
    *(
        Flag(flag.name, excludes=("path",), because="your own images are not among prepared ones")
        for flag in (_DATA_DIR, _MANUAL_DIR)
    ),
    *share_flags.ROWS,
)


@flags_for_fields(
    {
        f"config.dataset.{flag.name}": f"--{flag.name}"
        for flag in (_PATH, _NESTED, _GROUP, _TAXONOMY)
    }
)
def main() -> None:
    """Prepares the data set that the flags name."""
    flag_rules.check(_ROWS)
    assert _DATASET.value is not None
    if _PATH.value is not None and _OUT.value is not None:
        if _GENERA.value is not None:
            _SHARE().refuse("--genera, whose table one process writes")
            write_sample(
                _DATASET.value,
                Path(_PATH.value),
                Path(_OUT.value),
                share=_GENERA.value,
                seed=_SEED.value or 0,
                taxonomy=_TAXONOMY.value,
                nested=_NESTED.value,
                group=_GROUP.value,
            )
            return
        write_records(
            _DATASET.value,
            Path(_PATH.value),
            Path(_OUT.value),
            nested=_NESTED.value,
            group=_GROUP.value,
            skip_unreadable=_SKIP_UNREADABLE.value,
            shared=_SHARE(),
        )
        return
    # Below errors, tfds reports that a new folder is empty.
    logging.set_verbosity(logging.ERROR)
    prepare(
        _DATASET.value,
        data_dir=_DATA_DIR.value,
        manual_dir=_MANUAL_DIR.value,
        skip_unreadable=_SKIP_UNREADABLE.value,
        shared=_SHARE(),
    )


def prepare(
    name: str,
    *,
    data_dir: str | None,
    manual_dir: str | None,
    skip_unreadable: bool,
    shared: ChosenShare = NOT_SHARED,
) -> None:
    """Prepares a data set, unless it is prepared already, and prints what is in it.

    Args:
        name: as on the command line.
        data_dir: the folder of prepared data sets; `None` for tfds's own default.
        manual_dir: the folder with what was downloaded; `None` for tfds's own default.
        skip_unreadable: whether images that cannot be decoded are left out.
        shared: how this process takes part in the work.
    """
    family = _family(name)
    if family.builder is None:
        optional = "; --path and --out write them as records" if name in _OWN_IMAGES else ""
        raise UserError(
            f"--dataset={name} needs no preparation: its files are read in place{optional}"
        )
    if not family.shares_preparation:
        shared.refuse(f"--dataset={name}, which one process prepares")
        shared = NOT_SHARED
    builder = builders.make_builder(family.builder, data_dir, name=name)
    output_files.refuse_folders_of_the_system("data_dir", Path(builder.data_dir), is_folder=True)
    if builder.is_prepared():
        prepared_files.check_files(builder)
        show_line(f"{name} is prepared already, in {builder.data_dir}")
        return
    downloaded = (
        Path(manual_dir).expanduser().absolute()
        if manual_dir is not None
        else Path(builder.data_dir).parents[1] / "downloads" / "manual"
    )
    begins = "continues from here" if isinstance(builder, ReadOnlyBuilder) else "starts over"
    try:
        with interruption.explained(f"the same command {begins}"):
            skipped = _write(family, builder, downloaded, shared, skip_unreadable=skip_unreadable)
    except PartWritten:
        return
    _summarize(name, builder, skipped)


def write_records(
    name: str,
    path: Path,
    out: Path,
    *,
    nested: bool,
    group: str | None = None,
    skip_unreadable: bool = False,
    shared: ChosenShare = NOT_SHARED,
) -> None:
    """Writes the images of a folder or a table as records, unless they are written already.

    Args:
        name: "folder" or "table".
        path: the folder or the table.
        out: the folder for the records.
        nested: whether each folder with images is a class.
        group: the column of a table with the groups; None for `group`, if there is one.
        skip_unreadable: whether images that cannot be decoded are left out.
        shared: how this process takes part in the work.

    Raises:
        UserError: there are no such images, or some cannot be decoded, or the folder has something
            else in it.
    """
    path = names.existing(path.expanduser().absolute())
    out = out.expanduser().absolute()
    found = _OWN_IMAGES[name](path, nested, group)
    output_files.refuse_folders_of_the_system("out", out, is_folder=True)
    if Path(os.path.realpath(out)).is_relative_to(path.resolve()):
        raise UserError(f"--out must not be in the folder of the images; got {out}")
    if image_records.are_at(out):
        records = image_records.read(out)
        if records.is_of(found.listing, nested=nested, group=group):
            if now := records_writer.readable(found, records.left_out):
                raise UserError(
                    f"--out {out} lacks images that can be read now: {in_words(now, 'images')}; "
                    "delete it, or give another"
                )
            show_line(f"the images of {path} are prepared already, in {out}")
            return
        raise UserError(f"--out {out} has records of other images; delete it, or give another")
    # The records get the name of the folder in one step, which a link does not allow.
    if out.is_symlink() or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
        raise UserError(field="--out", must_be="a new folder, or an empty one", but=f"{out} is not")
    share = shared.share(
        out, lambda: kinds.of("prepare", inputs=found.state, places=("path", "out"))
    )
    begins = "continues from here" if isinstance(share, WritesPart) else "starts over"
    with interruption.explained(f"the same command {begins}"), taking_part(share) as part:
        left_out = records_writer.write(
            found,
            out,
            nested=nested,
            group=group,
            skip_unreadable=skip_unreadable,
            share=share,
        )
    if part.is_written:
        return
    classes = len(found.listing.class_names)
    number = len(found.listing) - len(left_out)
    if left_out:
        show_line(f"left out as unreadable: {in_words(left_out, 'images')}")
    show_line(f"{path}: {classes:,} classes, {number:,} images; prepared in {out}")


def write_sample(
    name: str,
    path: Path,
    out: Path,
    *,
    share: float,
    seed: int,
    taxonomy: str | None,
    nested: bool,
    group: str | None,
) -> None:
    """Writes a table of a sample of the images of a folder or a table, and prints what is in it.

    Args:
        name: "folder" or "table".
        path: the folder or the table.
        out: the new table.
        share: the share of the genera that are drawn.
        seed: the number that the draw is a function of.
        taxonomy: where the genera are from; None for the column of a table, or nested folders.
        nested: whether each folder with images is a class.
        group: the column of a table with the groups; None for `group`, if there is one.

    Raises:
        UserError: there are no such images, they are not enough for a sample, or the file is there
            already with something else in it.
    """
    path = names.existing(path.expanduser().absolute())
    out = out.expanduser().absolute()
    if out.suffix != ".csv":
        raise UserError(field="--out", must_be="a .csv file with --genera", got=out)
    output_files.checked("out", str(out), {path: "the given table"} if path.is_file() else {})
    source = (
        genus_table.of_folder(path, taxonomy=taxonomy, nested=nested)
        if name == "folder"
        else genus_table.of_table(path, taxonomy=taxonomy, group=group)
    )
    genus_table.write(source, out, share=share, seed=seed)


def _family(name: str) -> DatasetFamily:
    """The data set of a name, as on the command line."""
    if not name.startswith(PREFIX):
        return find(name)
    return dataclasses.replace(
        find("tfds"),
        builder=functools.partial(tfds_images.open_by_name, name.removeprefix(PREFIX)),
        prepare="train.data.preparing.tfds_by_name:prepare",
    )


def _write(
    family: DatasetFamily,
    builder: tfds.core.DatasetBuilder,
    downloaded: Path,
    shared: ChosenShare,
    *,
    skip_unreadable: bool,
) -> Mapping[str, int]:
    """Writes the files, and returns the numbers of images left out, by split."""
    if family.prepare is None:
        with folder_lock.held(Path(builder.data_dir).parent, "another preparation"):
            builders.generate(builder)
        return {}
    write = import_paths.load(family.prepare)
    # A function of another package may not take shares.
    how = {"shared": shared} if family.shares_preparation else {}
    skipped: Mapping[str, int] = write(builder, downloaded, skip_unreadable=skip_unreadable, **how)
    return skipped


def _summarize(name: str, builder: tfds.core.DatasetBuilder, skipped: Mapping[str, int]) -> None:
    splits = builder.info.splits
    counts = ", ".join(f"{splits[split].num_examples:,} {split}" for split in splits)
    features = builder.info.features
    _, label = tfds_images.image_and_label(features, name)
    show_line(f"{name}: {features[label].num_classes:,} classes; images: {counts}")
    if any(skipped.values()):
        left_out = ", ".join(f"{number:,} {split}" for split, number in skipped.items())
        show_line(f"left out as unreadable: {left_out}")
    show_line(f"prepared in {builder.data_dir}")


if __name__ == "__main__":
    command_line.run(main)
