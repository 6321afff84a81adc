"""The benchmark of two kinds of doubt finds both in ensembles of which they are known."""

import io
import types
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks import ambiguity
from train.data.truths import VOTES, Truths

ROOT = Path(__file__).parents[3]
# A fair coin between classes 0 and 1, of three classes.
COIN = np.array([[0.5, 0.5, 0.0]], np.float32)


def test_members_that_agree_have_doubt_and_members_that_differ_disagree():
    agreed, disagreement = ambiguity.parts_of_entropy(np.stack([COIN, COIN]))
    # Float32 probabilities of one half are exact.
    np.testing.assert_allclose([agreed, disagreement], [[np.log(2)], [0]], atol=1e-12)
    sure = np.eye(3, dtype=np.float32)[:2, None]
    agreed, disagreement = ambiguity.parts_of_entropy(sure)
    np.testing.assert_allclose([agreed, disagreement], [[0], [np.log(2)]], atol=1e-12)


def test_the_best_share_is_that_of_the_largest_scores():
    truth = np.array([[0.6, 0.3, 0.1], [0.0, 0.5, 0.5]])
    assert ambiguity.best_share(truth, truth, 1) == pytest.approx(0.55)
    assert ambiguity.best_share(truth, truth, 2) == pytest.approx(0.95)
    assert ambiguity.best_share(-truth, truth, 1) == pytest.approx(0.05)


def a_run(size, seed):
    """What `trained.load` returns: names with two classes in six, and one with a single class."""
    rng = np.random.default_rng(seed)
    classes = np.tile(np.array([[0, 1]], np.int32), (6, 1))
    shares = np.array([[0.75, 0.25]] * 5 + [[1.0, 0.0]], np.float32)
    scores = rng.dirichlet(np.ones(6), size=6).astype(np.float32)
    found = types.SimpleNamespace(scores=scores, truths=Truths(classes, shares, VOTES))
    return types.SimpleNamespace(
        predict=lambda split: found,
        load_dataset=lambda: types.SimpleNamespace(train=range(size)),
    )


def test_runs_with_the_same_number_of_names_are_an_ensemble(monkeypatch):
    runs = {"a": (10, 0), "b": (10, 1), "c": (40, 2), "d": (40, 3)}
    monkeypatch.setattr(ambiguity.trained, "load", lambda workdir: a_run(*runs[workdir]))
    results = ambiguity.measure([*runs])
    assert (results["names"], results["members"]) == (5, [2])
    assert results["best"]["top_1"] == 0.75
    assert [one["names"] for one in results["trained_on"]] == [10, 40]
    assert all(one["disagreement"] > 0 for one in results["trained_on"])
    assert ambiguity.tables(results).count("\n| ") == 4


def test_the_figure_shows_digits_and_words_that_a_phone_can_show():
    images = np.zeros((6, 8, 8))
    members = np.random.default_rng(0).dirichlet(np.ones(10), size=(3, 6))
    with (
        Image.open(io.BytesIO(ambiguity.draw(images, members, members))) as drawn,
        Image.open(ROOT / "docs" / "figures" / "ambiguity.png") as committed,
    ):
        assert drawn.format == "PNG"
        assert drawn.size == committed.size
        # A page on a phone has 358 pixels for it. Its text has 8 points, at 150 pixels an inch.
        assert 8 / 72 * 150 * 358 / drawn.width > 9.5


def test_the_figure_needs_no_runs(monkeypatch, tmp_path):
    monkeypatch.setattr(ambiguity, "digits", lambda: ("images", "few", "every"))
    monkeypatch.setattr(ambiguity, "draw", lambda *arrays: " ".join(arrays).encode())
    figure = tmp_path / "figure.png"
    monkeypatch.setattr("sys.argv", ["ambiguity", f"--figure={figure}"])
    ambiguity.main()
    assert figure.read_bytes() == b"images few every"
