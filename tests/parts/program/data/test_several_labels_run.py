"""A run on several labels an example: from training to sets that miss few labels."""

import json

import jax
import numpy as np
import pytest

from tests.parts.program.data import matrices
from tests.parts.program.data.test_features_run import ENVIRONMENT, small
from tests.parts.program.forked import start_each
from tests.rows import rows
from train import experiment

pytestmark = pytest.mark.usefixtures("standard_promotion")
ROWS, CLASSES = 900, 5
# What may be missed of the labels of an example, on average.
ERROR = 0.1


@pytest.fixture(scope="module")
def several():
    """Rows of which each class is present by a law of its own; every row has a label."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(ROWS, 4)).astype(np.float32)
    chances = 1 / (1 + np.exp(1 - 2 * rows @ rng.normal(size=(4, CLASSES))))
    present = rng.random(chances.shape) < chances
    present[np.arange(ROWS), chances.argmax(axis=1)] |= ~present.any(axis=1)
    names = np.array([f"class {label}" for label in range(CLASSES)])
    return {"features": rows, "labels": present, "class_names": names}


@pytest.fixture(
    scope="module",
    params=rows(["sparse_top"], ["asymmetric"]),
)
def finished(request, several, tmp_path_factory):
    folder = tmp_path_factory.mktemp("several")
    of_loss = {"gamma_positive": 0.0, "gamma_negative": 2.0, "margin": 0.0}
    fields = {"dataset.labels": "several", "loss.name": request.param, "num_epochs": 4}
    if request.param == "asymmetric":
        fields |= {f"loss.{name}": value for name, value in of_loss.items()}
    if request.param != "sparse_top":
        fields["eval.scores"] = "sigmoid"
    with jax.numpy_dtype_promotion("standard"):
        experiment.run(small(matrices.write(folder / "a.npz", **several), **fields), folder / "run")
    return folder


def test_sets_miss_the_part_of_the_labels_that_is_allowed(finished, several, tmp_path):
    folder = finished
    new = matrices.write(tmp_path / "new.npz", **several)
    common = (f"--workdir={folder / 'run'}", f"--coverages={1 - ERROR}")
    of_new, of_test = tmp_path / "new.json", tmp_path / "test.json"
    ends = start_each(
        "train.evaluate",
        [
            (*common, f"--features={new}", f"--out={of_new}"),
            (*common, f"--path={folder / 'a.npz'}", f"--out={of_test}"),
        ],
        ENVIRONMENT,
    )
    for ended, report in zip(ends, (of_new, of_test), strict=True):
        assert ended.returncode == 0, ended.stderr
        of_sets = json.loads(report.read_text())["coverages"][f"{1 - ERROR}"]["conformal"]
        # Of 135 rows to calibrate on and at least 135 others, whose rates vary by less than those
        # of one label each: four standard deviations.
        assert abs(of_sets["false_negative_rate"] - ERROR) < 4 * np.sqrt(ERROR * 2 / 135)
        assert of_sets["coverage"] == pytest.approx(1 - of_sets["false_negative_rate"], abs=1e-6)


def test_predict_gives_the_sets(finished, several, tmp_path):
    folder = finished
    new = matrices.write(tmp_path / "new.npz", features=several["features"][:8])
    asked = (f"--workdir={folder / 'run'}", f"--features={new}", f"--coverage={1 - ERROR}")
    (ended,) = start_each("train.predict", [asked], ENVIRONMENT)
    assert ended.returncode == 0, ended.stderr
    assert "class " in ended.stdout
