"""One's own data of five kinds: what is found and divided, and what runs on it say of it.

The examples of all kinds are the same, so that all runs share a compiled step; those of images are
the same run.
"""

import functools
import json
import unicodedata

import numpy as np
import pytest
from PIL import Image

from tests import reference
from tests.promises import commands, own_data, recomputed
from tests.promises.own_data import CLASSES, KINDS, OF_IMAGES, SPLITS, counts, load, train
from train.data import look

PATTERN = r"(plant\d+)_"


# Runs.


@pytest.fixture(scope="module")
def examples():
    return own_data.given()


@pytest.fixture(scope="module")
def runs(examples, tmp_path_factory, run_seed):
    """The run of a kind of data, which is trained when it is first asked for."""

    @functools.cache
    def run(kind):
        root = tmp_path_factory.mktemp(kind.replace(" ", "_"))
        where = KINDS[kind](root, examples)
        changes = {"seed": run_seed}
        if kind == "table":
            with (root / "ranks.csv").open("w", encoding="utf-8") as file:
                file.write("species,family\nash,Oleaceae\noak,Fagaceae\nhêtre,Fagaceae\n")
            changes["dataset.taxonomy"] = root / "ranks.csv"
        return train(where, root / "run", **changes)

    return run


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_has_the_classes_and_the_examples_in_their_order(runs, examples, kind):
    run = runs(kind)
    of_test = examples.of("test")
    np.testing.assert_array_equal(run.scores["labels"], examples.labels[of_test])
    assert run.scores["class_names"].tolist() == list(CLASSES)
    assert run.scores["class_counts"].tolist() == [16] * 3
    known = [entry["name"] for entry in json.loads((run.workdir / "classes.json").read_text())]
    assert known == list(CLASSES)
    numbers = [run.results["evaluated"][split]["groups"]["all"] for split in SPLITS[1:]]
    assert numbers == [{"classes": 3, "examples": 24}] * 2
    if "names" in run.scores and kind in ("folder", "table", "features"):
        for name, index in zip(run.scores["names"], of_test, strict=True):
            assert unicodedata.normalize("NFC", name).endswith(examples.path(index))


@pytest.mark.parametrize("kind", KINDS)
def test_the_results_of_a_run_are_those_of_its_scores(runs, kind):
    run = runs(kind)
    scores, labels = run.scores["scores"].astype(np.float64), run.scores["labels"]
    of_label = scores[np.arange(len(labels)), labels]
    expected = {"loss": -np.log(of_label).mean()}
    for k in (1, 2):
        hits = reference.top_k_hits(run.scores["scores"], labels, k=k)
        expected[f"top_{k}_accuracy"] = hits.mean()
        macro = reference.tally_by_class(hits, labels, num_classes=3).macro_mean()
        expected[f"macro_top_{k}_accuracy"] = macro
    for name, value in expected.items():
        assert run.results["test"][name] == pytest.approx(value, rel=1e-5), name
    # The colours of the classes were learned, and a label is that of its picture.
    assert expected["top_1_accuracy"] > 0.6
    for text, found in run.report["sets"].items():
        chosen = recomputed.sets_of(text, run.scores["scores"], found.get("limit"))
        recomputed.check(found, recomputed.row(chosen, labels, run.scores["class_counts"]))


def test_the_same_images_make_the_same_classifier_in_every_kind(runs):
    made = [runs(kind) for kind in OF_IMAGES]
    assert len({run.results["parameters_digest"] for run in made}) == 1
    for run in made:
        np.testing.assert_array_equal(run.scores["scores"], made[0].scores["scores"])
    # Of two test images of the same pixels, one has the other's label.
    scores = made[0].scores["scores"]
    assert len(np.unique(scores, axis=0)) == len(scores) - 1


def test_accuracies_of_the_ranks_of_a_table_are_those_of_their_sums(runs):
    run = runs("table")
    known = json.loads((run.workdir / "classes.json").read_text())
    assert [entry["ranks"]["family"] for entry in known] == ["Oleaceae", "Fagaceae", "Fagaceae"]
    scores, labels = run.scores["scores"], run.scores["labels"]
    family = np.array([0, 1, 1])
    sums = np.stack([scores[:, 0], scores[:, 1] + scores[:, 2]], axis=1)
    right = reference.top_k_hits(sums, family[labels], k=1)
    assert run.report["ranks"]["family"]["nodes"] == 2
    assert run.report["ranks"]["family"]["top_k=1"] == pytest.approx(right.mean())
    answers = scores.argmax(axis=1)
    heights = np.where(family[answers] == family[labels], 1, 2)[answers != labels]
    assert run.report["mistake_height"] == pytest.approx(heights.mean())


# Splits.


@pytest.fixture(scope="module")
def plants():
    return own_data.grouped()


@pytest.fixture(scope="module")
def held_out(plants, tmp_path_factory):
    """Where the data of a kind are, of which no split is given."""

    @functools.cache
    def where(kind):
        root = tmp_path_factory.mktemp("plants")
        if kind == "table":
            return own_data.in_table(root, plants, "tree")
        return KINDS[kind](root, plants)

    return where


