"""Somebody's scores: of any size, in any precision, and read as what they are called."""

import dataclasses

import numpy as np
import pytest
from scipy import special

from tests import reference
from train.evaluation import predictions, score_files, stored_scores
from train.evaluation.conformal_rules import RULES
from train.evaluation.predictions import ranks_in_64_bits
from train.evaluation.set_report import set_report
from train.evaluation.thresholds import average_error_threshold
from train.foundation.errors import UserError

# Of several lengths; the last is not UTF-8.
NAMES = np.array([*(f"{'a' * row} {row}.png" for row in range(8)), "b\udc80\n.png"], object)


def read_file(tmp_path, **arrays):
    np.savez(tmp_path / "scores.npz", **arrays)
    return score_files.read_scores(tmp_path / "scores.npz", flag="scores")


def read(tmp_path, **arrays):
    return read_file(tmp_path, **arrays).examples


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


@pytest.mark.parametrize("in_a_file", [False, True])
def test_a_logit_of_minus_infinity_masks_its_class(tmp_path, rng, monkeypatch, in_a_file):
    labels, rows = rng.integers(0, 6, size=50), np.arange(50)
    logits = rng.normal(size=(50, 6)).astype(np.float32)
    masked = logits.copy()
    for step in (1, 4):
        masked[rows, (labels + step) % 6] = -np.inf
    # All but one class, and the label's own class.
    masked[0, np.arange(6) != labels[0]] = -np.inf
    masked[1] = np.where(np.arange(6) == labels[1], -np.inf, logits[1])
    far_below = np.where(masked == -np.inf, -1e4, masked).astype(np.float32)
    monkeypatch.setattr(stored_scores, "MOST_IN_MEMORY", 0 if in_a_file else 2**28)
    found, expected = [], []
    for values, read_to in ((masked, found), (far_below, expected)):
        one = read(tmp_path, logits=values, labels=labels)
        evaluated, counts = one.take(rows[2:]), np.arange(1, 7)
        settings = {
            "ks": (1, 3),
            "coverages": (0.9,),
            "rules": [rule for rule in RULES.values() if not rule.needs_taxonomy],
        }
        report = set_report(evaluated, one, class_counts=counts, **settings)
        read_to += [one.scores, one.ranks, one.loss[2:], report]
    # Classes far below the others have a probability of 0 in 32 bits.
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_equal(one, other)
    assert found[-1]["metrics"]["loss"] > 0
    np.testing.assert_array_equal(found[0] == 0, masked == -np.inf)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rows_without_a_softmax_are_refused(tmp_path, rng, value):
    logits = rng.normal(size=(9, 4))
    logits[[5, 7]] = [[0, value, 0, -np.inf], 4 * [value]]
    labels = np.zeros(9, int)
    bad, first = ("1", 7) if value == -np.inf else ("2", 5)
    with pytest.raises(UserError, match=rf"{bad} of the 9 examples are not.* example {first}$"):
        read(tmp_path, logits=logits, labels=labels)
    # A value that is not a logit does not mask.
    for name in ("scores", "probabilities"):
        with pytest.raises(UserError, match="must be finite; those of 2 of the 9 examples"):
            read(tmp_path, **{name: logits, "labels": labels})


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
        with pytest.raises(UserError, match="must be 0 or more and add up to 1"):
            read(tmp_path, probabilities=bad, labels=labels)
    assert score_files.are_probabilities(values.astype(np.float16))


def test_what_is_written_is_read_back(tmp_path, rng):
    found = read(tmp_path, logits=rng.normal(size=(9, 5)), labels=np.arange(9) % 5)
    path = tmp_path / "written.npz"
    groups = np.array([*(f"plant {index // 2}" for index in range(8)), ""], object)
    found = dataclasses.replace(found, names=NAMES, groups=groups)
    class_names = ["a", "b\u0302", "", "d,e", "f" * 300, "one that it does not know"]
    score_files.write_scores(path, found, np.arange(5), class_names)
    again = score_files.read_scores(path, flag="scores")
    for name in ("scores", "labels", "loss", "names", "groups"):
        np.testing.assert_array_equal(getattr(again.examples, name), getattr(found, name))
    np.testing.assert_array_equal(again.class_counts, np.arange(5))
    assert again.class_names == tuple(class_names[:5])
    with np.load(path) as written:
        arrays = ["scores", "labels", "loss", "names", "class_names", "groups", "class_counts"]
        assert list(written) == arrays
    bare = dataclasses.replace(found, names=None, groups=None)
    score_files.write_scores(path, bare, None, "abcde")
    again = score_files.read_scores(path, flag="scores")
    assert again.class_counts is None
    assert again.examples.names.tolist() == [f"example {row}" for row in range(9)]
    assert again.examples.groups is None


def test_ranks_have_ties_by_index_and_none_beside_nan():
    scores = np.array([[0.5, 0.5, 1.0], [0.5, 0.5, 1.0], [np.nan, 1.0, 0.0]])
    np.testing.assert_array_equal(ranks_in_64_bits(scores, np.array([0, 1, 1])), [1, 2, 3])


