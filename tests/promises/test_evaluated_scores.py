"""`train.evaluate` of scores from elsewhere: every number of its report, computed again by NumPy.

The probabilities are multiples of 1/64, so that they tie, and are at their thresholds.
"""

import itertools
import json

import numpy as np
import pytest

from tests import reference
from tests.promises import commands, recomputed

COVERAGES = ("0.5", "0.9")
# One example more or less, or another largest cost, is another threshold.
RISKS = ("0.54", "1.08", "2.2")
KS = (1, 2, 5)
# Around the bounds of few, medium and many.
CLASS_COUNTS = np.array([3, 19, 20, 21, 50, 100, 101, 500])
NUM_CLASSES = len(CLASS_COUNTS)
# The sixth class is rare among the examples to calibrate on.
FREQUENCIES = np.array([4, 4, 4, 4, 4, 0.6, 4, 4])
SCORES = {
    "lac": {"kind": "lac"},
    "aps": {"kind": "aps"},
    "raps": {"kind": "raps", "rank_penalty": 0.01, "unpenalized_ranks": 5},
    "saps": {"kind": "saps", "rank_penalty": 0.2},
    "margin": {"kind": "margin"},
    "pas": {"kind": "pas", "class_counts": CLASS_COUNTS},
}
# The limits of these are by class.
OF_CLASSES = ("class_conditional", "clustered", "interpolated")
COSTS = """label,chosen,cost
0,,10
0,1,2
1,,4
2,,1
3,,1
4,,1
4,0,0.5
5,,1
6,,1
7,,1
"""


def drawn(seed, size):
    """Probabilities, and labels that have them."""
    rng = np.random.default_rng(seed)
    likely = rng.dirichlet(FREQUENCIES / 4, size=size)
    probabilities = rng.multinomial(64, likely).astype(np.float32) / 64
    labels = np.array([rng.choice(NUM_CLASSES, p=row) for row in likely])
    return probabilities, labels


@pytest.fixture(scope="module")
def test():
    return drawn(1, 300)


@pytest.fixture(scope="module")
def calibration():
    return drawn(2, 200)


@pytest.fixture(scope="module")
def report(test, calibration, tmp_path_factory):
    """The rows of all rules."""
    folder = tmp_path_factory.mktemp("scores")
    for name, (probabilities, labels) in {"test": test, "calibration": calibration}.items():
        arrays = {"probabilities": probabilities, "labels": labels, "class_counts": CLASS_COUNTS}
        np.savez(folder / f"{name}.npz", **arrays)
    (folder / "costs.csv").write_text(COSTS)
    of_coverages = (
        [f"{kind}={asked}" for kind in ("coverage", "average_error", "adaptive")]
        + [f"coverage={asked}, rule={rule}" for rule in (*SCORES, *OF_CLASSES)]
        for asked in COVERAGES
    )
    rules = {
        "sets": [
            *itertools.chain(*of_coverages),
            *(f"risk={risk}, costs=macro" for risk in RISKS),
            *(f"risk={risk}, costs={folder}/costs.csv" for risk in RISKS),
            "utility=u65",
        ],
        **{kind: [*KS] for kind in ("top_k", "average_k")},
    }
    files = {"scores": folder / "test.npz", "calibration": folder / "calibration.npz"}
    commands.ok(commands.line("evaluate", **files, **rules, out=folder / "report.json"))
    content = (folder / "report.json").read_text().replace(f"{folder}/", "")
    return json.loads(content)


def check_sets(reported, chosen, labels, near=0):
    """Sets are those that were reported; `near` of them may be others, by rounding."""
    slack = near / np.bincount(labels)[np.bincount(labels) > 0].min()
    recomputed.check(reported, recomputed.row(chosen, labels, CLASS_COUNTS), slack=slack)


