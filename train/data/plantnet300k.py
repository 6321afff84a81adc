"""Pl@ntNet-300K, versions 1.1 and 2: photographs of plants, in a folder a species.

Version 1.1 is one archive, `plantnet_300K.zip`, with `images/{train,val,test}/SPECIES/HASH.jpg` and
two JSON files; version 2 is `images.zip`, laid out in the same way, with two CSV files beside it.
Each may also lie unpacked. The class index is the rank of the species' folder among the names as
texts, as torchvision's ImageFolder has it; the species' own identifiers are in classes.json.
"""

import csv
import functools
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import ClassVar, TypeVar

import numpy as np
import tensorflow_datasets as tfds

from train.data.preparing.dataset_writer import Contents, PreparedBuilder
from train.data.preparing.shards import Example
from train.data.preparing.sources import FolderSource, ZipSource, absent
from train.foundation.errors import UserError

# What the archives call the splits, and what we do.
SPLITS = {"train": "train", "val": "validation", "test": "test"}
_IMAGE = re.compile(r"(?P<root>(?:.*/)?)(?P<split>train|val|test)/(?P<species>[^/]+)/(?P<file>.*)")
_Parsed = TypeVar("_Parsed")
_SUFFIXES = (".jpg", ".jpeg", ".png")


@dataclass(frozen=True)
class Species:
    """What the metadata says of a species."""

    name: str
    genus: str


def _species_from_json(text: str) -> dict[str, Species]:
    """Version 1.1: species by their folders."""
    return {
        folder: Species(" ".join(name.split()), name.split()[0])
        for folder, name in json.loads(text).items()
    }


def _organs_from_json(text: str) -> dict[str, str]:
    """Version 1.1: organs by images."""
    kinds: dict[str, str] = {}

    def organ(fields: dict[str, str]) -> str | dict[str, str]:
        # Of the fields of an image only one is kept, while the file is read: there are 306,146.
        if "organ" not in fields:
            return fields
        return kinds.setdefault(fields["organ"], fields["organ"])

    organs = json.loads(text, object_hook=organ)
    return {image: organ for image, organ in organs.items() if isinstance(organ, str)}


def _species_from_csv(text: str) -> dict[str, Species]:
    """Version 2, whose folders are the species' numbers with four digits: species by them."""
    return {
        f"{int(row['species_id']):04d}": Species(row["full_species"], row["genus"])
        for row in csv.DictReader(io.StringIO(text))
    }


def _organs_from_csv(text: str) -> dict[str, str]:
    """Version 2: organs by images."""
    kinds: dict[str, str] = {}
    rows = csv.DictReader(io.StringIO(text))
    return {row["PN_hash"]: kinds.setdefault(row["organ"], row["organ"]) for row in rows}


@dataclass(frozen=True)
class Release:
    """A published version.

    Attributes:
        title: what messages call it.
        num_classes: the number of species.
        num_images: the number of images of all splits.
        archive: the name of the zip file.
        size: its size, for people.
        md5: its MD5 checksum as published, where known.
        url: where to download it.
        species_file: the metadata file on species.
        organs_file: the metadata file on images.
        metadata_in_archive: whether the archive has these two, which else lie beside it.
        read_species: the content of the one to species by the names of their folders.
        read_organs: the content of the other to organs by the names of images, without the suffix.
    """

    title: str
    num_classes: int
    num_images: int
    archive: str
    size: str
    url: str
    species_file: str
    organs_file: str
    metadata_in_archive: bool
    read_species: Callable[[str], dict[str, Species]]
    read_organs: Callable[[str], dict[str, str]]
    md5: str | None = None


class _Plantnet(PreparedBuilder):
    """What both versions share."""

    RELEASE: ClassVar[Release]

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description=f"{self.RELEASE.title}: photographs of plants, labelled with the species.",
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(None, None, 3), dtype=np.uint8),
                    "label": tfds.features.ClassLabel(num_classes=self.RELEASE.num_classes),
                    "organ": tfds.features.Text(),
                    "file_name": tfds.features.Text(),
                }
            ),
            supervised_keys=("image", "label"),
            homepage=self.RELEASE.url,
        )


