"""Writes a sample of the user's own images as a table, which has all columns of their table."""

import csv
import dataclasses
import io
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from train.data.own import folders, genus_sample, group_splits, rank_table, table_columns, tables
from train.data.own.determinations import Reading
from train.data.own.encoded_images import NO_SIZE
from train.data.own.found_images import FoundImages
from train.data.own.genus_sample import GenusSample
from train.data.own.listing import Listing, Role
from train.data.own.table_columns import Columns, Table, TableKind
from train.foundation import files, ranks
from train.foundation.console import show_line
from train.foundation.errors import UserError
from train.foundation.names import in_utf8, same_form, shown
from train.foundation.spelling import spell

_GENUS = "genus"
_FIRST = ("path", "label", "split", _GENUS)
_TABLE: TableKind = dataclasses.replace(
    table_columns.IMAGES,
    known=(*table_columns.IMAGES.known, _GENUS),
    keeps_others=True,
)
_OTHERWISE = (
    "--taxonomy=TABLE gives the genera of the classes, and --taxonomy="
    f"{rank_table.FIRST_WORD} takes the first words of their names"
)
_SPLITS = {Role.TRAIN: "train", Role.VALIDATION: "val", Role.TEST: "test"}


@dataclasses.dataclass(frozen=True)
class Source:
    """The images that a sample is drawn from.

    Attributes:
        found: the images.
        genera: the genus of each class.
        columns: the other columns of the table, in its order, with a text for each image.
    """

    found: FoundImages
    genera: tuple[str, ...]
    columns: Columns


def of_table(table: Path, *, taxonomy: str | None, group: str | None) -> Source:
    """The images of a table with a column `genus`, or with a taxonomy of its classes.

    Args:
        table: the file.
        taxonomy: how `rank_table.read` finds the genera; None for the column.
        group: the column of the groups; None for `group`, if there is one.

    Raises:
        UserError: it is not a table of images without splits, or a class does not have one genus.
    """
    found = tables.find(table, reading=Reading.of_group(group))
    _check(found, has_splits=bool(found.listing.given))
    read = table_columns.read(table, _TABLE)
    columns = read.columns
    if taxonomy is not None:
        genera = _of_taxonomy(taxonomy, found.listing.class_names)
    elif _GENUS in columns:
        genera = _of_images(read, found)
    else:
        raise UserError(
            f"{found.where} must have a column {_GENUS}, to draw from; it has "
            f"{', '.join(map(repr, columns))}. {_OTHERWISE}"
        )
    others = {name: texts for name, texts in columns.items() if name not in _FIRST}
    return Source(found, genera, others)


def of_folder(folder: Path, *, taxonomy: str | None, nested: bool) -> Source:
    """The images of a folder with nested folders, or with a taxonomy of its classes.

    Raises:
        UserError: it is not a folder of images without splits, or a class does not have one genus.
    """
    found = folders.find(folder, nested=nested)
    # Without folders of splits, all images are given for training.
    _check(found, has_splits=found.listing.given != {Role.TRAIN})
    names = found.listing.class_names
    if taxonomy is not None:
        return Source(found, _of_taxonomy(taxonomy, names), {})
    above = ranks.folders(names)
    if above is None or not all(one[-1] for one in above.above):
        raise UserError(
            f"{found.where} must have folders of genera, with folders of species in them, and "
            f"{spell('config.dataset.nested=True')}. {_OTHERWISE}"
        )
    return Source(found, tuple("/".join(filter(None, one)) for one in above.above), {})


def write(source: Source, out: Path, *, share: float, seed: int) -> None:
    """Draws a sample and writes it as a table, unless it is written already.

    Args:
        source: the images.
        out: the new table.
        share: the share of the genera that are drawn.
        seed: what the draws are a function of.

    Raises:
        UserError: the images do not make a sample, or the file is there with another content.
    """
    listing = source.found.listing
    paths = [*map(in_utf8, listing.paths)]
    sample = genus_sample.draw(paths, listing.labels, source.genera, share=share, seed=seed)
    content = _to_csv(source, sample, out.parent)
    if out.exists():
        if not out.is_file() or out.read_bytes() != content:
            raise UserError(f"--out {out} has something else; delete it, or give another")
        show_line(f"the sample is written already, in {out}")
        return
    files.write_whole(out, content)
    kept = dataclasses.replace(listing.take(sample.images.tolist()), roles=sample.roles)
    group_splits.warn(kept, str(out), "image")
    _tell(source, sample, kept, out)