@pytest.mark.parametrize("k", KS)
def test_accuracies_are_those_of_the_scores(report, test, calibration, k):
    check_sets(report["sets"][f"top_k={k}"], reference.top_k_set(test[0], k=k), test[1])
    found = report["sets"][f"average_k={k}"]
    threshold = reference.average_k_threshold(calibration[0], k=k)
    assert found["limit"] == pytest.approx(threshold, rel=1e-6)
    check_sets(found, test[0] >= threshold, test[1])
    assert {"few", "medium", "many"} <= found.keys()


def test_a_label_without_a_probability_has_an_infinite_loss(report, test):
    of_label = test[0][np.arange(len(test[1])), test[1]]
    assert (of_label == 0).any()
    assert report["loss"] in (None, np.inf)


@pytest.mark.parametrize("asked", COVERAGES)
def test_sets_of_a_coverage_are_those_of_their_thresholds(report, test, calibration, asked):
    rows, error = report["sets"], recomputed.error_of(asked)
    threshold = reference.conformal_threshold(*calibration, error=error)
    assert rows[f"coverage={asked}"]["limit"] == threshold
    # A value at the threshold is in the set.
    assert (test[0] == threshold).any()
    check_sets(rows[f"coverage={asked}"], test[0] >= threshold, test[1])
    threshold = reference.average_error_threshold(calibration[0], error=error)
    assert rows[f"average_error={asked}"]["limit"] == threshold
    check_sets(rows[f"average_error={asked}"], test[0] >= threshold, test[1])
    sets = reference.adaptive_set(test[0], error=error)
    check_sets(rows[f"adaptive={asked}"], sets, test[1])


@pytest.fixture(scope="module")
def scores(test, calibration):
    """The scores of all classes in the test, and of the labels to calibrate on, by rule."""
    return {
        name: (
            reference.conformal_scores(test[0], **score),
            recomputed.hits_of(reference.conformal_scores(calibration[0], **score), calibration[1]),
        )
        for name, score in SCORES.items()
    }


@pytest.mark.parametrize("asked", COVERAGES)
def test_sets_of_every_conformal_rule_are_those_of_its_score_and_quantile(
    report, test, calibration, scores, asked
):
    error = recomputed.error_of(asked)
    quantiles = {
        name: reference.conformal_quantile(of_labels, error=error)
        for name, (_, of_labels) in scores.items()
    }
    of_classes = reference.class_conditional_quantiles(
        scores["lac"][1], calibration[1], error=error, num_classes=NUM_CLASSES
    )
    # There are too few classes for clusters.
    quantiles |= {"clustered": quantiles["lac"], "class_conditional": of_classes}
    quantiles["interpolated"] = (np.minimum(of_classes, 1) + quantiles["lac"]) / 2
    for name, quantile in quantiles.items():
        found = report["sets"][f"coverage={asked}" + ("" if name == "lac" else f", rule={name}")]
        of_rule = scores.get(name, scores["lac"])[0]
        # Fractions of the class counts are rounded.
        near = (of_rule != quantile) & np.isclose(of_rule, quantile, rtol=1e-6, atol=1e-6)
        check_sets(found, of_rule <= quantile, test[1], near.any(axis=-1).sum())
        least = found["least_covered"][0]
        hits = recomputed.hits_of(of_rule <= quantile, test[1])
        of_each = [hits[test[1] == label].mean() for label in range(NUM_CLASSES)]
        if not near.any():
            assert least["coverage"] == pytest.approx(min(of_each), rel=1e-6)
            assert of_each[least["index"]] == min(of_each)


def test_sets_of_a_utility_are_worth_the_most(report, test):
    sizes = np.arange(1, NUM_CLASSES + 1)
    worth = 1.6 / sizes - 0.6 / sizes**2
    tops = np.stack([reference.top_k_set(test[0], k=k) for k in sizes])
    expected = worth[:, None] * (tops * test[0]).sum(axis=-1)
    best = tops[expected.argmax(axis=0), np.arange(len(test[1]))]
    found = report["sets"]["utility=u65"]
    check_sets(found, best, test[1])
    assert found["utility"] == pytest.approx(mean_worth(best, test[1], worth), rel=1e-6)
    for text, value in found["utility_of"].items():
        top = tops[int(text.removeprefix("top_k=")) - 1]
        assert value == pytest.approx(mean_worth(top, test[1], worth), rel=1e-6)


