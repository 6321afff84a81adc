"""One's own labels: votes, several at once, noise and a long tail, each beside its formula."""

import csv

import numpy as np
import pytest
from PIL import Image

from tests import reference
from tests.promises import own_data
from tests.promises.own_data import evaluated, load, train

NAMES = ("ash", "birch", "elm", "oak")
ROWS, NUM_CLASSES = 240, len(NAMES)
SPLITS = np.repeat(["train", "val", "test"], (96, 72, 72))


@pytest.fixture(scope="module")
def law():
    """Features, and the probability of each class given them."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(ROWS, 6)).astype(np.float32)
    scores = np.exp(2 * features @ rng.normal(size=(6, NUM_CLASSES)))
    return features, scores / scores.sum(axis=1, keepdims=True)


def check_sets(run, truth):
    """The limit, coverage and size of sets are those of the truth [n, L] of both splits."""
    of_validation = evaluated(run.workdir, "validation")
    calibration = 1 - of_validation["scores"].astype(np.float64), truth[SPLITS == "val"]
    for asked in ("0.75", "0.9"):
        found, number = run.report["sets"][f"coverage={asked}"], len(calibration[0])
        allowed = (1 - float(asked)) * (number + 1) - 1
        missed = [
            (calibration[1] * (calibration[0] > quantile)).sum()
            for quantile in np.sort(calibration[0], axis=None)
        ]
        # Sums of shares in 32 bits.
        place = np.flatnonzero(np.array(missed) <= allowed + 1e-4)[0]
        limit = 1 - np.sort(calibration[0], axis=None)[place]
        assert found["limit"] == pytest.approx(limit, abs=2e-6)
        chosen = run.scores["scores"] >= np.float32(found["limit"])
        covered = (truth[SPLITS == "test"] * chosen).sum(axis=1)
        assert found["coverage"] == pytest.approx(covered.mean(), rel=1e-5)
        assert found["set_size"] == pytest.approx(chosen.sum(axis=1).mean())
        # Four deviations of the means over 72 examples each.
        assert abs(covered.mean() - float(asked)) < 4 * np.sqrt(
            2 * float(asked) * (1 - float(asked)) / 72
        )


# Votes.


@pytest.fixture(scope="module")
def votes(law):
    """Votes [n, 5] of people, -1 in places that are not used, and who they are."""
    rng = np.random.default_rng(1)
    labels = np.array([rng.choice(NUM_CLASSES, 5, p=one) for one in law[1]])
    labels[np.arange(5) >= rng.integers(1, 6, ROWS)[:, None]] = -1
    # The last person knows one class only.
    voters = np.array([rng.permutation(7)[:5] for _ in labels])
    labels[(voters == 6) & (labels >= 0)] = 2
    return labels, voters


def shares(entries):
    """Votes by example, class and weight as their shares [n, L]."""
    found = np.zeros((ROWS, NUM_CLASSES))
    for example, label, weight in entries:
        found[example, label] += weight
    return found / found.sum(axis=1, keepdims=True)


def flat(votes):
    labels, voters = votes
    examples, places = np.nonzero(labels >= 0)
    return examples, labels[examples, places], voters[examples, places]


def aggregated(votes, how):
    """The plausibilities of classes by each way to aggregate votes."""
    examples, labels, voters = flat(votes)
    if how == "dawid_skene":
        sizes = {"num_examples": ROWS, "num_voters": 7, "num_classes": NUM_CLASSES}
        found = reference.dawid_skene(
            labels, examples, voters, **sizes, smoothing=0.01, num_steps=50
        )
        found[found < 1e-3] = 0
        return found / found.sum(axis=1, keepdims=True)
    if how == "weighted":
        named = {voter: len(set(labels[voters == voter])) for voter in set(voters)}
        weights = [named[voter] ** 0.5 - named[voter] ** 0.2 + 1 for voter in voters]
        return shares(zip(examples, labels, weights, strict=True))
    found = shares(zip(examples, labels, np.ones(len(labels)), strict=True))
    if how == "majority":
        found = (found == found.max(axis=1, keepdims=True)).astype(float)
    return found / found.sum(axis=1, keepdims=True)


def arrays_of(law, **more):
    names = np.array([f"row {index}" for index in range(ROWS)])
    return {
        **{"features": law[0], "split": SPLITS, "names": names, "class_names": np.array(NAMES)},
        **more,
    }


def of_truths(split):
    """The shares of the classes of a split's examples."""
    found = np.zeros((len(split), NUM_CLASSES))
    rows = np.arange(len(split))[:, None]
    np.add.at(found, (rows, split.truths.classes), split.truths.shares)
    return found


