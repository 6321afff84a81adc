"""One set for the photographs of an observation: what is combined, and with which thresholds."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest
from PIL import Image

from tests import reference
from tests.parts.program.sealed import unsealed
from topk_jax import sets
from train.data import Examples, taxonomy
from train.evaluation import combinations, observations
from train.evaluation.conformal_rules import RULES
from train.evaluation.observations import Combination
from train.evaluation.predictions import Predictions
from train.foundation.errors import UserError
from train.prediction import (
    image_sets,
    json_lines,
    observation_sets,
    row_sets,
    rule_flags,
    set_outputs,
    trained,
)
from train.prediction.calibrated_rule import CalibratedRule, calibrate
from train.prediction.calibration import Calibration
from train.prediction.html_page import PageFacts

NAMES = [str(index) for index in range(10)]


def top(k, name=combinations.DEFAULT):
    return CalibratedRule("top_k", k, None, combination=Combination(name))


@pytest.fixture(scope="module")
def classifier(finished_run, tmp_path_factory):
    return trained.load(shutil.copytree(finished_run, tmp_path_factory.mktemp("sets") / "run"))


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """Pixels by path: plants with photographs in several places of the order, and one alone."""
    folder = tmp_path_factory.mktemp("photographs")
    names = ["a_oak.1.png", "b_elm.1.png", "c_oak.2.png", "d.png", "e_oak.3.png", "f_elm.2.png"]
    found = {}
    for name in names:
        pixels = np.random.default_rng(len(found)).integers(0, 256, (8, 8), np.uint8)
        found[folder / name] = pixels
        Image.fromarray(pixels).save(folder / name)
    return found


def observations_of(paths, grammar=r"_(\w+)\."):
    return observation_sets.group(image_sets.ImageFiles(list(paths)), grammar)


@pytest.mark.parametrize("by", ["log_probabilities", "probabilities", "maximum"])
def test_the_sets_are_those_of_the_combined_probabilities(classifier, photographs, by):
    found = list(observations_of(photographs).make_sets(classifier, top(3, by), thumbnails=False))
    paths = [str(path) for path in photographs]
    assert [entry.origin for entry in found] == [
        {"group": "oak", "paths": [paths[0], paths[2], paths[4]]},
        {"group": "elm", "paths": [paths[1], paths[5]]},
        {"group": None, "paths": [paths[3]]},
    ]
    assert [entry.title for entry in found] == ["oak", "elm", "d.png"]
    assert [entry.num_examples for entry in found] == [3, 2, 1]
    pixels = np.stack(list(photographs.values()))[..., None]
    scores = np.log(np.asarray(jax.jit(classifier.scores())(pixels)))
    combined = np.exp(sets.combine(scores, np.array([0, 1, 0, 2, 0, 1]), num_groups=3, by=by))
    for entry, row in zip(found, combined, strict=True):
        assert entry.classes == tuple(np.argsort(-row, kind="stable")[:3])
        # Batches of another size, and sums of logarithms in 32 bits.
        np.testing.assert_allclose(entry.probabilities, row[list(entry.classes)], rtol=1e-4)


def test_photographs_that_cannot_be_read_are_told_and_the_others_are_used(
    classifier, photographs, tmp_path
):
    first, *_ = photographs
    bad, lost = tmp_path / "x_oak.9 <b>.png", tmp_path / "y_ash.1.png"
    for path in (bad, lost):
        path.write_text("no image")
    grouped = observations_of([first, bad, lost])
    rule = top(2)
    facts = PageFacts(NAMES, rule.in_words(), "", {}, "observation")
    entries = list(grouped.make_sets(classifier, rule, thumbnails=True))
    lines, page = tmp_path / "out.jsonl", tmp_path / "page.html"
    total = set_outputs.Total(3, "images")
    written = set_outputs.write(entries, total, facts, rule, lines=lines, page=page)
    assert not written.complete
    oak, ash = (json.loads(line) for line in lines.read_text().splitlines())
    assert (oak["group"], oak["paths"], oak["size"]) == ("oak", [str(first)], 2)
    assert oak["unreadable"] == [{"path": str(bad), "error": f"{bad} is not an image"}]
    assert oak["rule"] == "top_k=2, combine=log_probabilities"
    assert ash == {"path": str(lost), "error": f"{lost} is not an image"}
    shown = page.read_text(encoding="utf-8")
    assert shown.count('<li class="card"') == 1
    assert "x_oak.9 &lt;b&gt;.png is not an image" in shown
    assert "y_ash.1.png is not an image" in shown
    # The set is that of the photograph that can be read.
    (one,) = observations_of([first]).make_sets(classifier, rule, thumbnails=False)
    assert [member["index"] for member in oak["set"]] == list(one.classes)


class FakeClassifier:
    """A run whose validation examples may have groups."""

    def __init__(self, workdir, *, has_groups=True):
        self.workdir = workdir
        self.num_classes = 6
        self.asked = 0
        rng = np.random.default_rng(3)
        scores = rng.dirichlet(np.ones(6), size=300).astype(np.float32)
        of = np.sort(rng.integers(0, 99, size=300))
        groups = np.array([f"plant {number}" for number in of], object)
        labels = rng.integers(0, 6, size=99)[of]
        self.validation = Predictions(
            np.zeros(300, np.float32),
            scores,
            labels,
            reference.label_ranks(scores, labels),
            groups=groups if has_groups else None,
        )

    def load_dataset(self):
        split = Examples.of_source(
            np.zeros((300, 1)), self.validation.labels, NAMES, "", groups=self.validation.groups
        )
        return dataclasses.make_dataclass("Dataset", ["validation"])(split)

    def predict(self, split):
        assert split == "validation"
        self.asked += 1
        return self.validation


@pytest.mark.parametrize("by", combinations.COMBINATIONS)
def test_thresholds_are_those_of_the_validation_observations(tmp_path, by):
    classifier = FakeClassifier(tmp_path)
    combination = observations.fit(by, classifier.validation)
    found = observations.combine(classifier.validation, combination).predictions
    scores, labels = found.scores, found.labels
    for _ in range(2):
        calibration = Calibration(classifier, by)
        assert calibration.conformal(0.9) == reference.conformal_threshold(
            scores, labels, error=0.1
        )
        average = np.float32(reference.average_k_threshold(scores, k=2))
        assert calibration.average_k(2.0) == average
        aps = sets.conformal_label_scores(scores, labels, kind="aps")
        limits = calibration.conformal_sets(0.9, RULES["aps"]).limits
        assert limits == sets.conformal_quantile(aps, labels, error=0.1)
        assert calibration.combination() == combination
    # The second time, all are read.
    assert classifier.asked == 1
    # Beside those of photographs.
    Calibration(classifier).conformal(0.9)
    stored = unsealed(tmp_path / "calibration.json")
    assert {"coverage_0.9", f"observations_{by}_coverage_0.9"} <= {*stored}
    assert stored["coverage_0.9"] != stored[f"observations_{by}_coverage_0.9"]
    # The number of examples, and as how many independent ones they count.
    assert stored[f"observations_{by}_calibrated_on"] == [len(labels), len(labels)]
    examples, groups = stored["calibrated_on"]
    assert examples == 300
    # Groups are of one to eight photographs.
    assert 0.6 * len(labels) < groups < len(labels)


def test_too_few_observations_are_counted_as_such(tmp_path):
    calibration = Calibration(FakeClassifier(tmp_path), combinations.DEFAULT)
    # Of 300 photographs.
    with pytest.raises(UserError, match=r"199 observations .* 9\d$"):
        calibration.conformal(0.995)
    with pytest.raises(UserError, match="199 observations"):
        calibration.conformal_sets(0.995, RULES["aps"])


def test_a_run_without_groups_makes_top_k_sets_alone(tmp_path):
    classifier = FakeClassifier(tmp_path, has_groups=False)
    none = {"top_k": None, "average_k": None, "coverage": None}
    for given in ({"coverage": 0.9}, {"average_k": 2.0}):
        with pytest.raises(UserError, match="--group"):
            calibrate(classifier, rule_flags.chosen(none | given), combinations.DEFAULT)
    chosen = rule_flags.chosen(none | {"top_k": 2})
    with pytest.raises(UserError, match="--combine"):
        calibrate(classifier, chosen, combinations.TRAINED)
    assert str(calibrate(classifier, chosen, "maximum")) == "top_k=2, combine=maximum"
    # Nothing was predicted for that.
    assert classifier.asked == 0


class Uniform:
    """A classifier whose probabilities are the examples themselves."""

    num_classes = 2

    def scores(self):
        return jax.nn.softmax


def test_rows_are_grouped_by_an_array_or_by_their_names(tmp_path):
    logits = np.float32([[4, 0], [0, 3], [0, 2], [1, 0]])
    np.savez(
        tmp_path / "rows.npz",
        features=logits,
        names=np.array(["x1_a", "x2_a", "x1_b", "lone"]),
        plant=np.array([7, 8, 7, 9]),
        pot=np.array(["p", "", "p", ""]),
    )
    rows = row_sets.read(str(tmp_path / "rows.npz"))

    def made(grammar):
        grouped = observation_sets.group(rows, grammar)
        return [*grouped.make_sets(Uniform(), top(1), thumbnails=False)]

    found = made("plant")
    assert [entry.origin for entry in found] == [
        {"group": "7", "rows": [0, 2], "example_names": ["x1_a", "x1_b"]},
        {"group": "8", "rows": [1], "example_names": ["x2_a"]},
        {"group": "9", "rows": [3], "example_names": ["lone"]},
    ]
    # The means of (4, 0) and (0, 2).
    assert [entry.classes for entry in found] == [(0,), (1,), (0,)]
    assert [entry.group for entry in made("pot")] == ["p", None, None]
    assert [entry.title for entry in made("pot")] == ["p", "x2_a", "lone"]
    assert [entry.group for entry in made(r"(x\d)")] == ["x1", "x2", None]
    with pytest.raises(UserError, match="--group"):
        observation_sets.group(rows, "plants")


def test_sets_with_names_keep_the_names_of_their_rows(tmp_path):
    logits = np.float32([[4, 0], [0, 3], [0, 2]])
    np.savez(tmp_path / "rows.npz", features=logits, names=np.array(["x1_a", "x2_a", "x1_b"]))
    classes = ["Quercus alba", "Quercus rubra"]
    tree = taxonomy.first_words(classes)
    rule = dataclasses.replace(top(1), tree=tree, max_names=1)
    grouped = observation_sets.group(row_sets.read(str(tmp_path / "rows.npz")), r"(x\d)")
    made = grouped.make_sets(Uniform(), rule, thumbnails=False)
    first, second = (json.loads(json_lines.to_line(one, rule, classes)) for one in made)
    assert first["example_names"] == ["x1_a", "x1_b"]
    assert second["example_names"] == ["x2_a"]
    assert [node["name"] for node in first["names"]] == ["Quercus alba"]
    assert [node["name"] for node in second["names"]] == ["Quercus rubra"]