# The others have a column of groups.
@pytest.mark.parametrize("kind", ["folder", "table", "prepared files"])
def test_a_split_that_is_missing_has_its_part_of_each_class(held_out, kind, caplog):
    where = held_out(kind)
    assert counts(load(where)) == [[14] * 3, [3] * 3, [3] * 3]
    found = load(where, validation_fraction=0.5, test_fraction=0.25)
    assert counts(found) == [[5] * 3, [10] * 3, [5] * 3]
    # A row that a person has marked is left out, and counted.
    assert ("1 rows marked" in caplog.text) == (kind == "table")


GROUPS = {
    "folder": {"group": PATTERN},
    "table": {"group": "tree"},
    "Parquet files": {},
    "features": {},
}


@pytest.mark.parametrize("kind", GROUPS)
def test_no_group_is_in_two_splits(held_out, plants, kind):
    found = load(held_out(kind), **GROUPS[kind])
    splits_of, class_of, of_split = {}, {}, {}
    for split, part in found.splits.items():
        # Each picture that is alone is a group of its own.
        own = [
            name or f"{split} {place}" for place, name in zip(part.places, part.groups, strict=True)
        ]
        of_split[split] = own
        for name, label in zip(own, part.labels, strict=True):
            splits_of.setdefault(name, set()).add(split)
            class_of[name] = min(label, class_of.get(name, label))
    assert all(len(splits) == 1 for splits in splits_of.values())
    assert len(splits_of) == len(set(plants.groups)) - 1 + plants.groups.count("")
    assert np.sum(counts(found)) == len(plants.labels)
    for split in ("validation", "test"):
        # A group counts for the class of its first picture; plant 0 has pictures of two classes.
        classes = [class_of[name] for name in of_split[split]]
        of_each = np.bincount(classes, minlength=3)
        assert (of_each <= 3).all()
        assert of_each.sum() >= 6


def test_splits_of_a_folder_depend_on_the_names_alone(held_out, plants, tmp_path):
    def of_paths(where):
        found = load(where)
        return {name: split for split, part in found.splits.items() for name in part.names}

    before = of_paths(held_out("folder"))
    where = own_data.in_folder(tmp_path, plants)
    assert of_paths(where) == before
    picture = where["path"] / "oak" / "new.png"
    picture.write_bytes(plants.png(0))
    after = of_paths(where)
    # The new image takes the place of one in each split at most.
    assert sum(after[path] != split for path, split in before.items()) <= 2
    picture.unlink()
    # A given split stays as it is, and the other is held out of the training images.
    (where["path"] / "train").mkdir()
    for name in CLASSES:
        (where["path"] / name).rename(where["path"] / "train" / name)
    (where["path"] / "test" / "oak").mkdir(parents=True)
    for index in range(4):
        (where["path"] / "test" / "oak" / f"{index}.png").write_bytes(plants.png(index))
    assert counts(load(where)) == [[17] * 3, [3] * 3, [0, 0, 4]]


def test_a_folder_above_a_picture_can_be_its_group(tmp_path, plants):
    for index in range(len(plants.labels)):
        group = plants.groups[index] or f"alone {index}"
        path = tmp_path / CLASSES[plants.labels[index]] / group / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(plants.png(index))
    found = load({"name": "images", "path": tmp_path}, group="parent")
    assert found.class_names == CLASSES
    groups = [set(part.groups) for part in found.splits.values()]
    assert all(groups)
    assert sum(map(len, groups)) == len(set().union(*groups))
    # Nested folders are classes instead, if that is asked for.
    nested = load({"name": "images", "path": tmp_path}, nested=True)
    assert nested.class_names[0].startswith("ash/")
    assert nested.num_classes == sum(map(len, groups))


