"""A run on votes: its metrics are of the votes, and its sets have the votes that they promise."""

import json

import jax
import numpy as np
import pytest

from tests.parts.program.data.own import matrices
from tests.parts.program.data.own.test_features_run import ENVIRONMENT, small
from tests.parts.program.forked import start_each
from train import experiment
from train.prediction import trained

pytestmark = pytest.mark.usefixtures("standard_promotion")
ROWS, CLASSES = 800, 5


@pytest.fixture(scope="module")
def votes():
    """Rows of a known law: each has from one to six votes, drawn from the probabilities."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(ROWS, 4)).astype(np.float32)
    scores = np.exp(2 * rows @ rng.normal(size=(4, CLASSES)))
    law = scores / scores.sum(axis=1, keepdims=True)
    labels = np.array([rng.choice(CLASSES, 6, p=one) for one in law])
    labels[np.arange(6) >= rng.integers(1, 7, ROWS)[:, None]] = -1
    names = np.array([f"class {label}" for label in range(CLASSES)])
    return {"features": rows, "labels": labels, "class_names": names}


@pytest.fixture(scope="module")
def finished(votes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("votes")
    with jax.numpy_dtype_promotion("standard"):
        config = small(
            matrices.write(folder / "a.npz", **votes),
            **{"dataset.labels": "votes", "num_epochs": 6},
        )
        results = experiment.run(config, folder / "run")
        found = trained.load(folder / "run").predict("test")
    return folder, results, found


def test_sets_have_the_votes_that_they_promise(finished, votes, tmp_path):
    folder, _, _ = finished
    new = matrices.write(tmp_path / "new.npz", **votes)
    common = (f"--workdir={folder / 'run'}", "--coverages=0.9")
    of_new, of_test = (tmp_path / "new.json", tmp_path / "test.json")
    for ended in start_each(
        "train.evaluate",
        [
            (*common, f"--features={new}", f"--out={of_new}"),
            (*common, f"--path={folder / 'a.npz'}", f"--out={of_test}"),
        ],
        ENVIRONMENT,
    ):
        assert ended.returncode == 0, ended.stderr
    for report in (of_new, of_test):
        coverages = json.loads(report.read_text())["coverages"]
        coverage = coverages["0.9"]["conformal"]["coverage"]
        # Of 120 rows to calibrate on and at least 120 others: four standard deviations.
        assert abs(coverage - 0.9) < 4 * np.sqrt(0.9 * 0.1 * 2 / 120)
