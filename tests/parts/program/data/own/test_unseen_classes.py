"""Classes without training examples: refused, left out, or counted as unknown to the end."""

import json

import jax
import numpy as np
import pytest

from configs import features as recipe
from configs import huggingface
from tests.parts.program.data.own import divided, matrices, parquet_pictures, pictures
from tests.parts.program.data.specs import dataset_spec
from tests.parts.program.forked import start
from tests.parts.program.sealed import unsealed
from train import experiment
from train.data.own import division, folders
from train.data.own.listing import Role
from train.evaluation.outcomes import Outcomes
from train.foundation.errors import UserError
from train.prediction.embedding import found

CLASSES = ("ash", "birch", "cedar")
# Between two classes of the training, in their order.
UNSEEN = "beech"
NO_TRAINING = "has no training image of beech, but 3 for validation and 4 for the test"


def photos(root):
    """A folder with splits of which only training lacks a class."""
    pictures.write_classes(root / "train", CLASSES, 5)
    for name, each in (("val", 3), ("test", 4)):
        pictures.write_classes(root / name, (*CLASSES, UNSEEN), each)
    return root


def divide(found, unseen):
    return division.divide(
        found.listing, divided.fields(unseen=unseen), where="here", example="image"
    )


def test_a_class_of_validation_is_not_a_class_of_the_test(tmp_path):
    root = photos(tmp_path)
    pictures.write_classes(root / "val", ["aspen"], 2)
    listing = divide(folders.find(root, nested=False), "count_as_unknown")
    assert (listing.class_names, listing.unseen_names) == (CLASSES, (UNSEEN,))
    assert listing.labels[listing.roles == Role.TEST].max() == len(CLASSES)


def test_a_folder(tmp_path, caplog):
    images = folders.find(photos(tmp_path / "photos"), nested=False)
    with pytest.raises(UserError, match=f"here {NO_TRAINING}; config.dataset.unseen_classes=leav"):
        divide(images, "refuse")
    left_out, counted = divide(images, "leave_out"), divide(images, "count_as_unknown")
    for_one, for_other = caplog.messages
    assert for_one.startswith(f"here {NO_TRAINING}; ")
    assert for_other.startswith(f"here {NO_TRAINING}; ")
    is_unseen = np.array([f"/{UNSEEN}/" in path for path in left_out.paths])
    assert (left_out.class_names, counted.class_names) == (CLASSES, CLASSES)
    assert (left_out.unseen_names, counted.unseen_names) == ((), (UNSEEN,))
    np.testing.assert_array_equal(left_out.labels == 3, is_unseen)
    np.testing.assert_array_equal(left_out.labels, counted.labels)
    for listing, expected in ((left_out, [15, 9, 12]), (counted, [15, 9, 16])):
        assert [len(listing.of_role(role)) for role in Role] == expected
        named = (listing.paths[index].split("/")[1] for index in listing.of_role(Role.TRAIN))
        assert [CLASSES[label] for label in listing.labels[listing.of_role(Role.TRAIN)]] == [*named]
    assert left_out.digest() != counted.digest()


def test_embedding_keeps_all_classes(tmp_path):
    listing = found.in_folder(photos(tmp_path)).listing
    assert listing.class_names == ("ash", "beech", "birch", "cedar")
    assert [len(listing.of_role(role)) for role in Role] == [15, 12, 16]


