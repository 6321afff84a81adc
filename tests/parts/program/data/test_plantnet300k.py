"""Pl@ntNet-300K from archives in the published layout: what is stored, and what is refused."""

import json

import numpy as np
import pytest
import tensorflow_datasets as tfds

from tests.parts.program import bombs
from tests.parts.program.data import archives, small
from train import prepare
from train.data.plantnet300k import Plantnet300k, Plantnet300kV2
from train.data.prepared_files import split_labels
from train.foundation.errors import UserError


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    small.shrink(monkeypatch.setattr)


def run(tmp_path, *, dataset="plantnet300k", skip_unreadable=False):
    """Prepares from tmp_path/manual into tmp_path/data and opens what is there."""
    prepare.prepare(
        dataset,
        data_dir=str(tmp_path / "data"),
        manual_dir=str(tmp_path / "manual"),
        skip_unreadable=skip_unreadable,
    )
    return opened(tmp_path, dataset)


def opened(tmp_path, dataset="plantnet300k"):
    builder = {"plantnet300k": Plantnet300k, "plantnet300k_v2": Plantnet300kV2}[dataset]
    return builder(data_dir=str(tmp_path / "data"), file_format="array_record")


def examples(builder, split):
    source = builder.as_data_source(split, decoders={"image": tfds.decode.SkipDecoding()})
    return [source[index] for index in range(len(source))]


def test_names_and_genera_are_kept_by_class(tmp_path):
    files = small.plantnet(tmp_path / "manual")
    builder = run(tmp_path)
    names = json.loads(files["plantnet_300K/plantnet300K_species_id_2_name.json"])
    classes = json.loads((tmp_path / "data/plantnet300k/1.1.0/classes.json").read_text())
    assert [one["species_id"] for one in classes] == sorted(names)
    assert [one["name"] for one in classes] == [names[one["species_id"]] for one in classes]
    assert all(one["genus"] == one["name"].split(" ")[0] for one in classes)
    # Two species have the same name in this archive, and tfds wants distinct names.
    labels = builder.info.features["label"].names
    shared = f"{names[small.SPECIES[0]]} [{small.SPECIES[0]}]"
    assert shared in labels
    assert [label.partition(" [")[0] for label in labels] == [one["name"] for one in classes]


@pytest.mark.parametrize("place", ["plantnet_300K/images", "."])
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
    first = examples(builder, "train")[0]
    assert (first["label"], first["organ"]) in {
        (0, organ) for organ in (b"flower", b"leaf", b"habit")
    }
    classes = json.loads((tmp_path / "data/plantnet300k_v2/2.0.0/classes.json").read_text())
    assert classes[3] == {
        "species_id": "0003",
        "name": "Genus3 species3 (L.) Mill.",
        "genus": "Genus3",
    }


def test_either_version_given_for_the_other_is_refused_by_its_count(tmp_path):
    archives.plantnet_v2(tmp_path / "manual", num_species=small.NUM_CLASSES_V2)
    with pytest.raises(
        UserError,
        match=r"images.zip has 4 species, and .* 1\.1 has 6: that is "
        r"Pl@ntNet-300K version 2, --dataset=plantnet300k_v2",
    ):
        run(tmp_path)
    small.plantnet(tmp_path / "other/manual")
    with pytest.raises(UserError, match=r"has 6 species, and .* version 2 has 4: .* 1\.1"):
        run(tmp_path / "other", dataset="plantnet300k_v2")


