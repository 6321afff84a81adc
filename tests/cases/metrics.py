"""The case of every metric. To add a metric, add a case to `CASES`."""

from typing import Any

import numpy as np

from tests.cases.case import Case
from tests.cases.ranges import AT_LEAST_0, POSITIVE, Listed
from tests.cases.trees import families

# A class without training examples is one of few.
COUNTS = {"class_counts": Listed((np.array([500, 50, -1, 50, 50, 5, 5, 0]),))}
LABELS = {"labels": "labels"}
HITS = {"hits": "hits"}
WEIGHTS = {"weights": "weights"}
OPEN = {**HITS, "is_new": "marks", **WEIGHTS}
# Of two examples and three people.
VOTES = {"labels": "labels", "examples": "groups", "voters": "successes"}
SIZES_OF_VOTES = {"num_examples": 2, "num_voters": 3, "num_classes": int}
POWERS = {"alpha": 0.5, "beta": 0.2, "offset": 1.0}
POSITIVE_POWERS = dict.fromkeys(POWERS, AT_LEAST_0)
SHARES = {"probabilities": "probabilities"}
ANY_LIMITS = {"thresholds": Listed(())}
OF_CLASSES = {"values": "hits", **LABELS, **WEIGHTS}
SEVERAL_LABELS = {"chosen": "chosen", "targets": "targets"}


def counts(num_classes: int) -> np.ndarray:
    """Numbers of training examples: many, some and few."""
    return np.geomspace(500, 5, num_classes).round().astype(np.int32)


def thresholds(num_classes: int) -> np.ndarray:
    """Probabilities that few and many examples reach, or have."""
    return (np.arange(1, num_classes + 1) % 16 / 32).astype(np.float32)


def metric(name: str, arrays: dict[str, str], **options: Any) -> Case:
    """A metric of each example."""
    return Case(public=f"metrics.{name}", arrays=arrays, **options)


def statistic(name: str, arrays: dict[str, str], **options: Any) -> Case:
    return metric(name, arrays, of="batch", couples=True, **options)


def in_tree(name: str, arrays: dict[str, str], **options: Any) -> Case:
    """A metric in a taxonomy."""
    return metric(name, arrays, parameters={"taxonomy": families, **options})


CASES: list[Case] = [
    in_tree("ancestor_ranks", {**SHARES, **LABELS}, depth=2),
    in_tree("ancestor_hits", {"chosen": "chosen", **LABELS}, depth=1),
    in_tree("node_counts", {"chosen": "chosen"}, depth=2),
    in_tree("set_heights", {"chosen": "chosen"}),
    in_tree("name_counts", {"chosen": "chosen"}),
    in_tree("mistake_heights", {"predictions": "sizes", **LABELS}),
    metric("label_ranks", {"scores": "logits", **LABELS}),
    metric("top_k_hits", {"scores": "logits", **LABELS}, parameters={"k": 3}),
    metric("threshold_hits", {**SHARES, **LABELS}, parameters={"threshold": 0.125}),
    metric("set_sizes", {"chosen": "chosen"}),
    metric("label_margins", {"scores": "logits", **LABELS}),
    metric("confident_classes", SHARES, parameters={"thresholds": thresholds}, ranges=ANY_LIMITS),
    # A sum for each pair of classes of the tests.
    statistic("confident_joint", {**SHARES, **LABELS}, sums=24),
    metric("voter_weights", {"num_labels": "sizes"}, parameters=POWERS, ranges=POSITIVE_POWERS),
    statistic(
        "dawid_skene",
        VOTES,
        parameters={**SIZES_OF_VOTES, "smoothing": 0.5, "num_steps": 2},
        ranges={"smoothing": POSITIVE},
        rounding=8,
    ),
    metric("anytime_interval", {"hits": "successes", "counts": "sizes"}),
    statistic("cluster_interval", {**HITS, "groups": "groups"}, parameters={"num_groups": 2}),
    statistic("shot_groups", {}, parameters={"class_counts": counts}, ranges=COUNTS),
    statistic("tally", {"values": "hits"}),
    statistic("tally_by_class", {"values": "hits", **LABELS}, parameters={"num_classes": int}),
    # Small whole weights, whose sums are exact.
    statistic("tally", {"values": "hits", **WEIGHTS}, variant="weights"),
    statistic("tally_by_class", OF_CLASSES, parameters={"num_classes": int}, variant="weights"),
    # Sums of floats in another order, on each device of split classes.
    metric(
        "expected_hits", {"chosen": "chosen", "plausibilities": "probabilities"}, class_rounding=4
    ),
    metric("example_f1", SEVERAL_LABELS),
    metric("label_coverage", SEVERAL_LABELS),
    statistic("tally_f1", {**SEVERAL_LABELS, **WEIGHTS}, sums=2),
    # All scores and targets, of the 24 classes of the tests.
    statistic(
        "mean_average_precision",
        {"scores": "logits", "targets": "targets", **WEIGHTS},
        sends=24,
        rounding=4,
    ),
    statistic("open_set_accuracy", {**HITS, "says_new": "hits", "is_new": "marks", **WEIGHTS}),
    statistic("auroc", {"scores": "outliers", "positives": "marks", **WEIGHTS}),
    statistic("oscr_curve", {"confidences": "outliers", **OPEN}),
    statistic("oscr_area", {"confidences": "outliers", **OPEN}),
]