def test_a_data_set_of_hugging_face(tmp_path):
    parquet_pictures.write(tmp_path / "trees", {"train": [0, 2] * 6, "test": [0, 1, 2, 1]})
    config = huggingface.get_config()
    config.dataset.path = str(tmp_path / "trees")
    fields = json.loads(config.to_json())["dataset"]
    sizes = {}
    for unseen in ("leave_out", "count_as_unknown"):
        dataset = dataset_spec({**fields, "unseen_classes": unseen}).load(str(tmp_path / "cache"))
        assert dataset.class_names == ("ash", "cedar")
        sizes[unseen] = len(dataset.test)
    assert sizes == {"leave_out": 2, "count_as_unknown": 4}
    assert dataset.test.labels.tolist() == [0, 2, 1, 2]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with a run for each value of the field, on the same features."""
    folder = tmp_path_factory.mktemp("runs")
    classes = ("ash", UNSEEN, "birch", "cedar")
    arrays = matrices.arrays(60, classes=classes)
    split = np.tile(np.repeat(["train", "val", "test"], [8, 4, 8]), 12)
    split[(arrays["labels"] == UNSEEN) & (split == "train")] = "test"
    path = matrices.write(folder / "a.npz", **arrays, split=split)
    config = recipe.get_config("cross_entropy")
    config.dataset.path = str(path)
    config.dataset.batch_size = 24
    config.num_epochs = 2
    config.optimizer.warmup_epochs = 0.0
    config.optimizer.learning_rate = 0.3
    config.eval.ks = (1, 2)
    config.select_by = "top_1_accuracy"
    with jax.numpy_dtype_promotion("standard"):
        for unseen in ("leave_out", "count_as_unknown"):
            config.dataset.unseen_classes = unseen
            experiment.run(json.loads(config.to_json()), folder / unseen)
    return folder


@pytest.mark.usefixtures("standard_promotion")
def test_unknown_classes_are_misses(runs):
    left_out, counted = (
        json.loads((runs / name / "results.json").read_text())
        for name in ("leave_out", "count_as_unknown")
    )
    # The same training and validation.
    assert counted["parameters_digest"] == left_out["parameters_digest"]
    assert counted["validation"] == left_out["validation"]
    known, all_tested = (
        Outcomes.read(runs / name / "outcomes_test.npz")
        for name in ("leave_out", "count_as_unknown")
    )
    unknown = all_tested.labels == 3
    assert (known.labels < 3).all()
    assert unknown.sum() == 48
    assert (all_tested.ranks[unknown] == 3).all()
    assert not all_tested.in_average_sets[:, unknown].any()
    np.testing.assert_array_equal(all_tested.ranks[~unknown], known.ranks)
    assert counted["test"]["loss"] == left_out["test"]["loss"]
    for metric in ("top_1_accuracy", "top_2_accuracy", "average_1_accuracy"):
        hits = left_out["test"][metric] * len(known.labels)
        # Float32 rounding of two quotients.
        assert counted["test"][metric] == pytest.approx(hits / len(all_tested.labels), rel=1e-6)
        macro = left_out["test"][f"macro_{metric}"]
        assert counted["test"][f"macro_{metric}"] == pytest.approx(macro * 3 / 4, rel=1e-6)
    # A class without training examples has few.
    assert left_out["test"]["few_top_1_accuracy"] is None
    assert counted["test"]["few_top_1_accuracy"] == 0
    assert counted["num_examples_of_unknown_classes"] == 48
    assert "num_examples_of_unknown_classes" not in left_out


@pytest.mark.usefixtures("standard_promotion")
def test_the_report_says_how_many_are_unknown(runs, tmp_path):
    flags = ("--coverages=0.9", "--rules=all", f"--out={tmp_path}/report.json")
    done = start("train.evaluate", f"--workdir={runs}/count_as_unknown", *flags)
    assert done.returncode == 0, done.stderr
    report = unsealed(tmp_path / "report.json")
    assert report["num_examples_of_unknown_classes"] == 48
    share = 1 - 48 / report["num_examples"]
    for kinds in (report["coverages"]["0.9"], report["conformal_rules"]["0.9"]):
        for kind in kinds.values():
            # Float32 rounding.
            assert kind["coverage"] <= share + 1e-6
    for rule in report["conformal_rules"]["0.9"].values():
        assert rule["least_covered"][0] == {
            "class": UNSEEN,
            "index": 3,
            "examples": 48,
            "coverage": 0.0,
        }
    assert report["accuracy_by_count"][0]["examples"] == 48
