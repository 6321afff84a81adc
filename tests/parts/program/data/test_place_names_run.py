"""A run on names of places, from training to sets of countries, a page and an exported program."""

import json
import shutil

import jax
import jax.export
import numpy as np
import pytest

from configs import place_names as recipe
from tests.parts.program.data import some_places
from tests.parts.program.forked import start, start_each
from train import experiment
from train.data import characters, gazetteer
from train.evaluation.metric import Metric
from train.evaluation.outcomes import Outcomes
from train.foundation.errors import UserError
from train.prediction import exported_program, inference, name_sets, trained
from train.prediction.calibrated_rule import CalibratedRule

pytestmark = pytest.mark.usefixtures("standard_promotion")
ENVIRONMENT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=1"}
TOP = CalibratedRule("top_k", 2.0, None)


def keep(number, data_dir):
    """Replaces the places of the package by made-up ones."""
    made = gazetteer.make(some_places.places(number), some_places.COUNTRIES)
    gazetteer.save(made, gazetteer.file_in(str(data_dir)))


@pytest.fixture(scope="module")
def finished(tmp_path_factory, run_seed):
    """The folder of the data and of a finished run, `run`."""
    folder = tmp_path_factory.mktemp("names")
    keep(1000, folder / "data")
    config = recipe.get_config()
    config.seed = run_seed
    config.num_epochs = 4
    config.dataset.data_dir = str(folder / "data")
    config.dataset.batch_size = 32
    config.model.width = 16
    config.eval.ks = (1, 2)
    config.select_by = "top_1_accuracy"
    with jax.numpy_dtype_promotion("standard"):
        experiment.run(json.loads(config.to_json()), folder / "run")
    return folder


@pytest.fixture(scope="module")
def classifier(finished):
    return trained.load(finished / "run")


def test_the_endings_of_names_are_learnt(finished, classifier):
    results = json.loads((finished / "run" / "results.json").read_text())
    assert results["num_classes"] == 6
    # The table, and a head with biases.
    assert results["num_parameters"] == 2**15 * 16 + 16 * 6 + 6
    assert results["test"]["top_1_accuracy"] > 0.9
    assert classifier.classes.names[5] == "Land of ville"


def test_every_name_has_a_line_and_a_card(finished, tmp_path):
    names = 'Tokaville,VICTORIA,<b>ovo,"Lisestad, on the sea"'
    arguments = (f"--workdir={finished}/run", f"--names={names}")
    ended = start(
        "train.predict",
        *arguments,
        "--average_k=2",
        f"--html={tmp_path}/page.html",
        environment=ENVIRONMENT,
    )
    assert (ended.returncode, ended.stderr) == (0, f"page  {tmp_path}/page.html\n")
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [line["name"] for line in lines] == [
        "Tokaville",
        "VICTORIA",
        "<b>ovo",
        "Lisestad, on the sea",
    ]
    assert lines[0]["set"][0]["class"] == "Land of ville"
    assert lines[2]["set"][0]["class"] == "Land of ovo"
    # It occurs in every country.
    probabilities = [line["set"][0]["probability"] for line in lines]
    assert probabilities[1] == min(probabilities)
    assert set(lines[0]) == {"name", "set", "size", "threshold", "rule"}
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<h1>Sets of classes for 4 names</h1>" in page
    assert "&lt;b&gt;ovo" in page
    assert "GeoNames (https://www.geonames.org), CC BY 4.0" in page


def test_the_sets_of_many_names_are_those_of_the_network(classifier):
    names = [f"Sito{index}stad" for index in range(300)]
    found = list(name_sets.read(names).make_sets(classifier, TOP, thumbnails=False))
    assert [one.name for one in found] == names
    rows = characters.to_rows([name.lower() for name in names])
    scores = np.asarray(jax.jit(classifier.scores())(rows))
    for one, row in zip(found, scores, strict=True):
        assert list(one.classes) == np.argsort(-row, kind="stable")[:2].tolist()
        # Another size of batches may round otherwise.
        np.testing.assert_allclose(one.probabilities, row[list(one.classes)], rtol=1e-5)


def test_a_name_may_be_any_text(classifier):
    names = ["\udcff", "𐍈" * 99, "İstanbul", "a\nb"]
    found = list(name_sets.read(names).make_sets(classifier, TOP, thumbnails=False))
    assert [one.name for one in found] == names
    assert all(np.isfinite(one.highest) for one in found)


@pytest.mark.parametrize("names", [[], ["a", "\u3000"]])
def test_empty_names_are_refused(names):
    with pytest.raises(UserError, match="--names must be "):
        name_sets.read(names)


def test_the_balanced_test_is_evaluated_where_there_is_one(finished, finished_run, tmp_path):
    workdir = shutil.copytree(finished / "run", tmp_path / "run")
    ended = start_each(
        "train.evaluate",
        [(f"--workdir={path}", "--split=balanced_test") for path in (workdir, finished_run)],
        ENVIRONMENT,
    )
    assert (ended[0].returncode, ended[0].stderr) == (0, "")
    report = json.loads((workdir / "evaluation_balanced_test.json").read_text())
    assert report["num_examples"] == 6 * 10
    # Each class has the same weight.
    metrics = report["metrics"]
    assert metrics["top_1_accuracy"] == pytest.approx(metrics["macro_top_1_accuracy"], rel=1e-6)
    # The run evaluated it on eight devices; their rounding may turn one example.
    written = json.loads((workdir / "results.json").read_text())["balanced_test"]
    assert written.keys() == metrics.keys()
    assert written["top_1_accuracy"] == pytest.approx(metrics["top_1_accuracy"], abs=1.01 / 60)
    outcomes = Outcomes.read(workdir / "outcomes_balanced_test.npz")
    assert np.bincount(outcomes.labels).tolist() == [10] * 6
    hits = outcomes.hits(Metric.accuracy("top", 1))
    assert hits.mean() == pytest.approx(written["top_1_accuracy"], rel=1e-6)
    assert ended[1].returncode == 2
    assert "--split must not be balanced_test with the data set digits" in ended[1].stderr


def test_the_exported_program_says_what_the_classifier_says(classifier):
    program = jax.export.deserialize(bytearray(exported_program.serialize(classifier, TOP)))
    rows = characters.to_rows(["tokaville", "victoria", "san josé"])
    expected = jax.jit(inference.make(classifier, TOP))(rows)
    for found, wanted in zip(program.call(rows), expected, strict=True):
        # The same program, compiled for another size of batches.
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
    described = exported_program.describe(classifier, TOP)
    assert described["names"]["shape"] == ["n", characters.LENGTH]
    assert described["names"]["dtype"] == "int32"
    assert "CC BY 4.0" in described["attribution"]
