"""`train.evaluate` of scores from elsewhere: every number of its report, computed again by NumPy.

The probabilities are multiples of 1/64, so that they tie, and are at their thresholds.
"""

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
def evaluate(test, calibration, tmp_path_factory):
    """A function that returns the report with some flags."""
    folder = tmp_path_factory.mktemp("scores")
    for name, (probabilities, labels) in {"test": test, "calibration": calibration}.items():
        arrays = {"probabilities": probabilities, "labels": labels, "class_counts": CLASS_COUNTS}
        np.savez(folder / f"{name}.npz", **arrays)
    (folder / "costs.csv").write_text(COSTS)
    given = {
        "scores": folder / "test.npz",
        "calibration": folder / "calibration.npz",
        "risks": RISKS,
        "out": folder / "report.json",
    }

    def report(costs, **flags):
        costs = folder / costs if costs.endswith(".csv") else costs
        commands.ok(commands.line("evaluate", **given, costs=costs, **flags))
        return json.loads((folder / "report.json").read_text())

    return report


@pytest.fixture(scope="module")
def report(evaluate):
    return evaluate("costs.csv", ks=KS, coverages=COVERAGES, rules="all", utility="u65")


def check_sets(reported, chosen, labels, near=0):
    """Sets are those that were reported; `near` of them may be others, by rounding."""
    slack = near / np.bincount(labels)[np.bincount(labels) > 0].min()
    expected = recomputed.of_sets(chosen, labels, CLASS_COUNTS)
    recomputed.check(reported, expected, slack=slack)


def test_accuracies_are_those_of_the_scores(report, test, calibration):
    thresholds = {k: reference.average_k_threshold(calibration[0], k=k) for k in KS}
    for k, threshold in thresholds.items():
        assert report["thresholds"][f"average_{k}"] == pytest.approx(threshold, rel=1e-6)
    expected = recomputed.metrics(*test, CLASS_COUNTS, thresholds)
    recomputed.check(report["metrics"], expected)
    assert {name for name in expected if name.startswith(("few", "medium", "many"))}
    of_label = test[0][np.arange(len(test[1])), test[1]]
    with np.errstate(divide="ignore"):
        loss = -np.log(of_label).mean()
    # A label without a probability.
    assert loss == np.inf
    assert report["metrics"]["loss"] in (None, pytest.approx(loss))
    for row in report["accuracy_by_count"]:
        least, most = row["from"], row["to"] or np.inf
        taken = (least < CLASS_COUNTS) & (most >= CLASS_COUNTS)
        assert row["classes"] == taken.sum()
        assert row["examples"] == taken[test[1]].sum()
        if row["examples"]:
            hits = reference.top_k_hits(*test, k=2)[taken[test[1]]]
            assert row["top_2_accuracy"] == pytest.approx(hits.mean(), rel=1e-6)


@pytest.mark.parametrize("asked", COVERAGES)
def test_sets_of_a_coverage_are_those_of_their_thresholds(report, test, calibration, asked):
    found, error = report["coverages"][asked], recomputed.error_of(asked)
    threshold = reference.conformal_threshold(*calibration, error=error)
    assert found["conformal"]["threshold"] == threshold
    # A value at the threshold is in the set.
    assert (test[0] == threshold).any()
    check_sets(found["conformal"], test[0] >= threshold, test[1])
    threshold = reference.average_error_threshold(calibration[0], error=error)
    assert found["average_error"]["threshold"] == threshold
    check_sets(found["average_error"], test[0] >= threshold, test[1])
    check_sets(found["adaptive"], reference.adaptive_set(test[0], error=error), test[1])


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
    found, error = report["conformal_rules"][asked], recomputed.error_of(asked)
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
    assert found.keys() == quantiles.keys()
    for name, quantile in quantiles.items():
        of_rule = scores.get(name, scores["lac"])[0]
        # Fractions of the class counts are rounded.
        near = (of_rule != quantile) & np.isclose(of_rule, quantile, rtol=1e-6, atol=1e-6)
        check_sets(found[name], of_rule <= quantile, test[1], near.any(axis=-1).sum())
        least = found[name]["least_covered"][0]
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
    found = report["utilities"]["u65"]
    check_sets(found, best, test[1])
    assert found["utility"] == pytest.approx(mean_worth(best, test[1], worth), rel=1e-6)
    for k in KS:
        of_top = mean_worth(tops[k - 1], test[1], worth)
        assert found["utility_of"][f"top_{k}"] == pytest.approx(of_top, rel=1e-6)


