"""Somebody's scores: of any size, in any precision, and read as what they are called."""

import numpy as np
import pytest
from scipy import special

from tests import reference
from train.evaluation import score_files
from train.evaluation.predictions import ranks_in_64_bits
from train.foundation.errors import UserError


def read(tmp_path, **arrays):
    np.savez(tmp_path / "scores.npz", **arrays)
    return score_files.read_scores(tmp_path / "scores.npz", None, flag="logits")


def test_logits_far_apart_are_ranked_as_they_are(tmp_path, rng):
    logits = 60 * rng.normal(size=(400, 20))
    labels = np.argsort(-logits, axis=1)[np.arange(400), rng.integers(0, 8, size=400)]
    found = read(tmp_path, logits=logits, labels=labels)
    # Probabilities of 32 bits are 0, and equal, from a hundred below the largest logit on.
    assert (found.scores == 0).sum(axis=1).max() > 1
    for k in (1, 5, 8):
        expected = reference.top_k_hits(logits, labels, k=k)
        np.testing.assert_array_equal(found.ranks < k, expected)
    assert (found.ranks < 8).all()
    exact = -special.log_softmax(logits, axis=1)[np.arange(400), labels]
    np.testing.assert_allclose(found.loss, exact, rtol=1e-12)


@pytest.mark.parametrize("shift", [0.0, 1e8, 1e39])
def test_a_shift_of_all_logits_changes_nothing(tmp_path, rng, shift):
    # Multiples of 2, in 1e39 of its last digit, so that the shift loses none of them.
    step = 2.0 if shift < 1e39 else 2.0**78
    logits = rng.integers(-3, 4, size=(50, 6)) * step
    labels = rng.integers(0, 6, size=50)
    shifted = read(tmp_path, logits=logits + shift, labels=labels)
    plain = read(tmp_path, logits=logits, labels=labels)
    np.testing.assert_array_equal(shifted.scores, plain.scores)
    np.testing.assert_array_equal(shifted.ranks, plain.ranks)
    np.testing.assert_allclose(shifted.loss, plain.loss, atol=2 * step * np.finfo(float).eps)


def test_what_is_called_probabilities_or_scores_is_taken_as_it_is(tmp_path, rng):
    values = rng.dirichlet(np.ones(4), size=10)
    labels = np.arange(10) % 4
    for name in ("probabilities", "scores"):
        found = read(tmp_path, **{name: values, "labels": labels})
        np.testing.assert_array_equal(found.scores, values.astype(np.float32))
        np.testing.assert_allclose(found.loss, -np.log(values[np.arange(10), labels]), rtol=1e-12)
    np.testing.assert_array_equal(
        read(tmp_path, scores=2 * values, labels=labels).scores, (2 * values).astype(np.float32)
    )


def test_probabilities_have_to_be_some(tmp_path, rng):
    values = rng.dirichlet(np.ones(4), size=10)
    labels = np.zeros(10, int)
    one_row_off, negative = values.copy(), values.copy()
    one_row_off[7, 0] += 0.01
    negative[3] = [1.5, -0.5, 0.0, 0.0]
    for bad in (one_row_off, negative):
        assert not score_files.are_probabilities(bad)
        with pytest.raises(UserError, match="must not be negative, and add up to 1"):
            read(tmp_path, probabilities=bad, labels=labels)
    assert score_files.are_probabilities(values.astype(np.float16))
    with pytest.raises(UserError, match="one array called logits, probabilities or scores"):
        read(tmp_path, probabilities=values, logits=values, labels=labels)


def test_what_is_written_is_read_back(tmp_path, rng):
    found = read(tmp_path, logits=rng.normal(size=(9, 5)), labels=np.arange(9) % 5)
    path = tmp_path / "written.npz"
    score_files.write_scores(path, found, np.arange(5))
    again = score_files.read_scores(path, None, flag="logits")
    for name in ("scores", "labels", "loss"):
        np.testing.assert_array_equal(getattr(again, name), getattr(found, name))
    np.testing.assert_array_equal(score_files.class_counts_beside(path), np.arange(5))
    score_files.write_scores(path, found, None)
    assert score_files.class_counts_beside(path) is None


def test_labels_may_be_texts_of_several_kinds(tmp_path):
    path = tmp_path / "labels.txt"
    np.savetxt(path, [3, 0, 5])
    np.testing.assert_array_equal(score_files.read_integers(path, flag="labels"), [3, 0, 5])
    path.write_text("1.5\n")
    with pytest.raises(UserError, match="must be whole numbers, one a line"):
        score_files.read_integers(path, flag="labels")


def test_ranks_have_ties_by_index_and_none_beside_nan():
    scores = np.array([[0.5, 0.5, 1.0], [0.5, 0.5, 1.0], [np.nan, 1.0, 0.0]])
    np.testing.assert_array_equal(ranks_in_64_bits(scores, np.array([0, 1, 1])), [1, 2, 3])
