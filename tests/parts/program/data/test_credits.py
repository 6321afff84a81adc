"""Authors and licences: kept beside their images, and shown with them."""

import csv
import dataclasses
import json
import types

import numpy as np
import pytest
from PIL import Image

from tests.parts.program.data import archives, small
from tests.parts.program.data.own import divided, pictures
from tests.parts.program.prediction.test_error_page import table_of
from tests.parts.program.prediction.test_model_card import classifier, read
from tests.parts.program.prediction.test_predict_page import EVIL, FACTS, Outline, image_set
from tests.parts.program.prediction.test_similar_examples import rows  # noqa: F401 (a fixture)
from train import prepare
from train.configuration.datasets import StreamedFields
from train.data.credits import Credits
from train.data.own import run_images, tables
from train.data.own.listing import ListedFiles, Role
from train.data.plantnet300k import PLANTNET300K, PLANTNET300K_V2
from train.foundation import files
from train.prediction import error_page, html_page
from train.prediction.calibrated_rule import CalibratedRule
from train.prediction.class_sets import Similar
from train.prediction.similar_examples import TrainingFeatures
from train.prediction.thumbnails import Thumbnail

FAMILIES = {"plantnet300k": PLANTNET300K, "plantnet300k_v2": PLANTNET300K_V2}
METADATA = "plantnet_300K/plantnet300K_metadata.json"


@pytest.fixture
def _small(monkeypatch):
    small.shrink(monkeypatch.setattr)


def prepared(root, name):
    prepare.prepare(name, data_dir=str(root / "data"), manual_dir=str(root / "manual"))
    fields = StreamedFields(name=name, batch_size=4)
    return FAMILIES[name].spec(fields).load(str(root / "data"))


def said_of(metadata, split):
    """What the metadata say of each image of a prepared split."""
    stems = [
        split.images.file_name(index).split("/")[-1].removesuffix(".jpg")
        for index in range(len(split))
    ]
    return [f"{metadata[stem]['author']}, {metadata[stem]['license']}" for stem in stems]


@pytest.mark.usefixtures("_small")
def test_the_credits_of_plantnet_are_those_of_its_metadata(tmp_path):
    archives.plantnet_v2(tmp_path / "manual", num_species=small.NUM_CLASSES_V2)
    with (tmp_path / "manual/plantnet300K_metadata.csv").open(newline="") as file:
        metadata = {row["PN_hash"]: row for row in csv.DictReader(file)}
    dataset = prepared(tmp_path, "plantnet300k_v2")
    for split in (dataset.train, dataset.validation, dataset.test):
        found = [split.credit(index) for index in range(len(split))]
        assert found == said_of(metadata, split)
    assert len({dataset.train.credit(index) for index in range(len(dataset.train))}) > 2


@pytest.mark.usefixtures("_small")
def test_an_image_that_is_not_described_does_not_move_credits(tmp_path):
    archive = small.plantnet(tmp_path / "manual")
    metadata = json.loads(archive[METADATA])
    without = next(iter(metadata))
    metadata[without] = {"obs_id": "7", "author": None, "license": 5}
    archive[METADATA] = json.dumps(metadata).encode()
    archives.write_zip(tmp_path / "manual/plantnet_300K.zip", archive)
    dataset = prepared(tmp_path, "plantnet300k")
    metadata[without] |= {"author": "", "license": "5"}
    for split in (dataset.train, dataset.validation, dataset.test):
        expected = [one.removeprefix(", ") for one in said_of(metadata, split)]
        assert [split.credit(index) for index in range(len(split))] == expected


def write_table(root, header=("path", "label", "license", "author")):
    listed = [
        (f"{name}-{index}.png", name, f"cc-{index % 2}", f"{name} {index}" if index else "")
        for name in ("ash", "birch")
        for index in range(8)
    ]
    pictures.write(root, [path for path, *_ in listed])
    with (root / "photos.csv").open("w", newline="") as file:
        csv.writer(file).writerows([header, *listed])
    return {
        path: ", ".join(filter(None, (author, license_))) for path, _, license_, author in listed
    }