def test_a_folder_of_arrays_has_what_the_file_has(examples, runs, tmp_path):
    arrays = own_data.features(examples)
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    of_folder = load({"name": "features", "path": tmp_path})
    np.savez(tmp_path / "a.npz", **arrays)
    of_file = load({"name": "features", "path": tmp_path / "a.npz"})
    assert of_folder.digest == of_file.digest
    in_order = np.concatenate([part.rows(...) for part in of_file.splits.values()])
    np.testing.assert_array_equal(in_order, arrays["features"])
    of_train = arrays["features"][: 16 * 3].astype(np.float64)
    np.testing.assert_allclose(of_file.mean, of_train.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(of_file.std, of_train.std(axis=0), rtol=1e-5)


def test_likely_groups_that_splits_divide_are_told_by_names_of_features(examples, tmp_path, caplog):
    arrays = own_data.features(examples)
    del arrays["group"], arrays["split"]
    # Two of each, one after another.
    arrays["names"] = [
        f"{name}/obs{index // 2}_photo{index % 2 + 1}.jpg"
        for index, name in enumerate(arrays["labels"])
    ]
    np.savez(tmp_path / "a.npz", **arrays)
    where = {"name": "features", "path": tmp_path / "a.npz"}
    load(where)
    (told,) = [one for one in caplog.messages if "look like those of groups" in one]
    assert str(tmp_path / "a.npz") in told
    assert "in several splits" in told


# What changes, and what is refused.


def refused(where, workdir, **changes):
    """What is said of a run that is not started."""
    ended = commands.run(own_data.line(where, workdir, **changes))
    assert ended.code == 2, ended
    return ended.err


def test_unreadable_images_stop_a_run_or_are_left_out_of_every_split(examples, tmp_path):
    where = own_data.in_folder(tmp_path, examples)
    names = ["Training/oak/03.png", "test/ash/05.png", "val_set/hêtre/00.png"]
    for name in names:
        form = "NFD" if name.startswith("test") else "NFC"
        path = where["path"] / unicodedata.normalize(form, name)
        path.write_bytes(path.read_bytes()[:-30])
    # Of 12 bits in 16: it would be nearly black.
    Image.fromarray(np.full((8, 8), 4000, np.uint16)).save(path)
    told = refused(where, tmp_path / "run")
    assert all(name in told for name in names)
    assert not (tmp_path / "run").exists()
    skip = {"dataset.skip_unreadable": True}
    run = train(where, tmp_path / "run", **skip)
    assert run.results["left_out"] == 3
    listed = (run.workdir / "seen_images.json").read_text()
    assert len(json.loads(listed)["unreadable"]) == 3
    known = json.loads((run.workdir / "classes.json").read_text())
    assert [entry["training_images"] for entry in known] == [16, 16, 15]
    assert "test/ash/05.png" not in run.scores["names"]
    assert len(run.scores["labels"]) == 23
    # New data with classes have their own.
    out = tmp_path / "report.json"
    new = {"images": where["path"] / "test", "out": out}
    commands.ok(commands.line("evaluate", workdir=run.workdir, **new))
    (told,) = json.loads(out.read_text())["unreadable"]
    assert told["path"].endswith("05.png")
    # A resumed run and the commands on it look at no image again.
    (run.workdir / "results.json").unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(look, "look", None)
        commands.ok(own_data.line(where, run.workdir, **skip))
        commands.ok(commands.line("evaluate", workdir=run.workdir))
    again = json.loads((run.workdir / "results.json").read_text())
    assert again["parameters_digest"] == run.results["parameters_digest"]
    assert again["left_out"] == 3
    # A class that changed is told.
    (where["path"] / "Training" / "ash" / "00.png").rename(
        where["path"] / "Training" / "oak" / "more.png"
    )
    (run.workdir / "results.json").unlink()
    for line in (
        commands.line("evaluate", workdir=run.workdir),
        own_data.line(where, run.workdir, **skip),
    ):
        ended = commands.run(line)
        assert ended.code == 2
        (told,) = ended.err.splitlines()
        assert str(run.workdir) in told
    assert (run.workdir / "seen_images.json").read_text() == listed


def test_a_given_split_of_which_no_image_can_be_read_is_told(examples, tmp_path):
    where = own_data.in_folder(tmp_path, examples)
    for path in (where["path"] / "val_set").rglob("*.png"):
        path.write_bytes(path.read_bytes()[:-30])
    told = refused(where, tmp_path / "run", **{"dataset.skip_unreadable": True})
    assert "none for validation is left" in told
    assert not (tmp_path / "run").exists()


def test_classes_without_training_examples_are_refused_or_left_out(examples, tmp_path):
    arrays = own_data.features(examples)
    labels = arrays["labels"].astype("U8")
    of_test = np.array(examples.of("test"))
    labels[of_test[:6]] = "beech"
    np.savez(tmp_path / "a.npz", **arrays | {"labels": labels})
    where = {"name": "features", "path": tmp_path / "a.npz"}
    assert "beech" in refused(where, tmp_path / "run")
    assert counts(load(where, unseen_classes="leave_out"))[2] == [2, 8, 8]


REFUSED = {
    "rows": lambda arrays: {"labels": arrays["labels"][:-1]},
    "negative labels": lambda arrays: {"labels": np.arange(-1, len(arrays["labels"]) - 1) % 4 - 1},
    "NaN": lambda arrays: {"features": arrays["features"] * np.float16(np.nan)},
    "another split": lambda arrays: {"split": np.full(len(arrays["split"]), "some")},
    "a label out of range": lambda arrays: {
        "labels": np.arange(len(arrays["labels"])) % 4,
        "class_names": np.array(CLASSES),
    },
}


@pytest.mark.parametrize("case", REFUSED)
def test_features_that_are_not_clear_are_refused(examples, tmp_path, case):
    arrays = own_data.features(examples)
    np.savez(tmp_path / "a.npz", **arrays | REFUSED[case](arrays))
    assert "a.npz" in refused({"name": "features", "path": tmp_path / "a.npz"}, tmp_path / "run")
    assert not (tmp_path / "run").exists()