GIVEN = {"logits": np.eye(4, 3), "labels": np.array([0, 1, 2, 0])}
# What is given instead or beside these, and what the message says.
REFUSED = {
    "no labels": ({"labels": None}, "must have labels"),
    "two kinds": ({"scores": np.eye(4, 3)}, "it has logits, scores, labels"),
    "integers": ({"logits": np.eye(4, 3, dtype=int)}, r"it has int64 \[4, 3\]"),
    "a vector": ({"logits": np.ones(4)}, r"it has float64 \[4\]"),
    "no classes": ({"logits": np.ones((4, 0))}, r"it has float64 \[4, 0\]"),
    "labels are shares": ({"labels": np.ones(4)}, "labels must have an integer for each of the 4"),
    "few labels": ({"labels": np.zeros(3, int)}, r"each of the 4 examples; it has int64 \[3\]"),
    "a large label": ({"labels": np.array([0, 1, 3, 0])}, "that of example 2 is 3$"),
    "texts": ({"loss": np.array([*"abcd"])}, "loss must have a floating-point number for each"),
    "no loss": ({"loss": np.array([1.0, np.nan, 1.0, 1.0])}, "loss must have numbers"),
    "losses of classes": ({"loss": np.ones((4, 1))}, r"it has float64 \[4, 1\]"),
    "shares": ({"class_counts": np.ones(3)}, "class_counts must have an integer for each of the 3"),
    "debts": ({"class_counts": np.array([1, 2, -3])}, "class_counts must be 0 or more"),
    "few groups": ({"groups": np.array(["a"])}, "groups must have a text for each of the 4 ex"),
    "one name": ({"class_names": np.array(["caf\u00e9", "oak", "cafe\u0301"])}, "0 and 2 are 'caf"),
    "objects": ({"names": np.array([None] * 4)}, "allow_pickle"),
}


@pytest.mark.parametrize("row", REFUSED)
def test_arrays_that_cannot_be_are_refused_in_a_line(tmp_path, row):
    changes, message = REFUSED[row]
    arrays = {name: array for name, array in (GIVEN | changes).items() if array is not None}
    with pytest.raises(UserError, match=rf"^--scores must be an .* is not: .*{message}") as raised:
        read(tmp_path, **arrays)
    assert "\n" not in str(raised.value)


def test_a_damaged_file_is_refused(tmp_path, rng):
    path = tmp_path / "scores.npz"
    np.savez_compressed(path, logits=rng.normal(size=(50, 4)), labels=rng.integers(0, 4, 50))
    whole = path.read_bytes()
    for place in rng.integers(100, 1000, 20):
        content = bytearray(whole)
        content[place] ^= 1 << int(rng.integers(8))
        for damaged in (bytes(content), whole[:place]):
            path.write_bytes(damaged)
            with pytest.raises(UserError, match=r"^--scores must be an .*scores\.npz is not: "):
                score_files.read_scores(path, flag="scores")


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_scores_in_a_file_give_the_report_of_those_in_memory(tmp_path, rng, kind, monkeypatch):
    logits = 4 * rng.normal(size=(90, 7)).astype(np.float32)
    labels = rng.integers(0, 7, size=90)
    values = special.softmax(logits, axis=1) if kind == "probabilities" else logits
    # Several chunks, the last of them smaller.
    monkeypatch.setattr(predictions, "CHUNK", 16)
    half = np.flatnonzero(rng.random(90) < 0.5)

    def reports():
        found = read(tmp_path, **{kind: values, "labels": labels})
        return found.scores, [
            set_report(one, found, ks=(1, 3), coverages=(0.75, 0.9), class_counts=None)
            for one in (found, found.take(half))
        ]

    in_memory, expected = reports()
    monkeypatch.setattr(stored_scores, "MOST_IN_MEMORY", 0)
    in_file, actual = reports()
    assert [isinstance(one, np.memmap) for one in (in_memory, in_file)] == [False, True]
    np.testing.assert_array_equal(in_file, in_memory)
    assert actual == expected


def test_the_average_error_of_scores_in_a_file_is_that_of_those_in_memory(rng, monkeypatch):
    # Eighths and sixteenths: many ties, and sums that are exact in any order.
    scores = (rng.multinomial(16, rng.dirichlet(np.ones(6), size=50)) / 16).astype(np.float32)
    # In float64, 0.57 times 100 is less than 57.
    decimal = np.array([[0.25] * 4] * 57 + [[1, 0, 0, 0]] * 43, np.float32)
    monkeypatch.setattr(stored_scores, "MOST_IN_MEMORY", 0)
    stored = stored_scores.collect([scores[:20], scores[20:]], 60)
    assert isinstance(stored, np.memmap)
    for error in (0.0, 0.0625, 0.25, 0.5, 0.9, 0.999):
        expected = average_error_threshold(scores, error)
        assert average_error_threshold(stored, error) == expected
    for one in (decimal, stored_scores.collect([decimal], 100)):
        assert average_error_threshold(one, 0.57) == 1.0