def test_a_table_may_have_them(tmp_path):
    expected = write_table(tmp_path)
    found = tables.find(tmp_path / "photos.csv").divided(divided.fields(0.25, 0.25))
    listing = found.listing.take(found.listing.of_role(Role.TRAIN).tolist()[::-1])
    assert [listing.credits.in_words(index) for index in range(len(listing))] == [
        expected[path] for path in listing.paths
    ]
    # Credits change no run.
    bare = dataclasses.replace(listing, credits=None)
    assert bare.digest() == listing.digest()


def test_an_image_that_is_gone_takes_its_credit_only(tmp_path):
    expected = write_table(tmp_path)
    fields = divided.fields(0.25, 0.25)
    before = tables.find(tmp_path / "photos.csv").divided(fields)
    listed = ListedFiles(before.digest, (10, 12, 3), before.listing)
    then = ListedFiles.from_plain(json.loads(files.to_json(listed.to_plain())))
    lines = (tmp_path / "photos.csv").read_text().splitlines()
    gone = lines.pop(3).split(",")[0]
    (tmp_path / "photos.csv").write_text("\n".join(lines))
    now = tables.find(tmp_path / "photos.csv")
    kept = run_images.of_run(now.divided(fields), then, None).listing
    assert kept.paths == before.listing.paths
    assert {path: kept.credits.in_words(index) for index, path in enumerate(kept.paths)} == {
        **expected,
        gone: "",
    }


def test_similar_images_have_theirs_on_the_page(rows, tmp_path):  # noqa: F811
    number = len(rows.train)
    credited = Credits.of_pairs([(f"{EVIL} {place}", "cc0") for place in range(number)])
    train = dataclasses.replace(rows.train, credits=credited)
    rows.load_dataset = lambda: types.SimpleNamespace(train=train)
    features = TrainingFeatures(rows)
    ((similar,),) = features.nearest([(3,)], features.features_of([np.ones(5, np.float32)]), 2)
    assert {one.credit for one in similar} == {f"{EVIL} {place}, cc0" for place in (58, 59)}
    thumbnail = Thumbnail.of(Image.new("RGB", (8, 8)))
    shown = Similar("a", 0.5, thumbnail, similar[0].credit), Similar("b", 0.4, thumbnail)
    entry = dataclasses.replace(image_set("a.png", {0: 0.6}), similar=(shown,))
    with html_page.writing(tmp_path / "page.html", FACTS) as page:
        page.add(entry)
    outline = Outline((tmp_path / "page.html").read_text())
    assert len([one for one in outline.all("small") if one.get("class") == "credit"]) == 1
    assert similar[0].credit in outline.text
    assert len(outline.all("script")) == 1


def test_the_page_of_errors_has_them(tmp_path):
    table = table_of(np.array(["a"] * 3, object), ["x", "y", "z"], number=3, num_classes=3)
    facts = error_page.ErrorPageFacts(
        "t", "s", "image", {}, (), lambda place: ["", "me, cc0", ""][place]
    )
    error_page.write(
        tmp_path / "a.html", table, facts, lambda _place: Thumbnail.of(Image.new("RGB", (8, 8)))
    )
    text = (tmp_path / "a.html").read_text()
    assert text.count("Author, licence") == text.count("me, cc0") == 1


def test_the_model_card_counts_licences():
    counts = Credits.of_pairs([("a", "cc-by*"), ("b", "cc-by*"), ("c", "")]).license_counts()
    card = read(classifier({"training_licenses": counts}), CalibratedRule("top_k", 2.0, None))
    assert "- licences of the training images: cc-by\\* (2), not known (1)" in card.text
    many = Credits.of_pairs([("", str(place)) for place in range(1000)])
    assert len(many.license_counts()) == 100
