"""Pl@ntNet-300K from archives in the published layout: what is stored, and what is refused."""

import json

import pytest
import tensorflow_datasets as tfds

from tests.parts.program.data import archives, small
from train import prepare
from train.data.plantnet300k import Plantnet300k
from train.data.sources import tfds as prepared
from train.foundation.errors import UserError

METADATA = "plantnet_300K/plantnet300K_metadata.json"
NAMES = "plantnet_300K/plantnet300K_species_id_2_name.json"
IMAGES = "plantnet_300K/images"


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The files of an archive of few species."""
    small.shrink(monkeypatch.setattr)
    return small.plantnet(tmp_path / "manual")


def run(folder):
    """Prepares from a folder's manual into its data and opens what is there."""
    given = {"data_dir": f"{folder}/data", "manual_dir": f"{folder}/manual"}
    prepare.prepare("plantnet300k", **given)
    return opened(folder)


def opened(folder):
    return Plantnet300k(data_dir=f"{folder}/data", file_format="array_record")


def examples(builder, split):
    source = builder.as_data_source(split, decoders={"image": tfds.decode.SkipDecoding()})
    return [source[index] for index in range(len(source))]


def test_the_examples_are_in_the_order_of_their_paths_with_what_is_said_of_them(tmp_path, files):
    metadata, names = json.loads(files[METADATA]), json.loads(files[NAMES])
    # An image may have less.
    metadata[next(iter(metadata))] = {"obs_id": 3, "author": None}
    files[METADATA] = json.dumps(metadata).encode()
    archives.write_zip(tmp_path / "manual/plantnet_300K.zip", files)
    builder, folders = run(tmp_path), sorted(small.SPECIES)
    for split, folder in (("train", "train"), ("validation", "val"), ("test", "test")):
        paths = sorted(path for path in files if path.startswith(f"{IMAGES}/{folder}/"))
        found = examples(builder, split)
        assert [f"{IMAGES}/{example['file_name'].decode()}" for example in found] == paths
        for path, example in zip(paths, found, strict=True):
            species, name = path.split("/")[-2:]
            assert example["image"] == files[path]
            assert folders[example["label"]] == species
            said = metadata[name.removesuffix(".jpg")]
            for key in ("organ", "author", "license"):
                assert example[key].decode() == (said.get(key) or "")
        # They are shown beside the images.
        pairs = [(one["author"].decode(), one["license"].decode()) for one in found]
        shown = prepared.read(builder, split).credits
        assert shown.tolist() == [", ".join(filter(None, pair)) for pair in pairs]
    # Several files, as in the true archive.
    assert len(builder.info.splits["train"].filepaths) == 4
    # Species of one name have their folders too.
    found = builder.info.features["label"].names
    assert f"{names[small.SPECIES[0]]} [{small.SPECIES[0]}]" in found
    assert [name.partition(" [")[0] for name in found] == [names[one] for one in folders]


@pytest.mark.parametrize("place", [IMAGES, "images"])
def test_an_unpacked_archive_gives_the_same(tmp_path, files, place):
    moved = {path.replace(IMAGES, place): file for path, file in files.items()}
    archives.write_folder(tmp_path / "folder/manual", moved)
    assert examples(run(tmp_path / "folder"), "train") == examples(run(tmp_path), "train")


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


def another_byte(content, image):
    # The last byte before the end marker: most of the picture would look as before.
    place = content.rindex(image) + len(image) - 3
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


# What is done to the bytes of the archive.
DAMAGED = {
    "another byte": (lambda content, files, last: another_byte(content, files[last]), "Bad CRC-32"),
}


@pytest.mark.parametrize("case", [*BAD, *DAMAGED])
def test_a_bad_archive_is_refused_in_a_line_that_says_what_to_download(tmp_path, files, case):
    change, message = (BAD | DAMAGED)[case]
    archive = tmp_path / "manual/plantnet_300K.zip"
    if case in BAD:
        archives.write_zip(archive, change(files))
    else:
        archive.write_bytes(change(archive.read_bytes(), files, max(without(files, "json"))))
    with pytest.raises(UserError, match=message) as caught:
        run(tmp_path)
    assert "\n" not in str(caught.value)
    assert "--manual_dir" in str(caught.value)
    assert "https://zenodo.org/records/5645731" in str(caught.value)
    assert not opened(tmp_path).is_prepared()
    assert list((tmp_path / "data/plantnet300k").iterdir()) == []
