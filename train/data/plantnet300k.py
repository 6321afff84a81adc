"""Pl@ntNet-300K, versions 1.1 and 2: photographs of plants, labelled with the species.

Version 1.1 is one archive, with `images/{train,val,test}/SPECIES/HASH.jpg` and two JSON files.
Version 2 is an archive of the same layout, with two CSV files beside it. The archives may also be
unpacked. The class is the rank of the folder of its species among the names sorted as strings, as
in torchvision's `ImageFolder`.
"""

import csv
import functools
import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import tensorflow_datasets as tfds
from tensorflow_datasets.core.dataset_builder import FileReaderBuilder

from train.configuration.datasets import StreamedFields
from train.data import taxonomy
from train.data.dataset import DatasetFamily, DatasetSpec
from train.data.photographs import photograph_spec
from train.data.sources.tfds import FILE_FORMAT

# The names of the splits in the archives, and ours.
_SPLITS = {"train": "train", "val": "validation", "test": "test"}
_IMAGE = re.compile(
    r"(?:.*/)?images/(?P<name>(?P<split>train|val|test)/(?P<species>[^/.]+)/(?P<hash>[^/.]+)"
    r"\.(?i:jpe?g|png))"
)
# What is known of an image.
_SAID = ("organ", "author", "license")
# Some 100 MB of photographs.
_IMAGES_PER_SHARD = 1024
# Names of species by folder, and what is known of each image by its hash.
_Metadata = tuple[Mapping[str, str], Mapping[str, Mapping[str, Any]]]


class Plantnet300k(FileReaderBuilder):
    """Pl@ntNet-300K, version 1.1: 306,146 images of 1,081 species."""

    name = "plantnet300k"
    VERSION = tfds.core.Version("1.1.0")
    TITLE: ClassVar[str] = "Pl@ntNet-300K version 1.1"
    NUM_CLASSES: ClassVar[int] = 1081
    URL: ClassVar[str] = "https://zenodo.org/records/5645731"
    ARCHIVE: ClassVar[str] = "plantnet_300K.zip"
    MANUAL_DOWNLOAD_INSTRUCTIONS = (
        f"download {ARCHIVE} (31.7 GB, MD5 db27d149f2a6c304b887353c07021687) from {URL} into "
        "--manual_dir, or unpack it there"
    )

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description=f"{self.TITLE}: photographs of plants, labelled with the species.",
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(None, None, 3), dtype=np.uint8),
                    "label": tfds.features.ClassLabel(num_classes=self.NUM_CLASSES),
                    **{name: tfds.features.Text() for name in ("file_name", *_SAID)},
                }
            ),
            supervised_keys=("image", "label"),
            homepage=self.URL,
        )

    def _download_and_prepare(
        self, dl_manager: Any, download_config: tfds.download.DownloadConfig | None = None
    ) -> None:
        """Writes the images in the order of their paths.

        tfds's own order is of hashes. For more than 1 GB it needs TensorFlow, and twice the disk.
        """
        del download_config
        names, splits = self._examples(Path(dl_manager.manual_dir))
        info = self._info()  # With the folder of the unfinished files, unlike `self.info`.
        for one in (info, self.info):
            one.features["label"].names = names
        writer = tfds.core.SequentialWriter(info, _IMAGES_PER_SHARD, file_format=FILE_FORMAT)
        writer.initialize_splits([*splits])
        writer.add_examples(splits)
        writer.close_all()
        self.info.set_splits(info.splits)

    def _examples(self, folder: Path) -> tuple[list[str], dict[str, Iterator[dict[str, Any]]]]:
        """The names of the classes, and the examples of each split."""
        files = _files(folder, self.ARCHIVE)
        found = sorted(filter(None, map(_IMAGE.fullmatch, files)), key=lambda one: one["name"])
        species = sorted({one["species"] for one in found})
        if len(species) != self.NUM_CLASSES:
            raise ValueError(f"it has {len(species):,} species, and not {self.NUM_CLASSES:,}")
        labels = {one: label for label, one in enumerate(species)}
        names, images = self._metadata(functools.partial(_only, files))
        counts = Counter(names[one] for one in species)
        # tfds wants distinct names: a name that two species share gets the folder, too.
        class_names = [
            names[one] if counts[names[one]] == 1 else f"{names[one]} [{one}]" for one in species
        ]

        def examples(of_split: str) -> Iterator[dict[str, Any]]:
            for one in found:
                if one["split"] == of_split:
                    said = images.get(one["hash"], {})
                    yield {
                        # A file is stored as it is; TensorFlow would encode an array.
                        "image": io.BytesIO(files[one[0]]()),
                        "label": labels[one["species"]],
                        "file_name": one["name"],
                        **{key: str(said.get(key) or "") for key in _SAID},
                    }

        return class_names, {split: examples(of_split) for of_split, split in _SPLITS.items()}

    def _metadata(self, read: Callable[[str], bytes]) -> _Metadata:
        """The names of the species by their folders, and what is known of the images."""
        species = json.loads(read("plantnet300K_species_id_2_name.json"))
        images = json.loads(read("plantnet300K_metadata.json"))
        return {folder: " ".join(name.split()) for folder, name in species.items()}, images