def in_table(path, header, rows):
    """A table of an image for each example, with the columns after path and split."""
    for index in range(ROWS):
        Image.new("L", (1, 1), index).save(path.parent / f"{index}.png")
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(("path", "split", *header))
        table.writerows((f"{index}.png", SPLITS[index], *row) for index, *row in rows)
    return {"name": "images", "path": path, "labels": "votes"}


def check_truths(found, expected):
    """The classes and their shares [n, L] of the examples in their order."""
    assert found.class_names == NAMES
    for part, split in zip(("train", "val", "test"), found.splits.values(), strict=True):
        of_part = expected[part == SPLITS]
        np.testing.assert_allclose(of_truths(split), of_part, atol=1e-5)
        # The class of the largest share stands for the example.
        largest = of_part[np.arange(len(split)), split.labels]
        np.testing.assert_allclose(largest, of_part.max(axis=1), atol=1e-5)


@pytest.fixture(scope="module")
def of_people(votes, tmp_path_factory):
    """A table with a row for each vote, and who gave it."""
    rows = [
        (one, NAMES[label], f"user {voter}") for one, label, voter in zip(*flat(votes), strict=True)
    ]
    return in_table(tmp_path_factory.mktemp("votes") / "a.csv", ("label", "annotator"), rows)


@pytest.mark.parametrize("how", ["shares", "majority", "weighted", "dawid_skene"])
def test_votes_become_the_plausibilities_of_their_formula(of_people, votes, how):
    expected = aggregated(votes, how)
    # Majorities that tie share an example.
    assert how != "majority" or (expected == 0.5).any()
    check_truths(load(of_people, votes=how), expected)


def numbers_of(votes):
    """The votes of each class, [n, L]."""
    examples, labels, _ = flat(votes)
    found = np.zeros((ROWS, NUM_CLASSES), np.int64)
    np.add.at(found, (examples, labels), 1)
    return found


@pytest.mark.parametrize("how", ["shares", "majority"])
def test_numbers_of_votes_are_votes_in_a_table_and_in_features(law, votes, tmp_path, how):
    numbers, expected = numbers_of(votes), aggregated(votes, how)
    rows = [(one, NAMES[label], numbers[one, label]) for one, label in np.argwhere(numbers)]
    where = in_table(tmp_path / "a.csv", ("label", "votes"), rows)
    check_truths(load(where, votes=how), expected)
    np.savez(tmp_path / "a.npz", **arrays_of(law, labels=numbers))
    where |= {"name": "features", "path": tmp_path / "a.npz"}
    check_truths(load(where, votes=how), expected)


def test_a_run_on_votes_reports_their_parts_in_its_sets(law, votes, tmp_path, run_seed):
    np.savez(tmp_path / "a.npz", **arrays_of(law, labels=numbers_of(votes)))
    where = {"name": "features", "path": tmp_path / "a.npz", "labels": "votes"}
    run = train(where, tmp_path / "run", num_epochs=3, seed=run_seed)
    truth = aggregated(votes, "shares")
    of_test, scores = truth[SPLITS == "test"], run.scores["scores"]
    assert run.scores["names"].tolist() == [f"row {i}" for i in np.flatnonzero(SPLITS == "test")]
    for k in (1, 2):
        covered = of_test * reference.top_k_set(scores, k=k)
        accuracy = covered.sum(axis=1).mean()
        macro = (covered.sum(axis=0) / of_test.sum(axis=0)).mean()
        row, found = run.report["sets"][f"top_k={k}"], run.results["test"]
        for one in (row["coverage"], found[f"top_{k}_accuracy"]):
            assert one == pytest.approx(accuracy, rel=1e-5)
        for one in (row["macro"], found[f"macro_top_{k}_accuracy"]):
            assert one == pytest.approx(macro, rel=1e-5)
    loss = -(of_test * np.log(scores.astype(np.float64))).sum(axis=1).mean()
    assert run.results["test"]["loss"] == pytest.approx(loss, rel=1e-4)
    check_sets(run, truth)


