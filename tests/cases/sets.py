"""The case of every function of sets. To add a function, add a case to `CASES`.

Thresholds are multiples of 1/64, which scores of the tests can equal.
"""

from typing import Any

import numpy as np

from tests.cases.case import Case, counts, margins
from tests.cases.ranges import (
    AT_LEAST_0,
    CLASS_COUNTS,
    INFINITY,
    MARGINS,
    NAN,
    PART,
    POSITIVE,
    Listed,
    Range,
)
from tests.cases.trees import genera, of_nodes

PROBABILITIES = {"probabilities": "probabilities"}
LABELS = {"labels": "labels"}


def of_entries(name: str, arrays: dict[str, str] = PROBABILITIES, **options: Any) -> Case:
    return Case(public=f"sets.{name}", arrays=arrays, of="entries", **options)


def of_examples(name: str, arrays: dict[str, str], **options: Any) -> Case:
    return Case(public=f"sets.{name}", arrays=arrays, **options)


def statistic(name: str, arrays: dict[str, str], **options: Any) -> Case:
    return Case(public=f"sets.{name}", arrays=arrays, of="batch", couples=True, **options)


def calibration(name: str, arrays: dict[str, str] = LABELS, **options: Any) -> Case:
    """A statistic of the scores of all classes, and of the labels."""
    given = {"parameters": {"error": 0.5}} | options
    return statistic(name, {"scores": "probabilities"} | arrays, **given)


def conformal(
    kind: str, *, needs_key: bool = False, ranges: Any = (), rounding: float = 0, **parameters: Any
) -> list[Case]:
    """The three functions of a kind of score."""
    key = {"key": "key"} if needs_key else {}
    return [
        of_entries(
            name,
            {**PROBABILITIES, **arrays, **key},
            parameters={"kind": kind, **parameters, **further},
            ranges=dict(ranges),
            rounding=rounding,
            variant=kind,
        )
        for name, arrays, further in (
            ("conformal_scores", {}, {}),
            ("conformal_label_scores", LABELS, {}),
            ("conformal_set", {}, {"quantiles": 0.625}),
        )
    ]


GROUPS = {"groups": "groups"}
SEEN: dict[str, Any] = {
    "calibration_outlier_scores": np.array([0.25, 0.75, 0.5], np.float32),
    "seen_once": np.array([True, True, False]),
}


def vectors(num_classes: int) -> np.ndarray:
    """Four vectors with an entry for each class."""
    return np.random.default_rng(1).normal(size=(4, num_classes)).astype(np.float32)


def combination(by: str, **options: Any) -> Case:
    return statistic(
        "combine",
        {"log_probabilities": "log_probabilities", **GROUPS},
        # Two sums of up to 16 logarithms, which their mean divides, and a softmax.
        **{"rounding": 8, "sums": 2, "variant": by} | options,
    )


