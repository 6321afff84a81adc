"""Pl@ntNet-300K from archives in the published layout: what is stored, and what is refused."""

import json

import pytest
import tensorflow_datasets as tfds

from tests.parts.program import bombs
from tests.parts.program.data import archives, small
from train import prepare
from train.data.plantnet300k import Plantnet300k, Plantnet300kV2
from train.data.sources import tfds as prepared
from train.foundation.errors import UserError

METADATA = "plantnet_300K/plantnet300K_metadata.json"
NAMES = "plantnet_300K/plantnet300K_species_id_2_name.json"


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    small.shrink(monkeypatch.setattr)


def run(tmp_path, *, dataset="plantnet300k"):
    """Prepares from tmp_path/manual into tmp_path/data and opens what is there."""
    manual, data = tmp_path / "manual", tmp_path / "data"
    prepare.prepare(dataset, data_dir=str(data), manual_dir=str(manual))
    return opened(tmp_path, dataset)


def opened(tmp_path, dataset="plantnet300k"):
    builder = {"plantnet300k": Plantnet300k, "plantnet300k_v2": Plantnet300kV2}[dataset]
    return builder(data_dir=str(tmp_path / "data"), file_format="array_record")


def examples(builder, split):
    source = builder.as_data_source(split, decoders={"image": tfds.decode.SkipDecoding()})
    return [source[index] for index in range(len(source))]


def test_the_examples_are_in_the_order_of_their_paths_with_what_is_said_of_them(tmp_path):
    files = small.plantnet(tmp_path / "manual")
    metadata, folders = json.loads(files[METADATA]), sorted(small.SPECIES)
    # An image may have less.
    silent = next(iter(metadata))
    metadata[silent] = {"obs_id": 3, "author": None}
    files[METADATA] = json.dumps(metadata).encode()
    archives.write_zip(tmp_path / "manual/plantnet_300K.zip", files)
    builder = run(tmp_path)
    for split, folder in (("train", "train"), ("validation", "val"), ("test", "test")):
        start = "plantnet_300K/images/"
        paths = sorted(path for path in files if path.startswith(f"{start}{folder}/"))
        found = examples(builder, split)
        assert [f"{start}{example['file_name'].decode()}" for example in found] == paths
        for path, example in zip(paths, found, strict=True):
            species, name = path.split("/")[-2:]
            assert example["image"] == files[path]
            assert folders[example["label"]] == species
            said = metadata[name.removesuffix(".jpg")]
            for key in ("organ", "author", "license"):
                assert example[key].decode() == (said.get(key) or "")
        # They are shown beside the images.
        shown = prepared.read(builder, split).credits
        pairs = [(one["author"].decode(), one["license"].decode()) for one in found]
        assert shown.tolist() == [", ".join(filter(None, pair)) for pair in pairs]
    # Several files, as in the true archive.
    assert len(builder.info.splits["train"].filepaths) == 4


def test_species_of_one_name_have_their_folders_too(tmp_path):
    names = json.loads(small.plantnet(tmp_path / "manual")[NAMES])
    found = run(tmp_path).info.features["label"].names
    assert f"{names[small.SPECIES[0]]} [{small.SPECIES[0]}]" in found
    assert [name.partition(" [")[0] for name in found] == [
        names[folder] for folder in sorted(names)
    ]


@pytest.mark.parametrize("place", ["plantnet_300K/images", "images"])
def test_an_unpacked_archive_gives_the_same(tmp_path, place):
    files = small.plantnet(tmp_path / "manual")
    expected = examples(run(tmp_path), "train")
    moved = {path.replace("plantnet_300K/images", place): file for path, file in files.items()}
    archives.write_folder(tmp_path / "folder/manual", moved)
    assert examples(run(tmp_path / "folder"), "train") == expected


def test_version_2_has_its_tables_beside_the_archive(tmp_path):
    archives.plantnet_v2(tmp_path / "manual", num_species=small.NUM_CLASSES_V2)
    builder = run(tmp_path, dataset="plantnet300k_v2")
    assert builder.info.features["label"].names[3] == "Genus3 species3 (L.) Mill."
    assert {example["organ"] for example in examples(builder, "train")} > {b"leaf"}


def without(files, word):
    return {path: file for path, file in files.items() if word not in path}


# What is done to the files of the archive, and what the message must have in it.
BAD = {
    "a species less": (lambda files: without(files, small.SPECIES[2]), "it has 5 species, .* 6;"),
    "no metadata": (lambda files: without(files, "json"), "0 files plantnet300K_species_id_2_name"),
    "a name less": (lambda files: {**files, NAMES: b'{"900000": "Rosa"}'}, "KeyError: '13558'"),
    "damaged metadata": (lambda files: {**files, METADATA: b'{"a": '}, "JSONDecodeError"),
    "no splits": (
        lambda files: {path.replace("images/", "images_"): file for path, file in files.items()},
        "it has 0 species",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_archive_is_refused_in_a_line_that_says_what_to_download(tmp_path, case):
    change, message = BAD[case]
    files = change(small.plantnet(tmp_path / "manual"))
    archives.write_zip(tmp_path / "manual/plantnet_300K.zip", files)
    refused(tmp_path, message)


def refused(tmp_path, message):
    with pytest.raises(UserError, match=message) as caught:
        run(tmp_path)
    assert "\n" not in str(caught.value)
    assert "--manual_dir" in str(caught.value)
    assert "https://zenodo.org/records/5645731" in str(caught.value)
    assert not opened(tmp_path).is_prepared()
    assert list((tmp_path / "data/plantnet300k").iterdir()) == []


def test_a_damaged_byte_anywhere_in_an_image_is_found_by_its_checksum(tmp_path):
    # The last byte before the end marker: most of the picture would look as before.
    files = small.plantnet(tmp_path / "manual")
    archive = tmp_path / "manual/plantnet_300K.zip"
    image = files[sorted(path for path in files if path.endswith(".jpg"))[-1]]
    content = archive.read_bytes()
    place = content.rindex(image) + len(image) - 3
    archive.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    refused(tmp_path, "Bad CRC-32 for file")


def test_images_that_are_the_same_bytes_of_the_archive_are_refused(tmp_path):
    files = small.plantnet(tmp_path / "manual")
    archive = tmp_path / "manual/plantnet_300K.zip"
    member = next(path for path in files if path.endswith(".jpg"))
    archive.write_bytes(bombs.same_bytes(archive.read_bytes(), member))
    refused(tmp_path, "overlaps another of its")