class Plantnet300kV2(Plantnet300k):
    """Pl@ntNet-300K, version 2: 306,087 images of 1,000 species."""

    name = "plantnet300k_v2"
    VERSION = tfds.core.Version("2.0.0")
    TITLE = "Pl@ntNet-300K version 2"
    NUM_CLASSES = 1000
    URL = "https://zenodo.org/records/10419064"
    ARCHIVE = "images.zip"
    MANUAL_DOWNLOAD_INSTRUCTIONS = (
        f"download {ARCHIVE} (41.8 GB), species_metadata.csv and plantnet300K_metadata.csv from "
        f"{URL} into --manual_dir; the archive may be unpacked there"
    )

    def _metadata(self, read: Callable[[str], bytes]) -> _Metadata:
        def rows(name: str) -> Iterator[dict[str, str]]:
            return csv.DictReader(io.StringIO(read(name).decode("utf-8-sig")))

        # The folders are the numbers of the species with four digits.
        species = {
            f"{int(row['species_id']):04d}": row["full_species"]
            for row in rows("species_metadata.csv")
        }
        return species, {row["PN_hash"]: row for row in rows("plantnet300K_metadata.csv")}


def _files(folder: Path, archive: str) -> Mapping[str, Callable[[], bytes]]:
    """What reads each file by its path: in an archive and beside it, or in a folder."""
    packed = folder / archive
    found = folder.iterdir() if packed.exists() else folder.rglob("*")
    files = {path.relative_to(folder).as_posix(): path.read_bytes for path in found}
    if packed.exists():
        members = zipfile.ZipFile(packed)
        files |= {name: functools.partial(members.read, name) for name in members.namelist()}
    return files


def _only(files: Mapping[str, Callable[[], bytes]], name: str) -> bytes:
    """The content of a file that is there once."""
    found = [path for path in files if path.rpartition("/")[2] == name]
    if len(found) != 1:
        raise ValueError(f"it has {len(found)} files {name}, and not 1")
    return files[found[0]]()


def _family(builder: type[Plantnet300k]) -> DatasetFamily:
    def spec(fields: StreamedFields) -> DatasetSpec:
        return photograph_spec(
            fields,
            num_classes=builder.NUM_CLASSES,
            builder=builder,
            # Without flips, as in the published results.
            attribution=f"{builder.TITLE} ({builder.URL}), whose metadata have the author and the "
            "licence of each image",
            # The names of the species start with the genus.
            tree_of=taxonomy.first_words,
        )

    return DatasetFamily(spec, builder, fields=StreamedFields)


PLANTNET300K = _family(Plantnet300k)
PLANTNET300K_V2 = _family(Plantnet300kV2)