FIRST = f"plantnet_300K/images/train/{small.SPECIES[0]}"
ONLY = f"plantnet_300K/images/val/{small.SPECIES[2]}"
# What is done to the files of the archive, and what the message must have in it.
BAD = {
    "truncated image": (
        lambda files: {**files, f"{FIRST}/a.jpg": archives.jpeg(0)[:-9]},
        rf"{FIRST}/a\.jpg in .*plantnet_300K\.zip is damaged \(.*truncated.*--skip_unreadable",
    ),
    "text named .jpg": (
        lambda files: {**files, f"{FIRST}/a.jpg": b"404 not found"},
        rf"{FIRST}/a\.jpg in .* is neither a JPEG nor a PNG image",
    ),
    "species without an image in one split": (
        lambda files: {
            **{path: file for path, file in files.items() if ONLY not in path},
            f"{ONLY}/.DS_Store": b"",
        },
        rf"{ONLY} in .* is empty; every species needs images",
    ),
    "no metadata": (
        lambda files: {path: file for path, file in files.items() if "json" not in path},
        r"not have plantnet300K_species_id_2_name\.json and plantnet300K_metadata\.json: published",
    ),
    "one name missing": (
        lambda files: {
            **files,
            "plantnet_300K/plantnet300K_species_id_2_name.json": b'{"900000": "Rosa canina L."}',
        },
        r"plantnet300K_species_id_2_name\.json has no name for the species",
    ),
    "damaged metadata": (
        lambda files: {**files, "plantnet_300K/plantnet300K_metadata.json": b'{"a": '},
        r"plantnet300K_metadata\.json is damaged, .* \(JSONDecodeError",
    ),
    "no splits": (
        lambda files: {path.replace("images/", "images_"): file for path, file in files.items()},
        r"must have one folder with train, val and test, .* it has 0",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_archive_is_refused_by_name(tmp_path, case):
    change, message = BAD[case]
    files = change(small.plantnet(tmp_path / "manual"))
    archives.write_zip(tmp_path / "manual/plantnet_300K.zip", files)
    with pytest.raises(UserError, match=message) as caught:
        run(tmp_path)
    assert "\n" not in str(caught.value)
    assert not opened(tmp_path).is_prepared()


def test_a_damaged_byte_anywhere_in_an_image_is_found_by_its_checksum(tmp_path):
    # The last byte before the end marker: most of the picture would look as before.
    files = small.plantnet(tmp_path / "manual")
    archive = tmp_path / "manual/plantnet_300K.zip"
    image = files[sorted(path for path in files if path.endswith(".jpg"))[-1]]
    content = archive.read_bytes()
    place = content.rindex(image) + len(image) - 3
    archive.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    with pytest.raises(
        UserError,
        match=r"is damaged: .* CRC-32 [0-9a-f]{8}; download it again "
        r"from https://zenodo.org/records/5645731; its MD5 checksum is db27d149",
    ):
        # Damage of the archive is not an image that cannot be read: nothing skips it.
        run(tmp_path, skip_unreadable=True)


def test_images_that_are_the_same_bytes_of_the_archive_are_refused(tmp_path):
    files = small.plantnet(tmp_path / "manual")
    archive = tmp_path / "manual/plantnet_300K.zip"
    member = next(path for path in files if path.endswith(".jpg"))
    archive.write_bytes(bombs.same_bytes(archive.read_bytes(), member))
    with pytest.raises(
        UserError, match=r"is not a complete zip archive .*in it overlaps another of its"
    ):
        run(tmp_path)


def test_an_image_has_the_organ_that_is_said_or_none(tmp_path):
    files = small.plantnet(tmp_path / "manual")
    where = "plantnet_300K/plantnet300K_metadata.json"
    metadata = json.loads(files[where])
    changed = {image: {"license": "cc0"} for image in list(metadata)[::2]}
    files[where] = json.dumps(metadata | changed).encode()
    archives.write_zip(tmp_path / "manual/plantnet_300K.zip", files)
    for example in examples(run(tmp_path), "train"):
        image = example["file_name"].decode().split("/")[2].removesuffix(".jpg")
        assert example["organ"].decode() == ("" if image in changed else metadata[image]["organ"])


def test_unreadable_images_are_left_out_and_counted_if_asked(tmp_path, capsys):
    files = small.plantnet(tmp_path / "manual")
    bad = {f"{FIRST}/0.jpg": b"text", f"{FIRST}/z.jpg": archives.jpeg(1)[:200]}
    archives.write_zip(tmp_path / "manual/plantnet_300K.zip", {**files, **bad})
    builder = run(tmp_path, skip_unreadable=True)
    found = [example["file_name"].decode() for example in examples(builder, "train")]
    assert sorted(f"plantnet_300K/images/{path}" for path in found) == sorted(
        path for path in files if "images/train/" in path
    )
    np.testing.assert_array_equal(
        split_labels(builder, "train"), [one["label"] for one in examples(builder, "train")]
    )
    assert "left out as unreadable: 2 train, 0 validation, 0 test" in capsys.readouterr().out
