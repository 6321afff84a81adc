"""Tiny archives of every data set in the layout and the byte format in which it is published."""

import csv
import functools
import io
import json
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds
from PIL import Image

SPLITS = ("train", "val", "test")


@functools.cache
def jpeg(seed: int = 0, size: int = 16) -> bytes:
    """A random photograph: smooth, with some noise."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (4, 4, 3), np.uint8))
    smooth = np.asarray(coarse.resize((size, size), Image.Resampling.BICUBIC), np.int32)
    pixels = np.clip(smooth + rng.integers(-9, 10, smooth.shape), 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=90)
    return file.getvalue()


def images_of(species: Iterable[str], per_species: dict[str, int]) -> dict[str, bytes]:
    """JPEG files by path, as `val/1355868/HASH.jpg`; they share a few photographs."""
    files = {}
    for number, name in enumerate(species):
        for split, count in per_species.items():
            for index in range(count):
                digest = f"{number:08x}{SPLITS.index(split):04x}{index:028x}"
                files[f"{split}/{name}/{digest}.jpg"] = jpeg((number + index) % 50)
    return files


def plantnet_files(images: dict[str, bytes]) -> dict[str, bytes]:
    """All files of version 1.1 by their paths in plantnet_300K.zip."""
    names = {
        name: f"Genus{int(name) % 7} species{name} (L.) Mill."
        for name in {path.split("/")[1] for path in images}
    }
    metadata = {
        Path(path).stem: {
            "species_id": path.split("/")[1],
            "obs_id": str(number),
            "organ": ("flower", "leaf", "bark")[number % 3],
            "author": f"A. Nonymous {number % 5}",
            "license": ("cc-by-sa", "cc-by-nc")[number % 2],
            "split": path.split("/")[0],
        }
        for number, path in enumerate(sorted(images))
    }
    return {
        "plantnet_300K/plantnet300K_species_id_2_name.json": json.dumps(names).encode(),
        "plantnet_300K/plantnet300K_metadata.json": json.dumps(metadata).encode(),
        **{f"plantnet_300K/images/{path}": content for path, content in images.items()},
    }


def plantnet_v2_tables(images: dict[str, bytes]) -> dict[str, bytes]:
    """The two CSV files that are published beside version 2's images.zip."""
    rows = [
        {
            "species_id": int(path.split("/")[1]),
            "PN_observation_id": number,
            "organ": ("flower", "leaf", "habit")[number % 3],
            "author": f'Someone, "S." {number % 5}',
            "license": "cc-by-nc",
            "split": path.split("/")[0],
            "PN_hash": Path(path).stem,
        }
        for number, path in enumerate(sorted(images))
    ]
    species = [
        {
            "species_id": number,
            "full_species": f"Genus{number % 7} species{number} (L.) Mill.",
            "species": f"Genus{number % 7} species{number}",
            "iucn_status": "LC",
        }
        for number in sorted({row["species_id"] for row in rows})
    ]
    return {"plantnet300K_metadata.csv": _csv(rows), "species_metadata.csv": _csv(species)}


def _csv(rows: list[dict]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows([rows[0].keys(), *(row.values() for row in rows)])
    return text.getvalue().encode()


def write_zip(path: Path, files: dict[str, bytes]) -> Path:
    """A zip archive with folder entries, as common tools write it."""
    names = {f"{parent}/" for name in files for parent in Path(name).parents if str(parent) != "."}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for folder in sorted(names):
            archive.writestr(folder, b"")
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def write_folder(path: Path, files: dict[str, bytes]) -> Path:
    """The files below a folder."""
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def plantnet_zip(folder: Path) -> Path:
    """Version 1.1's archive in a folder, with an image of each species in each split."""
    folder.mkdir(parents=True, exist_ok=True)
    # Identifiers of several lengths: their order as numbers is not the texts'.
    species = [str(9 * 10**5 + 10**4 * number) for number in range(1081)]
    images = images_of(species, dict.fromkeys(SPLITS, 1))
    return write_zip(folder / "plantnet_300K.zip", plantnet_files(images))


def plantnet_v2(folder: Path, *, num_species: int = 1000) -> Path:
    """Version 2's archive in a folder, and its tables beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    species = [f"{number:04d}" for number in range(num_species)]
    images = images_of(species, dict.fromkeys(SPLITS, 1))
    write_folder(folder, plantnet_v2_tables(images))
    packed = {f"images/{path}": content for path, content in images.items()}
    return write_zip(folder / "images.zip", packed)


@functools.cache
def synsets() -> tuple[str, ...]:
    """ImageNet's classes by their WordNet names, in order."""
    names = tfds.core.tfds_path("datasets/imagenet2012/labels.txt")
    return tuple(names.read_text().split())


def imagenet_lt(folder: Path) -> Path:
    """ImageNet-LT's three lists, and the images they name: 2, 1 and 1 of each class."""
    files = {}
    lines: dict[str, list[str]] = {split: [] for split in SPLITS}
    for label, synset in enumerate(synsets()):
        for split, part, name in (
            ("train", "train", f"{synset}_190.JPEG"),
            ("train", "train", f"{synset}_7.JPEG"),
            ("val", "train", f"{synset}_2378.JPEG"),
            ("test", "val", f"ILSVRC2012_val_{label + 1:08d}.JPEG"),
        ):
            path = f"{part}/{synset}/{name}"
            files[path] = jpeg(label % 50)
            lines[split].append(f"{path} {label}\n")
    lists = {f"ImageNet_LT_{split}.txt": "".join(lines[split]).encode() for split in SPLITS}
    return write_folder(folder, {**files, **lists})


def imagenet_tars(folder: Path, *, num_classes: int, num_validation: int) -> None:
    """ImageNet's archive of archives, two images a class, and the first validation images."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / "ILSVRC2012_img_train.tar", "w") as archive:
        for label, synset in enumerate(synsets()[:num_classes]):
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as images:
                for index in range(2):
                    _add(images, f"{synset}_{index}.JPEG", jpeg(label + index))
            _add(archive, f"{synset}.tar", inner.getvalue())
    with tarfile.open(folder / "ILSVRC2012_img_val.tar", "w") as archive:
        for number in range(num_validation):
            _add(archive, f"ILSVRC2012_val_{number + 1:08d}.JPEG", jpeg(number % 50))


def cifar100_tar(folder: Path, *, num_train: int, num_test: int) -> tuple[Path, dict]:
    """CIFAR-100's archive of binary records, and the arrays in it.

    A record is the superclass, the class, and 3,072 bytes of red, green and blue planes.
    """
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "cifar-100-binary.tar.gz"
    arrays = {}
    with tarfile.open(path, "w:gz") as archive:
        for split, size in (("train", num_train), ("test", num_test)):
            labels = rng.permutation(size).astype(np.uint8) % 100
            images = rng.integers(0, 256, (size, 3, 32, 32), np.uint8)
            records = np.column_stack([labels // 5, labels, images.reshape(size, -1)])
            _add(archive, f"cifar-100-binary/{split}.bin", records.tobytes())
            arrays[split] = (images.transpose(0, 2, 3, 1), labels)
        for kind, count in (("coarse", 20), ("fine", 100)):
            names = "".join(f"{kind}_{index:02d}\n" for index in range(count))
            _add(archive, f"cifar-100-binary/{kind}_label_names.txt", names.encode())
    return path, arrays


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))