# Several labels.


def test_a_run_on_several_labels_reports_what_its_sets_miss(law, tmp_path, run_seed):
    present = np.random.default_rng(2).random((ROWS, NUM_CLASSES)) < 1.5 * law[1]
    present[np.arange(ROWS), law[1].argmax(axis=1)] |= ~present.any(axis=1)
    arrays = arrays_of(law, labels=present)
    np.savez(tmp_path / "a.npz", **arrays)
    where = {"name": "features", "path": tmp_path / "a.npz", "labels": "several"}
    changes = {"eval.scores": "sigmoid", "num_epochs": 3, "seed": run_seed}
    run = train(where, tmp_path / "run", loss="binary_cross_entropy", **changes)
    of_test, scores = present[SPLITS == "test"], run.scores["scores"]
    # Each class has a probability of its own.
    assert scores.sum(axis=1).max() > 1.1
    check_sets(run, present / present.sum(axis=1, keepdims=True))
    for asked in (0.75, 0.9):
        of_sets = run.report["sets"][f"coverage={asked}"]
        chosen = scores >= np.float32(of_sets["limit"])
        expected = {
            "missed_labels": 1 - reference.label_coverage(chosen, of_test).mean(),
            "example_f1": reference.example_f1(chosen, of_test).mean(),
            "macro_f1": reference.tally_f1(chosen, of_test).macro_mean(),
        }
        for name, value in expected.items():
            assert of_sets[name] == pytest.approx(value, abs=1e-6), name
    precision = reference.mean_average_precision(scores, of_test)
    assert run.report["mean_average_precision"] == pytest.approx(precision, rel=1e-5)


# Changes of the training data.


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A folder of 7 classes with 40 training images of one pixel each."""
    root = tmp_path_factory.mktemp("many")
    for label in range(7):
        for split, each in (("train", 40), ("val", 3), ("test", 3)):
            folder = root / split / f"class {label}"
            folder.mkdir(parents=True)
            for number in range(each):
                color = (30 * label, number, len(split))
                Image.new("RGB", (1, 1), color).save(folder / f"{number:02}.png")
    return {"name": "images", "path": root}


@pytest.mark.parametrize(
    ("kind", "groups"),
    [("uniform", [range(7)]), ("blocks", [range(5), range(5, 7)])],
)
def test_label_noise_draws_training_labels_from_their_group(many, kind, groups):
    clean = load(many)
    noisy, same, other = (
        load(many, seed=seed, label_noise=0.5, label_noise_kind=kind) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(noisy.train.labels, same.train.labels)
    assert (noisy.train.labels != other.train.labels).any()
    for split in ("validation", "test"):
        np.testing.assert_array_equal(clean.splits[split].labels, noisy.splits[split].labels)
    pairs = np.array([clean.train.labels, noisy.train.labels])
    for group in groups:
        old, new = pairs[:, np.isin(pairs[0], group)]
        assert set(new) == set(group)
        # Five deviations of a binomial share: the draw can return the old label.
        expected = 0.5 * (1 - 1 / len(group))
        deviation = np.sqrt(expected * (1 - expected) / len(old))
        assert abs((old != new).mean() - expected) < 5 * deviation


def test_a_long_tail_has_the_sizes_of_its_formula(many):
    found = own_data.counts(load(many, imbalance_factor=10.0))
    assert sorted(found[0], reverse=True) == [int(40 * 10 ** (-rank / 6)) for rank in range(7)]
    assert found[1:] == [[3] * 7] * 2
    few = own_data.counts(load(many, train_per_class=12))
    assert few == [[12] * 7, [3] * 7, [3] * 7]
