"""What one does before a run: find wrong labels, plan for a machine, prepare a data set."""

import collections
import csv
import io
import itertools
import json
import re
import zipfile

import numpy as np
import pytest
from PIL import Image

from tests.promises.commands import chips_of_this_machine, line, ok, run
from train import data

CLASSES, WIDTH = 6, 100


def test_an_audit_finds_planted_labels_and_a_run_leaves_them_out(tmp_path):
    rng = np.random.default_rng(1)
    number, wrong = 240, 12
    truth = np.arange(number) % CLASSES
    centres = rng.normal(size=(CLASSES, WIDTH)) / 2
    features = (centres[truth] + rng.normal(size=(number, WIDTH))).astype(np.float32)
    labels, planted = truth.copy(), rng.choice(number, wrong, replace=False)
    labels[planted] = (truth[planted] + rng.integers(1, CLASSES, wrong)) % CLASSES
    # A class of one row is in no other fold.
    labels[0], planted = CLASSES, np.setdiff1d(planted, [0])
    split = np.array(["train", "train", "val", "test"])[np.arange(number) // CLASSES % 4]
    split[0] = "train"
    names = np.array([f'a "{index}",\nb' for index in range(number)])
    path, table = tmp_path / "planted.npz", tmp_path / "audit.csv"
    np.savez(path, features=features, labels=labels, split=split, names=names)
    config = {"config": "configs/features.py", "fields": {"dataset.path": path}}
    ended = ok(line("audit", **config, out=table, json=tmp_path / "audit.json"))
    rows = list(csv.DictReader(io.StringIO(table.read_text("utf-8-sig"), newline="")))
    assert sorted(row["name"] for row in rows) == sorted(names)
    index_of = {name: index for index, name in enumerate(names)}
    order = [index_of[row["name"]] for row in rows]
    assert [row["label"] for row in rows] == [str(labels[index]) for index in order]
    assert {*planted} <= {*order[: wrong + 3]}
    assert (rows[-1]["rank"], order[-1]) == ("", 0)
    judged = rows[:-1]
    assert [row["rank"] for row in judged] == [str(rank) for rank in range(1, number)]
    margins = [float(row["margin"]) for row in judged]
    assert margins == sorted(margins)
    agree = np.mean([row["label"] == row["likely"] for row in judged])
    told = json.loads((tmp_path / "audit.json").read_text())
    assert (told["not_judged"], told["accuracy"]) == (1, pytest.approx(agree))
    assert f"agree with {100 * agree:.1f} % of the labels" in ended.out
    counts = [
        told["wrong"],
        *(sum(one["wrong"] for one in told[of]) for of in ("classes", "pairs")),
    ]
    assert counts == pytest.approx([len(planted)] * 3, abs=3)
    # The table is read back: the least plausible rows are left out.
    for row in rows[: wrong + 3]:
        row["correction"] = "-"
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    left = [index_of[row["name"]] for row in rows if not row["correction"]]
    config["fields"] |= {"dataset.corrections": table, "dataset.batch_size": 8, "num_epochs": 1}
    config["fields"] |= {"eval.ks": "(1,)", "select_by": "top_1_accuracy"}
    ok(line("main", **config, workdir=tmp_path / "corrected"))
    classes = json.loads((tmp_path / "corrected" / "classes.json").read_text())
    trained = collections.Counter(labels[index] for index in left if split[index] == "train")
    assert [one["training_images"] for one in classes] == [
        trained[one] for one in range(CLASSES + 1)
    ]


def test_a_plan_has_the_bytes_of_the_step_and_the_largest_batch_that_fits(tmp_path):
    width, classes, batch, chips, memory = 300, 50, 256, 4, 2_000_000
    rng = np.random.default_rng(0)
    features = rng.normal(size=(8 * batch, width)).astype(np.float32)
    np.savez(tmp_path / "wide.npz", features=features, labels=np.arange(len(features)) % classes)

    def plan(size, *, largest):
        fields = {"dataset.path": tmp_path / "wide.npz", "dataset.batch_size": size}
        with chips_of_this_machine(chips, memory):
            given = {"config": "configs/features.py", "device": "here", "fields": fields}
            printed = ok(line("plan", **given, largest=largest)).out
        rows = re.findall(r"^ +([\d,]+) kB  (.+)$", printed, re.M)
        return {words: int(number.replace(",", "")) for number, words in rows}, printed

    parts, printed = plan(batch, largest=True)
    kept = 4 * (width + 1) * classes
    given = batch // chips * 4 * (width + 2) + 4
    assert parts["parameters"] == parts["state of the optimizer"] == kept // 1000
    assert (parts["batch"], parts["batches of the next steps"]) == (
        given // 1000,
        4 * given // 1000,
    )
    # The features of a chip's examples are standardized, and their logits are there.
    assert parts["activations, gradients and what else is temporary"] > given // 1000
    assert sum(parts.values()) - 2 * parts["at once"] == pytest.approx(0, abs=len(parts))
    found = re.search(r"fits is about ([\d,]+), ([\d,]+) for each.* ([\d,]+) do not fit", printed)
    fitting, each, too_large = (int(number.replace(",", "")) for number in found.groups())
    assert batch < fitting == each * chips < too_large <= fitting * 9 / 8
    for size, fits in ((fitting, True), (too_large, False)):
        parts, printed = plan(size, largest=False)
        assert (parts["at once"] <= memory // 1000, "does not fit" not in printed) == (fits, fits)


def test_a_preparation_has_the_images_of_the_archive_and_is_made_once(tmp_path):
    # As many as the archive has, and by their names as texts, not as numbers.
    species = sorted(str(number) for number in (13, 900, *range(1000, 1000 + 1079)))
    files, told = {}, {}
    for (index, one), split in itertools.product(enumerate(species), ("train", "val", "test")):
        for copy in range(2 if split == "test" and index % 100 == 0 else 1):
            name = f"{index:020x}{len(split):010x}{copy:010x}"
            files[f"{split}/{one}/{name}.jpg"] = jpeg(len(files) % 7)
            told[name] = {"species_id": one, "split": split, "organ": "leaf", "obs_id": name}
            told[name] |= {"author": f"A. {index}", "license": "cc-by-sa"}
    texts = {
        "metadata": told,
        "species_id_2_name": {one: f"Genus species{one} L." for one in species},
    }
    (tmp_path / "manual").mkdir()
    with zipfile.ZipFile(tmp_path / "manual" / "plantnet_300K.zip", "w") as archive:
        for name, content in texts.items():
            archive.writestr(f"plantnet_300K/plantnet300K_{name}.json", json.dumps(content))
        for name, content in files.items():
            archive.writestr(f"plantnet_300K/images/{name}", content)
    given = {
        "dataset": "plantnet300k",
        "manual_dir": tmp_path / "manual",
        "data_dir": tmp_path / "prepared",
    }
    ok(line("prepare", **given))
    before = contents_of(tmp_path / "prepared")
    ok(line("prepare", **given))
    assert contents_of(tmp_path / "prepared") == before
    spec = data.read({"name": "plantnet300k", "batch_size": 1, "num_workers": 0})
    found = spec.load(str(tmp_path / "prepared"))
    assert list(found.class_names) == [f"Genus species{one} L." for one in species]
    for split, of_split in (
        ("train", found.train),
        ("val", found.validation),
        ("test", found.test),
    ):
        expected = collections.Counter(
            (species.index(name.split("/")[1]), content)
            for name, content in files.items()
            if name.startswith(split)
        )
        images = [of_split.encoded(index) for index in range(len(of_split))]
        assert collections.Counter(zip(of_split.labels.tolist(), images, strict=True)) == expected
        assert of_split.credit(0) == f"A. {of_split.labels[0]}, cc-by-sa"


def test_a_preparation_names_the_files_that_it_needs_and_leaves_nothing(tmp_path):
    (tmp_path / "manual").mkdir()
    for dataset, needed in (
        ("plantnet300k", "plantnet_300K.zip"),
        ("plantnet300k_v2", "species_metadata.csv"),
        ("imagenet", "ILSVRC2012_img_train.tar"),
    ):
        for manual in (tmp_path / "manual", tmp_path / "nowhere"):
            given = {"dataset": dataset, "manual_dir": manual, "data_dir": tmp_path / "prepared"}
            ended = run(line("prepare", **given))
            assert ended.code == 2, ended
            (told,) = ended.err.splitlines()
            assert f"--manual_dir={manual}" in told
            assert needed in told
    assert contents_of(tmp_path / "prepared") == []


def jpeg(seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (8, 8, 3)).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG")
    return file.getvalue()


def contents_of(folder):
    """What each file has, and when it was written."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [(path, path.stat().st_mtime_ns, path.read_bytes()) for path in files]
