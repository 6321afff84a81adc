"""Somebody's scores: of any size, in any precision, and read as what they are called."""

import dataclasses

import numpy as np
import pytest
from scipy import special

from tests import reference
from train.data.classes import Classes
from train.foundation.errors import UserError
from train.reports import summaries
from train.scores import files, scores

# Of several lengths; the last is not UTF-8.
NAMES = np.array([*(f"{'a' * row} {row}.png" for row in range(8)), "b\udc80\n.png"], object)


def read(tmp_path, **arrays):
    np.savez(tmp_path / "scores.npz", **arrays)
    return files.read(tmp_path / "scores.npz", flag="--scores")


def test_logits_far_apart_are_ranked_as_they_are(tmp_path, rng):
    logits = 60 * rng.normal(size=(400, 20))
    labels = np.argsort(-logits, axis=1)[np.arange(400), rng.integers(0, 8, size=400)]
    found = read(tmp_path, logits=logits, labels=labels)
    # Probabilities of 32 bits are 0, and equal, from a hundred below the largest logit on.
    assert (found.values == 0).sum(axis=1).max() > 1
    np.testing.assert_array_equal(found.ranks, reference.label_ranks(logits, labels))
    exact = -special.log_softmax(logits, axis=1)[np.arange(400), labels]
    np.testing.assert_allclose(found.loss, exact, rtol=1e-12)
    assert found.class_names == tuple(map(str, range(20)))


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_scores_in_a_file_give_the_evaluation_of_those_in_memory(tmp_path, rng, kind, monkeypatch):
    logits = 4 * rng.normal(size=(90, 7)).astype(np.float32)
    if kind == "logits":
        # A logit of -inf masks its class, as one far below the others.
        logits[np.arange(90), rng.integers(7, size=90)] = -np.inf
    labels, half = rng.integers(0, 7, size=90), np.flatnonzero(rng.random(90) < 0.5)
    values = special.softmax(logits, axis=1) if kind == "probabilities" else logits
    far_below = np.where(values == -np.inf, -1e4, values)

    def evaluation(values):
        found = read(tmp_path, **{kind: values, "labels": labels})
        thresholds = summaries.average_k_thresholds(found, (1, 3))
        parts = (found, found.take(half))
        return found.values, [summaries.summarize(one, thresholds) for one in parts]

    in_memory, expected = evaluation(far_below)
    monkeypatch.setattr(scores, "MOST_IN_MEMORY", 0)
    # Several chunks, the last of them smaller.
    monkeypatch.setattr(scores, "CHUNK", 16 * 7)
    in_file, actual = evaluation(values)
    assert [isinstance(one, np.memmap) for one in (in_memory, in_file)] == [False, True]
    np.testing.assert_array_equal(in_file, in_memory)
    for found, other in zip(actual, expected, strict=True):
        found.metrics.pop(summaries.LOSS), other.metrics.pop(summaries.LOSS)
        assert found.metrics == other.metrics
        np.testing.assert_equal(vars(found.outcomes), vars(other.outcomes))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rows_without_a_softmax_are_refused(tmp_path, rng, value):
    logits = rng.normal(size=(9, 4))
    logits[[5, 7]] = [[0, value, 0, -np.inf], 4 * [value]]
    labels = np.zeros(9, int)
    first = 7 if value == -np.inf else 5
    with pytest.raises(UserError, match=rf"must be finite, or .* example {first} are not$"):
        read(tmp_path, logits=logits, labels=labels)
    # A value that is not a logit does not mask.
    for name in ("scores", "probabilities"):
        with pytest.raises(UserError, match="must be finite; those of example 5 are"):
            read(tmp_path, **{name: logits, "labels": labels})