class Plantnet300k(_Plantnet):
    """Pl@ntNet-300K, version 1.1: 306,146 images of 1,081 species."""

    name = "plantnet300k"
    VERSION = tfds.core.Version("1.1.0")
    RELEASE = Release(
        title="Pl@ntNet-300K version 1.1",
        num_classes=1081,
        num_images=306_146,
        archive="plantnet_300K.zip",
        size="31.7 GB",
        md5="db27d149f2a6c304b887353c07021687",
        url="https://zenodo.org/records/5645731",
        species_file="plantnet300K_species_id_2_name.json",
        organs_file="plantnet300K_metadata.json",
        metadata_in_archive=True,
        read_species=_species_from_json,
        read_organs=_organs_from_json,
    )


class Plantnet300kV2(_Plantnet):
    """Pl@ntNet-300K, version 2: 306,087 images of 1,000 species."""

    name = "plantnet300k_v2"
    VERSION = tfds.core.Version("2.0.0")
    RELEASE = Release(
        title="Pl@ntNet-300K version 2",
        num_classes=1000,
        num_images=306_087,
        archive="images.zip",
        size="41.8 GB",
        url="https://zenodo.org/records/10419064",
        species_file="species_metadata.csv",
        organs_file="plantnet300K_metadata.csv",
        metadata_in_archive=False,
        read_species=_species_from_csv,
        read_organs=_organs_from_csv,
    )


_BUILDERS: tuple[type[_Plantnet], ...] = (Plantnet300k, Plantnet300kV2)


def contents(builder: type[_Plantnet], manual_dir: Path) -> Contents:
    """Lists the images of a version, and checks that it is that version and complete.

    Args:
        builder: the version's builder.
        manual_dir: the folder with the archive, or with what was in it.

    Raises:
        UserError: there is nothing to read, or it is another version, or a species lacks images.
    """
    release = builder.RELEASE
    source, root = _find(release, manual_dir)
    found = _list_images(source.paths(), root)
    folders = sorted({folder for split in found.values() for folder in split})
    place = source.where(root)
    _check_count(builder, len(folders), place)
    for split, by_folder in found.items():
        if not by_folder:
            raise UserError(f"{source.where(f'{root}{split}')} is missing, or has no species in it")
        for folder in folders:
            if not by_folder.get(folder):
                state = "is empty" if folder in by_folder else "is missing"
                raise UserError(
                    f"the species folder {source.where(f'{root}{split}/{folder}')} {state}; every "
                    "species needs images in train, val and test"
                )
    species, organs = _read_metadata(release, source, root, manual_dir)
    unnamed = [folder for folder in folders if folder not in species]
    if unnamed:
        raise UserError(
            f"{release.species_file} has no name for the species {unnamed[0]} of {place}"
        )
    labels = {folder: label for label, folder in enumerate(folders)}
    return Contents(
        splits={
            SPLITS[split]: [
                Example(
                    path,
                    labels[folder],
                    {
                        "organ": organs.get(PurePosixPath(path).stem, ""),
                        "file_name": path.removeprefix(root),
                    },
                )
                for folder in folders
                for path in sorted(by_folder[folder])
            ]
            for split, by_folder in found.items()
        },
        class_names=_distinct(folders, species),
        classes=[
            {
                "species_id": folder,
                "name": species[folder].name,
                "genus": species[folder].genus,
            }
            for folder in folders
        ],
        source=source,
    )


def _find(release: Release, manual_dir: Path) -> tuple[ZipSource | FolderSource, str]:
    """The archive or the folder with the splits, and the path of the splits in it."""
    # The other version's archive too: what is said of it is clearer than that there is none.
    for candidate in (release, *(builder.RELEASE for builder in _BUILDERS)):
        archive = manual_dir / candidate.archive
        if archive.is_file():
            checksum = "" if candidate.md5 is None else f"; its MD5 checksum is {candidate.md5}"
            source = ZipSource(archive, hint=f"download it again from {candidate.url}{checksum}")
            return source, _root_in_archive(source, archive)
    for folder in ("images", "images/images", ".", "plantnet_300K/images"):
        # One folder, `train` or `test`, may be anything.
        if sum((manual_dir / folder / split).is_dir() for split in SPLITS) > 1:
            return FolderSource(manual_dir / folder), ""
    needed = [f"{release.archive} ({release.size})"]
    if not release.metadata_in_archive:
        needed += [release.species_file, release.organs_file]
    remedy = f"download {', '.join(needed)} from {release.url} into it, or unpack it there"
    raise absent([release.title], manual_dir, [remedy])