def mean_worth(chosen, labels, worth):
    return (recomputed.hits_of(chosen, labels) * worth[chosen.sum(axis=-1) - 1]).mean()


@pytest.mark.parametrize("risk", RISKS)
@pytest.mark.parametrize("costs", ["macro", "costs.csv"])
def test_mean_costs_are_bounded_by_the_smallest_sets(report, test, calibration, costs, risk):
    of_labels = CLASS_COUNTS.sum() / NUM_CLASSES / CLASS_COUNTS
    if costs == "costs.csv":
        of_labels = np.array([10, 4, 1, 1, 1, 1, 1, 1.0])
    between = np.repeat(of_labels[:, None], NUM_CLASSES, axis=1)
    if costs == "costs.csv":
        between[0, 1], between[4, 0] = 2, 0.5
    np.fill_diagonal(between, 0)

    def mean_cost(examples, threshold):
        similar = np.where(examples[0] >= threshold, between[examples[1]], np.inf).min(axis=-1)
        return np.minimum(of_labels[examples[1]], similar).mean()

    found, number = report["sets"][f"risk={risk}, costs={costs}"], len(calibration[1])
    allowed = (float(risk) * (number + 1) - of_labels.max()) / number
    limits = np.unique(calibration[0])
    threshold = max(one for one in limits if mean_cost(calibration, one) <= allowed + 1e-12)
    assert found["limit"] == threshold
    assert found["mean_cost"] == pytest.approx(mean_cost(test, threshold), rel=1e-6)
    check_sets(found, test[0] >= threshold, test[1])


def test_what_observations_are_too_few_for_is_left_out_of_them_alone(test, tmp_path, caplog):
    probabilities, labels = test
    path, out = tmp_path / "grouped.npz", tmp_path / "report.json"
    groups = [f"{label} {index % 6}" for index, label in enumerate(labels)]
    np.savez(path, probabilities=probabilities, labels=labels, groups=np.array(groups))
    bounded, interpolated = "risk=0.01, costs=missed", "coverage=0.9, rule=interpolated"
    given = {"scores": path, "sets": ["coverage=0.9", bounded, interpolated], "out": out}
    commands.ok(commands.line("evaluate", **given))
    report = json.loads(out.read_text())
    assert report["sets"].keys() == {"coverage=0.9", bounded, interpolated}
    assert report["observations"]["sets"].keys() == {"coverage=0.9"}
    told = [one for one in caplog.messages if one.startswith("left out: ")]
    assert [any(text in one for one in told) for text in (bounded, interpolated)] == [True, True]
    # Of the examples themselves nothing is left out.
    ended = commands.run(
        commands.line("evaluate", **given | {"sets": ["risk=0.001, costs=missed"]})
    )
    assert (ended.code, ended.out) == (2, "")


@pytest.mark.parametrize("flag", ["scores", "calibration"])
def test_likely_groups_in_names_are_told(test, tmp_path, caplog, flag):
    probabilities, labels = test
    arrays = {"probabilities": probabilities, "labels": np.sort(labels)}
    np.savez(tmp_path / "plain.npz", **arrays)
    names = [f"{label}/obs{index // 2}_photo{index % 2 + 1}" for index, label in enumerate(labels)]
    names = np.array([f"{name}.jpg" for name in names])
    np.savez(tmp_path / "named.npz", **arrays, names=names)
    given = dict.fromkeys(("scores", "calibration"), tmp_path / "plain.npz")
    commands.ok(commands.line("evaluate", **given | {flag: tmp_path / "named.npz"}))
    (told,) = caplog.messages
    assert told.startswith(f"--{flag} {tmp_path / 'named.npz'}: ")
    assert names[0] in told