@pytest.mark.parametrize("shift", [0.0, 1e8, 1e39])
def test_a_shift_of_all_logits_changes_nothing(tmp_path, rng, shift):
    # Multiples of 2, in 1e39 of its last digit, so that the shift loses none of them.
    step = 2.0 if shift < 1e39 else 2.0**78
    logits, labels = rng.integers(-3, 4, size=(50, 6)) * step, rng.integers(0, 6, size=50)
    shifted, plain = (read(tmp_path, logits=logits + s, labels=labels) for s in (shift, 0.0))
    np.testing.assert_array_equal(shifted.values, plain.values)
    np.testing.assert_array_equal(shifted.ranks, plain.ranks)
    np.testing.assert_allclose(shifted.loss, plain.loss, atol=2 * step * np.finfo(float).eps)


def test_what_is_called_probabilities_or_scores_is_taken_as_it_is(tmp_path, rng):
    values, labels = rng.dirichlet(np.ones(4), size=10), np.arange(10) % 4
    given = {"probabilities": values, "scores": 2 * values}
    for name, one in given.items():
        found = read(tmp_path, **{name: one, "labels": labels})
        np.testing.assert_array_equal(found.values, one.astype(np.float32))
        np.testing.assert_allclose(found.loss, -np.log(one[np.arange(10), labels]), rtol=1e-12)
        assert found.are_probabilities() == (name == "probabilities")
    one_row_off, negative = values.copy(), values.copy()
    one_row_off[7, 0] += 0.01
    negative[3] = [1.5, -0.5, 0.0, 0.0]
    for bad in (one_row_off, negative):
        with pytest.raises(UserError, match="must be 0 or more and add up to 1"):
            read(tmp_path, probabilities=bad, labels=labels)
    assert read(tmp_path, scores=values.astype(np.float16), labels=labels).are_probabilities()


def test_what_is_written_is_read_back(tmp_path, rng):
    found = read(tmp_path, logits=rng.normal(size=(9, 5)), labels=np.arange(9) % 5)
    path = tmp_path / "written.npz"
    groups = np.array([*(f"plant {index // 2}" for index in range(8)), ""], object)
    classes = Classes(("a", "b\u0302", "", "d,e", "f" * 300), (0, 1, 2, 3, 4))
    found = dataclasses.replace(found, names=NAMES, groups=groups, classes=classes)
    files.write(path, found)
    again = files.read(path, flag="--scores")
    for name in ("values", "labels", "loss", "names", "groups", "classes"):
        np.testing.assert_array_equal(getattr(again, name), getattr(found, name))
    with np.load(path) as written:
        arrays = ["scores", "labels", "loss", "names", "class_names", "groups", "class_counts"]
        assert list(written) == arrays
    # An example of a class that is not known has no label there.
    labels = {"labels": np.append(found.labels[:-1], 5), "unknown_classes": ("not known",)}
    bare = {"names": None, "groups": None, "classes": Classes.of("abcde"), **labels}
    files.write(path, dataclasses.replace(found, **bare))
    again = files.read(path, flag="--scores")
    assert (again.classes.counts, again.groups) == (None, None)
    assert again.names.tolist() == [f"example {row}" for row in range(8)]
    assert again.class_names == tuple("abcde")


GIVEN = {"logits": np.eye(4, 3), "labels": np.array([0, 1, 2, 0])}
# What is given instead or beside these.
REFUSED = {
    "two kinds": {"scores": np.eye(4, 3)},
    "integers": {"logits": np.eye(4, 3, dtype=int)},
    "a vector": {"logits": np.ones(4)},
    "no classes": {"logits": np.ones((4, 0))},
    "labels are shares": {"labels": np.ones(4)},
    "few labels": {"labels": np.zeros(3, int)},
    "texts": {"loss": np.array([*"abcd"])},
    "of examples": {"class_counts": np.ones(4, int)},
    "few groups": {"groups": np.array(["a"])},
    "one name": {"class_names": np.array(["caf\u00e9", "oak", "cafe\u0301"])},
}


@pytest.mark.parametrize("row", REFUSED)
def test_arrays_that_cannot_be_are_refused_in_a_line(tmp_path, row):
    with pytest.raises(UserError, match=r"^--scores must be an .* is not: [^\n]*$"):
        read(tmp_path, **GIVEN | REFUSED[row])


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
                files.read(path, flag="--scores")