def _check(found: FoundImages, *, has_splits: bool) -> None:
    """Refuses images that have splits, and files that are missing, for they would be counted."""
    missing = np.flatnonzero(found.listing.sizes == NO_SIZE)
    if missing.size:
        raise UserError(
            f"{found.where} must list files that exist; {missing.size:,} of "
            f"{len(found.listing):,} are missing, the first of them "
            f"{shown(found.listing.paths[missing[0]])}"
        )
    if has_splits:
        raise UserError(
            f"{found.where} must have images without a split, which a sample of genera divides"
        )


def _of_taxonomy(taxonomy: str, class_names: Sequence[str]) -> tuple[str, ...]:
    above = rank_table.read(taxonomy, class_names).above
    for name, one in zip(class_names, above, strict=True):
        if not one[-1]:
            raise UserError(f"--taxonomy must give a genus of each class; {shown(name)} has none")
    return tuple(one[-1] for one in above)


def _of_images(table: Table, found: FoundImages) -> tuple[str, ...]:
    """The genus of each class, from the genera of the images."""
    rows: dict[int, int] = {}
    spelled: dict[str, str] = {}
    genera = [*map(same_form, table.columns[_GENUS])]
    names = found.listing.class_names
    for row, (genus, label) in enumerate(zip(genera, found.listing.labels.tolist(), strict=True)):
        if not genus:
            raise UserError(f"{table.at(row)}: the column {_GENUS} is empty")
        other = spelled.setdefault(genus.casefold(), genus)
        if other != genus:
            raise UserError(
                f"{found.where}: the column {_GENUS} has {shown(other)!r} and {shown(genus)!r}, "
                "which differ only in case"
            )
        first = rows.setdefault(label, row)
        if genera[first] != genus:
            raise UserError(
                f"{table.where}: {table.place(first)} and {table.place(row)} have the class "
                f"{shown(names[label])!r} in two genera, {shown(genera[first])} and "
                f"{shown(genus)}; the name of a species starts with its genus"
            )
    return tuple(genera[rows[label]] for label in range(len(names)))


def _to_csv(source: Source, sample: GenusSample, folder: Path) -> bytes:
    """The table of the sample; its paths are relative to the folder that it is in."""
    listing, root = source.found.listing, source.found.root
    moved = _moved(root, folder)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*_FIRST, *source.columns))
    for image, role in zip(sample.images.tolist(), sample.roles.tolist(), strict=True):
        label = int(listing.labels[image])
        cells = (
            in_utf8(moved(listing.paths[image])),
            in_utf8(listing.class_names[label]),
            _SPLITS[Role(role)],
            in_utf8(source.genera[label]),
        )
        others = (texts[image] for texts in source.columns.values())
        writer.writerow(map(table_columns.escaped, (*cells, *others)))
    return text.getvalue().encode()


def _moved(root: Path, folder: Path) -> Callable[[str], str]:
    """What makes a path below `root` one that is relative to `folder`; absolute paths stay."""
    # Links are followed: the system goes up from their targets.
    before = os.path.relpath(root.resolve(), folder.resolve())
    return lambda path: path if before == os.curdir else (Path(before) / path).as_posix()


def _tell(source: Source, sample: GenusSample, kept: Listing, out: Path) -> None:
    found = source.found.listing
    labels = np.unique(kept.labels)
    genera = len({source.genera[label] for label in labels.tolist()})
    of_all = _counts(len(set(source.genera)), len(found.class_names), len(found))
    show_line(f"{source.found.root}: {of_all}")
    show_line(f"drawn: {len(sample.genera):,} genera")
    if sample.num_few:
        show_line(
            f"left out, with {genus_sample.FEW} images or fewer: {sample.num_few:,} classes, "
            f"{sample.num_left_out:,} images"
        )
    show_line(f"kept: {_counts(genera, len(labels), len(kept))}")
    splits: Mapping[Role, int] = {role: len(kept.of_role(role)) for role in Role}
    words = ", ".join(f"{number:,} {_SPLITS[role]}" for role, number in splits.items())
    show_line(f"images: {words}")
    show_line(f"wrote {out}")


def _counts(genera: int, classes: int, images: int) -> str:
    return f"{genera:,} genera, {classes:,} classes, {images:,} images"
