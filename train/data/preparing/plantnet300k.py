"""Writes Pl@ntNet-300K, versions 1.1 and 2: photographs of plants, in one folder per species.

Version 1.1 is one archive, `plantnet_300K.zip`, with `images/{train,val,test}/SPECIES/HASH.jpg` and
two JSON files. Version 2 is `images.zip` with the same layout, and two CSV files beside it. Both
may also be unpacked. The class index is the rank of the species' folder among the names sorted as
strings, as in torchvision's `ImageFolder`. The identifiers of the species are in classes.json.
"""

import csv
import functools
import io
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeVar

from train.data.plantnet300k import Plantnet, Plantnet300k, Plantnet300kV2
from train.data.preparing import dataset_writer
from train.data.preparing.dataset_writer import Contents
from train.data.preparing.shards import Example
from train.data.preparing.sources import FolderSource, ZipSource, absent
from train.foundation.errors import UserError
from train.sharing.share_flags import NOT_SHARED, ChosenShare

# The names of the splits in the archives, and ours.
SPLITS = {"train": "train", "val": "validation", "test": "test"}
_IMAGE = re.compile(r"(?P<root>(?:.*/)?)(?P<split>train|val|test)/(?P<species>[^/]+)/(?P<file>.*)")
_Parsed = TypeVar("_Parsed")
_SUFFIXES = (".jpg", ".jpeg", ".png")


@dataclass(frozen=True)
class Species:
    """The metadata of a species."""

    name: str
    genus: str


class Photograph(NamedTuple):
    """What the metadata have for an image; empty texts for what they lack."""

    organ: str = ""
    author: str = ""
    license: str = ""

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "Photograph":
        """The image with some fields of the metadata."""
        # Images share their organs, authors and licences.
        return cls(*(sys.intern(str(fields.get(name) or "").strip()) for name in cls._fields))


_SAID = frozenset(Photograph._fields)


def _species_from_json(text: str) -> dict[str, Species]:
    """Version 1.1: species by their folders."""
    return {
        folder: Species(" ".join(name.split()), name.split()[0])
        for folder, name in json.loads(text).items()
    }


def _images_from_json(text: str) -> dict[str, Photograph]:
    """Version 1.1: the metadata of each image."""

    def described(fields: dict[str, Any]) -> Photograph | dict[str, Any]:
        # Few fields of an image are kept while the file is read: there are 306,146 images.
        return Photograph.of(fields) if _SAID & fields.keys() else fields

    found = json.loads(text, object_hook=described)
    return {image: one for image, one in found.items() if isinstance(one, Photograph)}


def _species_from_csv(text: str) -> dict[str, Species]:
    """Version 2, whose folders are the species' numbers with four digits: species by them."""
    return {
        f"{int(row['species_id']):04d}": Species(row["full_species"], row["genus"])
        for row in csv.DictReader(io.StringIO(text))
    }


def _images_from_csv(text: str) -> dict[str, Photograph]:
    """Version 2: the metadata of each image."""
    return {row["PN_hash"]: Photograph.of(row) for row in csv.DictReader(io.StringIO(text))}


@dataclass(frozen=True)
class Download:
    """The files of a published version.

    Attributes:
        builder: the builder of the version.
        archive: the name of the zip file.
        size: its size, for people.
        species_file: the metadata file on species.
        images_file: the metadata file on images.
        metadata_in_archive: whether the two metadata files are in the archive; otherwise they are
            beside it.
        read_species: the content of the first to species by the names of their folders.
        read_images: the content of the second to what it says of images, by their names without the
            suffix.
        md5: the published MD5 checksum of the archive, if known.
    """

    builder: type[Plantnet]
    archive: str
    size: str
    species_file: str
    images_file: str
    metadata_in_archive: bool
    read_species: Callable[[str], dict[str, Species]]
    read_images: Callable[[str], dict[str, Photograph]]
    md5: str | None = None


_DOWNLOADS = (
    Download(
        Plantnet300k,
        archive="plantnet_300K.zip",
        size="31.7 GB",
        md5="db27d149f2a6c304b887353c07021687",
        species_file="plantnet300K_species_id_2_name.json",
        images_file="plantnet300K_metadata.json",
        metadata_in_archive=True,
        read_species=_species_from_json,
        read_images=_images_from_json,
    ),
    Download(
        Plantnet300kV2,
        archive="images.zip",
        size="41.8 GB",
        species_file="species_metadata.csv",
        images_file="plantnet300K_metadata.csv",
        metadata_in_archive=False,
        read_species=_species_from_csv,
        read_images=_images_from_csv,
    ),
)


def prepare(
    builder: Plantnet,
    manual_dir: Path,
    *,
    skip_unreadable: bool,
    shared: ChosenShare = NOT_SHARED,
) -> dict[str, int]:
    """Writes a version, and returns the numbers of images left out, by split.

    Args:
        builder: the builder of the version.
        manual_dir: the folder with the archive, or with what was in it.
        skip_unreadable: whether images that cannot be decoded are left out.
        shared: how this process takes part in the work.
    """
    (download,) = (one for one in _DOWNLOADS if one.builder.name == builder.name)
    contents = list_images(download, manual_dir)
    return dataset_writer.write(builder, contents, skip_unreadable=skip_unreadable, shared=shared)