def _root_in_archive(source: ZipSource, archive: Path) -> str:
    matches = (_IMAGE.fullmatch(path) for path in source.paths())
    # What macOS adds to an archive looks like a second copy.
    roots = {match["root"] for match in matches if match and not match["root"].startswith("__")}
    if len(roots) != 1:
        raise UserError(
            f"{archive} must have one folder with train, val and test, and in each a folder a "
            f"species; it has {len(roots)} such folders"
        )
    return roots.pop()


def _list_images(paths: Iterable[str], root: str) -> dict[str, dict[str, list[str]]]:
    """The images by split and species folder; empty folders are there too."""
    found: dict[str, dict[str, list[str]]] = {split: {} for split in SPLITS}
    for path in paths:
        match = _IMAGE.fullmatch(path)
        if match is None or match["root"] != root or match["species"].startswith("."):
            continue
        images = found[match["split"]].setdefault(match["species"], [])
        name = match["file"]
        if name.lower().endswith(_SUFFIXES) and not name.startswith(".") and "/" not in name:
            images.append(path)
    return found


def _check_count(builder: type[_Plantnet], count: int, place: str) -> None:
    release = builder.RELEASE
    if count == release.num_classes:
        return
    others = [
        f": that is {other.RELEASE.title}, --dataset={other.name}"
        for other in _BUILDERS
        if other.RELEASE.num_classes == count
    ]
    raise UserError(
        f"{place} has {count:,} species, and {release.title} has {release.num_classes:,}"
        f"{''.join(others)}"
    )


def _read_metadata(
    release: Release, source: ZipSource | FolderSource, root: str, manual_dir: Path
) -> tuple[dict[str, Species], dict[str, str]]:
    find = functools.partial(_find_metadata, source=source, root=root, manual_dir=manual_dir)
    species, organs = find(release.species_file), find(release.organs_file)
    if species is None or organs is None:
        files = {release.species_file: species, release.organs_file: organs}
        remedy = f"published with {release.title} at {release.url}"
        if release.metadata_in_archive:
            remedy += f", in {release.archive}"
        raise absent([name for name, read in files.items() if read is None], manual_dir, [remedy])
    return (
        _parse(release.species_file, species, release.read_species),
        _parse(release.organs_file, organs, release.read_organs),
    )


def _parse(name: str, read: Callable[[], bytes], parser: Callable[[str], _Parsed]) -> _Parsed:
    content = read()
    try:
        return parser(content.decode("utf-8-sig"))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(
            f"{name} is damaged, or not as it was published ({type(error).__name__}: {error})"
        ) from error


def _find_metadata(
    name: str, source: ZipSource | FolderSource, root: str, manual_dir: Path
) -> Callable[[], bytes] | None:
    """Reads a file among the images, in a folder above them, or beside the archive."""
    if isinstance(source, ZipSource):
        members = set(source.paths())
        within = PurePosixPath(root)
        for member in (str(above / name) for above in (within, *within.parents)):
            if member in members:
                return functools.partial(source.read, member)
    for folder in (manual_dir, manual_dir / "plantnet_300K", manual_dir.parent):
        if (folder / name).is_file():
            return (folder / name).read_bytes
    return None


def _distinct(folders: Sequence[str], species: Mapping[str, Species]) -> list[str]:
    """The species' names, with the folder where several have the same: tfds wants them distinct."""
    counts = Counter(species[folder].name for folder in folders)
    return [
        species[folder].name
        if counts[species[folder].name] == 1
        else f"{species[folder].name} [{folder}]"
        for folder in folders
    ]