def mean_worth(chosen, labels, worth):
    return (recomputed.hits_of(chosen, labels) * worth[chosen.sum(axis=-1) - 1]).mean()


@pytest.mark.parametrize("risk", RISKS)
def test_costs_of_a_table_are_bounded(report, test, calibration, risk):
    of_labels = np.array([10, 4, 1, 1, 1, 1, 1, 1.0])
    between = np.repeat(of_labels[:, None], NUM_CLASSES, axis=1)
    between[0, 1], between[4, 0] = 2, 0.5
    np.fill_diagonal(between, 0)
    check_bounded(report["risks"][risk], test, calibration, float(risk), of_labels, between)


def test_costs_that_are_the_same_for_all_of_each_class_are_bounded(evaluate, test, calibration):
    of_labels = CLASS_COUNTS.sum() / NUM_CLASSES / CLASS_COUNTS
    between = np.repeat(of_labels[:, None], NUM_CLASSES, axis=1)
    np.fill_diagonal(between, 0)
    report = evaluate("macro", ks=1, coverages="")
    for risk, found in report["risks"].items():
        check_bounded(found, test, calibration, float(risk), of_labels, between)


def test_what_observations_are_too_few_for_is_left_out_of_them_alone(test, tmp_path, caplog):
    probabilities, labels = test
    path, out = tmp_path / "grouped.npz", tmp_path / "report.json"
    groups = [f"{label} {index % 6}" for index, label in enumerate(labels)]
    np.savez(path, probabilities=probabilities, labels=labels, groups=np.array(groups))
    given = {"scores": path, "coverages": 0.9, "risks": 0.01, "costs": "missed", "out": out}
    ended = commands.ok(commands.line("evaluate", **given, rules="interpolated"))
    report = json.loads(out.read_text())
    assert report["conformal_rules"]["0.9"].keys() == {"interpolated"}
    assert report["risks"].keys() == {"0.01"}
    observed = report["observations"]
    assert observed["coverages"].keys() == {"0.9"}
    assert (observed["conformal_rules"], observed["risks"]) == ({"0.9": {}}, {})
    assert ended.out.count("conformal rules at") == ended.out.count("a bounded mean cost") == 1
    told = [one for one in caplog.messages if one.startswith("left out of the observations: ")]
    assert ["interpolated" in told[0], "--risk=0.01" in told[1]] == [True, True]
    # Of the examples themselves nothing is left out.
    ended = commands.run(commands.line("evaluate", **given | {"risks": 0.001}))
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


def check_bounded(reported, test, calibration, risk, of_labels, between):
    """Sets are the smallest whose mean cost is bounded, and cost what is reported.

    Args:
        reported: the numbers of the sets.
        test: probabilities and labels.
        calibration: the same.
        risk: the bound.
        of_labels: what a set costs that has nothing like the label, by label.
        between: what it costs by label and by a class of the set.
    """

    def mean_cost(examples, threshold):
        similar = np.where(examples[0] >= threshold, between[examples[1]], np.inf).min(axis=-1)
        return np.minimum(of_labels[examples[1]], similar).mean()

    number = len(calibration[1])
    allowed = (risk * (number + 1) - of_labels.max()) / number
    scores = np.unique(calibration[0])
    threshold = max(one for one in scores if mean_cost(calibration, one) <= allowed + 1e-12)
    assert reported["threshold"] == threshold
    assert reported["mean_cost"] == pytest.approx(mean_cost(test, threshold), rel=1e-6)
    check_sets(reported, test[0] >= threshold, test[1])