CASES: list[Case] = [
    of_entries(
        "adjust_logits",
        {"logits": "logits"},
        parameters={"class_counts": counts, "tau": 0.5},
        ranges={"class_counts": CLASS_COUNTS, "tau": AT_LEAST_0},
    ),
    of_entries("adaptive_set", parameters={"error": 0.1}, ranges={"error": PART}),
    of_entries("threshold_set", parameters={"threshold": 0.125}),
    of_entries(
        "threshold_set",
        {"probabilities": "logits"},
        parameters={"threshold": margins},
        variant="of classes",
    ),
    of_entries("top_k_set", {"scores": "probabilities"}, parameters={"k": 3}),
    of_entries("top_k_set", {"scores": "logits"}, parameters={"k": 3}, variant="of logits"),
    of_entries("score_set", {"scores": "probabilities"}, parameters={"quantiles": 0.125}),
    *conformal("lac"),
    *conformal("margin"),
    *conformal("rank"),
    *conformal("aps", needs_key=True),
    *conformal(
        "raps",
        needs_key=True,
        ranges={"rank_penalty": AT_LEAST_0},
        rank_penalty=0.1,
        unpenalized_ranks=2,
    ),
    # A product and a sum may be contracted for one number of examples.
    *conformal("saps", needs_key=True, rounding=1, rank_penalty=0.1),
    *conformal(
        "pas",
        ranges={"class_counts": CLASS_COUNTS, "class_weights": MARGINS},
        class_counts=counts,
        class_weights=margins,
    ),
    statistic(
        "average_error_threshold", PROBABILITIES, parameters={"error": 0.2}, ranges={"error": PART}
    ),
    statistic("average_k_threshold", PROBABILITIES, parameters={"k": 2.5}),
    statistic("average_k_threshold", PROBABILITIES, parameters={"k": 8}, variant="8"),
    statistic("conformal_threshold", {**PROBABILITIES, **LABELS}, parameters={"error": 0.3}),
    statistic("temperature", {"logits": "logits", **LABELS}),
    combination("log_probabilities", parameters={"num_groups": 2}),
    combination("probabilities", parameters={"num_groups": 2, "by": "probabilities"}),
    combination("maximum", parameters={"num_groups": 2, "by": "maximum"}),
    combination(
        "weights",
        parameters={"num_groups": 2, "weights": np.array([1, 0.5], np.float32)},
        ranges={
            "weights": Listed(
                (np.array([1, NAN]), np.array([INFINITY, 1]), np.array([1, INFINITY]))
            )
        },
    ),
    statistic(
        "group_weights", {"log_probabilities": "log_probabilities", "sizes": "sizes", **LABELS}
    ),
    statistic("group_labels", {**LABELS, **GROUPS}, parameters={"num_groups": 2}),
    calibration(
        "hierarchical_quantile", {**LABELS, **GROUPS}, parameters={"error": 0.5, "num_groups": 2}
    ),
    calibration("conformal_quantile"),
    calibration("class_conditional_quantiles"),
    calibration("rank_calibrated_quantiles", {"ranks": "ranks", **LABELS}),
    calibration(
        "clustered_quantiles",
        {**LABELS, "key": "key"},
        parameters={"error": 0.5, "num_clusters": 2, "clustering_part": 0.5},
        ranges={"clustering_part": PART},
    ),
    calibration(
        "interpolated_quantiles",
        parameters={"error": 0.5, "weight": 0.5, "largest_score": 1.0},
        ranges={"weight": Range((1.5, -0.5, -INFINITY)), "largest_score": Listed((INFINITY, NAN))},
    ),
    calibration(
        "label_shift_quantiles",
        parameters={"error": 0.5, "weights": margins},
        ranges={"weights": MARGINS},
    ),
    of_examples(
        "covariate_shift_quantiles",
        {"log_weights": "outliers"},
        parameters={
            "calibration_scores": np.array([0.25, 0.5, 0.75], np.float32),
            "calibration_log_weights": np.array([0.0, 1.0, -1.0], np.float32),
            "error": 0.25,
        },
    ),
    of_entries(
        "utility_set",
        parameters={"utilities": lambda size: 1 / np.arange(1, size + 1, dtype=np.float32)},
        ranges={"utilities": Listed((np.array([1.0] * 7 + [INFINITY]),))},
    ),
    Case(
        public="sets.set_utilities",
        parameters={"kind": "reject", "num_classes": int, "alpha": 0.5, "beta": 2.0},
        ranges={"alpha": Range((1.5, -0.5)), "beta": POSITIVE},
        of="batch",
    ),
    Case(
        public="sets.good_turing_p_value",
        parameters={"class_counts": np.arange},
        ranges={"class_counts": Listed((np.array([3, 1, -1, 0]),))},
        of="batch",
    ),
    of_examples("new_class_p_values", {"outlier_scores": "outliers"}, parameters=SEEN),
    Case(public="sets.new_class_threshold", parameters=SEEN | {"error": 0.5}, of="batch"),
    of_entries(
        "open_set",
        {"members": "chosen", "outlier_scores": "outliers"},
        parameters={"known_to": 0.75, "new_from": 0.5},
    ),
    *(
        of_examples(
            "outlier_scores",
            {"logits": "logits"},
            parameters={"kind": kind},
            slopes=1,
            class_rounding=8,
            variant=kind,
        )
        for kind in ("energy", "logit", "probability")
    ),
    of_examples(
        "neighbor_scores",
        {"features": "probabilities"},
        parameters={"known_features": vectors, "k": 2},
        # A product of matrices may be added up in another order for fewer examples.
        rounding=8,
    ),
    statistic(
        "class_gaussian",
        {"features": "probabilities", "labels": "groups"},
        parameters={"num_classes": 2, "shrinkage": 0.5},
        ranges={"shrinkage": Range((1.5, -0.5, -INFINITY))},
        # Sums over the examples, and an inverse of a matrix of that condition.
        rounding=64,
        sums=24,
    ),
    of_examples(
        "mahalanobis_scores",
        {"features": "probabilities"},
        parameters={"means": vectors, "whitening": np.eye},
        rounding=8,
    ),
    statistic(
        "selective_threshold",
        {"confidences": "outliers", "hits": "hits"},
        parameters={"error": 0.5, "delta": 0.4},
    ),
    statistic("risk_controlled_index", {"losses": "curves"}, parameters={"error": 0.5}),
    of_examples(
        "false_negative_rates",
        {"probabilities": "probabilities", "targets": "targets"},
        parameters={"thresholds": np.array([0.5, 0.125, 0.125, 0.0625], np.float32)},
        ranges={"thresholds": Listed((np.array([0.125, 0.5, 0.125, 0.125], np.float32),))},
    ),
    statistic(
        "vote_quantile",
        {"scores": "ranks", "plausibilities": "probabilities"},
        parameters={"error": 0.25},
        # Its scores of all classes, of at most 24 in the tests.
        sends=24,
        variant="without draws",
    ),
    statistic(
        "vote_quantile",
        {"scores": "ranks", "plausibilities": "probabilities", "key": "key"},
        parameters={"error": 0.25, "num_samples": 3},
    ),
    of_examples("node_probabilities", PROBABILITIES, parameters={"taxonomy": genera}),
    of_entries(
        "node_scores",
        {**PROBABILITIES, "key": "key"},
        parameters={"taxonomy": genera},
        # A product and a sum may be contracted for one number of examples.
        rounding=1,
    ),
    of_examples("fewest_names", {"members": "chosen"}, parameters={"taxonomy": genera, "names": 2}),
    of_examples("node_set", {"nodes": "chosen"}, parameters={"taxonomy": of_nodes}),
]
