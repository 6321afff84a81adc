"""Pl@ntNet-300K with few species and small shards, for tests in this process and in others."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.parts.program.data import archives
from train.data import plantnet300k
from train.data.plantnet300k import Plantnet300k, Plantnet300kV2

# Identifiers of five to eight digits, and two species of the same name.
SPECIES = ["1355868", "13558", "900000", "13558680", "1355990", "24"]
NUM_CLASSES_V2 = 4
PER_SPECIES = {"train": 5, "val": 1, "test": 2}


def shrink(setattr: Callable) -> None:  # noqa: A002 (as monkeypatch calls it)
    """Expects few species of both versions, and cuts splits into shards of eight images at most."""
    for builder, num_classes in ((Plantnet300k, len(SPECIES)), (Plantnet300kV2, NUM_CLASSES_V2)):
        setattr(builder, "NUM_CLASSES", num_classes)
    setattr(plantnet300k, "_IMAGES_PER_SHARD", 8)


def plantnet(folder: Path) -> dict[str, bytes]:
    """Writes plantnet_300K.zip into a folder, and returns the files in it."""
    folder.mkdir(parents=True, exist_ok=True)
    files = archives.plantnet_files(archives.images_of(SPECIES, PER_SPECIES))
    where = "plantnet_300K/plantnet300K_species_id_2_name.json"
    names = json.loads(files[where])
    names[SPECIES[0]] = names[SPECIES[1]]
    files[where] = json.dumps(names).encode()
    archives.write_zip(folder / "plantnet_300K.zip", files)
    return files