def list_images(download: Download, manual_dir: Path) -> Contents:
    """Lists the images of a version, and checks that it is that version and complete.

    Args:
        download: the files of the version.
        manual_dir: the folder with the archive, or with what was in it.

    Raises:
        UserError: there is nothing to read, or it is another version, or a species lacks images.
    """
    source, root = _find(download, manual_dir)
    found = _list_images(source.paths(), root)
    folders = sorted({folder for split in found.values() for folder in split})
    parent = source.where(root)
    _check_count(download.builder, len(folders), parent)
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
    species, images = _read_metadata(download, source, root, manual_dir)
    unnamed = [folder for folder in folders if folder not in species]
    if unnamed:
        raise UserError(
            f"{download.species_file} has no name for the species {unnamed[0]} of {parent}"
        )
    labels = {folder: label for label, folder in enumerate(folders)}
    return Contents(
        splits={
            SPLITS[split]: [
                Example(
                    path,
                    labels[folder],
                    {
                        "organ": _said(images, path).organ,
                        "file_name": path.removeprefix(root),
                    },
                    (_said(images, path).author, _said(images, path).license),
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


def _said(images: Mapping[str, Photograph], path: str) -> Photograph:
    """The metadata of the image of a file."""
    return images.get(PurePosixPath(path).stem, Photograph())


def _find(download: Download, manual_dir: Path) -> tuple[ZipSource | FolderSource, str]:
    """The archive or the folder with the splits, and the path of the splits in it."""
    # The archive of the other version too: its message is clearer than a missing archive.
    for candidate in (download, *_DOWNLOADS):
        archive = manual_dir / candidate.archive
        if archive.is_file():
            checksum = "" if candidate.md5 is None else f"; its MD5 checksum is {candidate.md5}"
            hint = f"download it again from {candidate.builder.URL}{checksum}"
            source = ZipSource(archive, hint=hint)
            return source, _root_in_archive(source, archive)
    for folder in ("images", "images/images", ".", "plantnet_300K/images"):
        # A single folder called `train` or `test` may be anything.
        if sum((manual_dir / folder / split).is_dir() for split in SPLITS) > 1:
            return FolderSource(manual_dir / folder), ""
    needed = [f"{download.archive} ({download.size})"]
    if not download.metadata_in_archive:
        needed += [download.species_file, download.images_file]
    remedy = f"download {', '.join(needed)} from {download.builder.URL} into it, or unpack it there"
    raise absent([download.builder.TITLE], manual_dir, [remedy])


def _root_in_archive(source: ZipSource, archive: Path) -> str:
    matches = (_IMAGE.fullmatch(path) for path in source.paths())
    # The folder that macOS adds to an archive looks like a second copy.
    roots = {match["root"] for match in matches if match and not match["root"].startswith("__")}
    if len(roots) != 1:
        raise UserError(
            f"{archive} must have one folder with train, val and test, and in each a folder a "
            f"species; it has {len(roots)} such folders"
        )
    return roots.pop()


def _list_images(paths: Iterable[str], root: str) -> dict[str, dict[str, list[str]]]:
    """The images by split and species folder, with empty folders."""
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


def _check_count(builder: type[Plantnet], count: int, where: str) -> None:
    if count == builder.NUM_CLASSES:
        return
    others = [
        f": that is {other.builder.TITLE}, --dataset={other.builder.name}"
        for other in _DOWNLOADS
        if count == other.builder.NUM_CLASSES
    ]
    raise UserError(
        f"{where} has {count:,} species, and {builder.TITLE} has {builder.NUM_CLASSES:,}"
        f"{''.join(others)}"
    )


def _read_metadata(
    download: Download, source: ZipSource | FolderSource, root: str, manual_dir: Path
) -> tuple[dict[str, Species], dict[str, Photograph]]:
    find = functools.partial(_find_metadata, source=source, root=root, manual_dir=manual_dir)
    species, images = find(download.species_file), find(download.images_file)
    if species is None or images is None:
        files = {download.species_file: species, download.images_file: images}
        remedy = f"published with {download.builder.TITLE} at {download.builder.URL}"
        if download.metadata_in_archive:
            remedy += f", in {download.archive}"
        raise absent([name for name, read in files.items() if read is None], manual_dir, [remedy])
    return (
        _parse(download.species_file, species, download.read_species),
        _parse(download.images_file, images, download.read_images),
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
    """A function that reads a file beside the images, above them, or beside the archive."""
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
    """The names of the species, which tfds wants distinct: a shared name gets its folder too."""
    counts = Counter(species[folder].name for folder in folders)
    return [
        species[folder].name
        if counts[species[folder].name] == 1
        else f"{species[folder].name} [{folder}]"
        for folder in folders
    ]
