"""Traced parameters outside their range: the result is NaN, as a `ValueError` cannot be raised.

The table names every parameter of every public function. A new one has to be put into it.
"""

import inspect
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from topk_jax import heads, losses, metrics, operators, sets

MODULES = (heads, losses, metrics, operators, sets)
NAN, INFINITY = float("nan"), float("inf")

SCORES = np.random.default_rng(0).normal(size=(2, 5)).astype(np.float32)
LABELS = np.array([1, 3], np.int32)
TARGETS = np.eye(5, dtype=np.float32)[LABELS]
PROBABILITIES = np.asarray(jax.nn.softmax(SCORES), np.float32)
COUNTS = np.array([5.0, 4.0, 3.0, 2.0, 1.0], np.float32)
KEY = jax.random.key(0)
HITS = np.array([True, False, True])
TRAINING_COUNTS = np.array([5, 50, 500], np.int32)

NOT_FINITE = (NAN, INFINITY)
AT_LEAST_0 = (-0.5, -INFINITY, *NOT_FINITE)
POSITIVE = (0.0, *AT_LEAST_0)
PART = (1.0, 1.5, *AT_LEAST_0)
WRONG_COUNTS = tuple(np.where(np.arange(5) == 2, wrong, COUNTS) for wrong in POSITIVE)
WRONG_MARGINS = tuple(np.where(np.arange(5) == 2, wrong, 0.5) for wrong in AT_LEAST_0)
NEGATIVE_COUNT = (np.array([5, -1, 500]),)


class Case(NamedTuple):
    """A call of a public function.

    Attributes:
        arguments: arguments of a call that is right.
        wrong: for each parameter that may be traced and has a range: values outside it.
        others: the names of the other parameters. They are static, or data with conventions that
            the batteries test: scores, labels, targets, masks, thresholds.
    """

    arguments: dict[str, Any]
    wrong: dict[str, tuple[Any, ...]]
    others: str


def of_logits(wrong=None, others="", **arguments):
    return Case(
        {"logits": SCORES, "labels": LABELS} | arguments, wrong or {}, f"logits labels {others}"
    )


def of_scores(wrong=None, others="", **arguments):
    return Case({"scores": SCORES, "k": 2} | arguments, wrong or {}, f"scores k axis {others}")


def of_features(wrong=None, others="", **arguments):
    head = heads.CosineHead(np.eye(5, dtype=np.float32), 2.0)
    given = {"features": SCORES, "head": head, "labels": LABELS} | arguments
    return Case(given, wrong or {}, f"features head labels block_size {others}")


def of_probabilities(wrong=None, others="", **arguments):
    return Case(
        {"probabilities": PROBABILITIES} | arguments, wrong or {}, f"probabilities {others}"
    )


def of_calibration(wrong=None, others="", **arguments):
    given = {"scores": PROBABILITIES, "labels": LABELS, "error": 0.25} | arguments
    return Case(given, wrong or {}, f"scores labels error num_classes {others}")


def of_kind(wrong, others, **arguments):
    given = {"probabilities": PROBABILITIES, "labels": LABELS, "quantiles": 0.75} | arguments
    names = f"probabilities kind key unpenalized_ranks {others}".split()
    given = {name: value for name, value in given.items() if name in {*names, *arguments}}
    return Case(given, wrong, " ".join(names))


def of_hits(wrong=None, others="", **arguments):
    return Case({"hits": HITS} | arguments, wrong or {}, f"hits {others}")


EPSILON = {"epsilon": AT_LEAST_0}
MARGINS = {"margins": WRONG_MARGINS, "scale": POSITIVE}
margins = np.full(5, 0.5, np.float32)
RANK_PENALTY = {"rank_penalty": AT_LEAST_0}
PAS = {"class_counts": WRONG_COUNTS, "class_weights": WRONG_MARGINS}

CASES = {
    "losses.assume_negative": of_logits(),
    "losses.average_k": of_logits(
        {"alpha": AT_LEAST_0}, "proposal_logits k axis_name", proposal_logits=SCORES, k=2, alpha=1.0
    ),
    "losses.average_k_candidates": Case({}, {}, "proposal_logits labels k axis_name"),
    "losses.binary_cross_entropy": Case({}, {}, "logits targets"),
    "losses.calibrated_top_k_hinge": of_logits(others="k"),
    "losses.cardinality_aware": Case({}, {}, "selector_logits costs"),
    "losses.cardinality_costs": of_logits(
        {"weight": AT_LEAST_0}, "sizes", sizes=(1, 2), weight=0.5
    ),
    "losses.class_balanced_weights": Case(
        {"class_counts": COUNTS, "beta": 0.5}, {"class_counts": WRONG_COUNTS, "beta": PART}, ""
    ),
    "losses.class_margins": Case(
        {"class_counts": COUNTS, "max_margin": 0.5},
        {"class_counts": WRONG_COUNTS, "max_margin": AT_LEAST_0},
        "",
    ),
    "losses.convex_top_k_hinge": of_logits(others="k"),
    "losses.cross_entropy": of_logits(
        {"label_smoothing": (1.5, *AT_LEAST_0)}, label_smoothing=0.25
    ),
    "losses.entmax_loss": of_logits({"alpha": (0.5, 2.5, *NOT_FINITE)}, alpha=1.5),
    "losses.expected_positive_regularization": of_logits(
        {"expected_positives": (5.5, *AT_LEAST_0), "beta": AT_LEAST_0},
        "axis_name",
        expected_positives=2.0,
        beta=0.5,
    ),
    "losses.expected_top_k_hinge": of_logits(
        EPSILON | MARGINS, "k num_nodes", k=2, epsilon=0.5, margins=margins, scale=2.0
    ),
    "losses.focal": of_logits({"gamma": AT_LEAST_0}, gamma=1.0),
    "losses.generalized_cross_entropy": of_logits({"q": (1.5, *POSITIVE)}, q=0.5),
    "losses.lapsum_top_k_loss": of_logits({"alpha": POSITIVE}, "k", k=2, alpha=0.5),
    "losses.ldam": of_logits(MARGINS, margins=margins, scale=2.0),
    "losses.logit_adjusted_cross_entropy": of_logits(
        {"class_counts": WRONG_COUNTS, "tau": AT_LEAST_0}, class_counts=COUNTS, tau=0.5
    ),
    "losses.noised_top_k_hinge": of_logits(
        EPSILON | MARGINS,
        "k num_samples key noise",
        k=2,
        epsilon=0.5,
        num_samples=3,
        key=KEY,
        margins=margins,
        scale=2.0,
    ),
    "losses.relaxed_top_k_cross_entropy": of_logits(
        {
            "top_k_weights": tuple(map(np.array, ([0.5, 0.25], [1.5, -0.5], [1.0, NAN]))),
            "tau": POSITIVE,
            "art_lambda": PART,
        },
        "method swap num_candidates softmax_top_1",
        top_k_weights=np.array([0.75, 0.25], np.float32),
        tau=0.5,
        art_lambda=0.25,
        method="odd_even",
        swap="logistic",
    ),
    "losses.role": of_logits(
        {"expected_positives": (5.5, *AT_LEAST_0), "weight": AT_LEAST_0},
        "label_logits axis_name",
        label_logits=SCORES,
        expected_positives=2.0,
        weight=0.5,
    ),
    "losses.sigmoid_top_k_loss": of_logits({"tau": POSITIVE}, "k", k=2, tau=0.5),
    "losses.smooth_top_k_hinge": of_logits({"tau": POSITIVE}, "k", k=2, tau=0.5),
    "losses.sparse_top_loss": Case({}, {}, "logits targets"),
    "losses.sparsemax_loss": of_logits(),
    "losses.symmetric_cross_entropy": of_logits(
        {"alpha": AT_LEAST_0, "beta": AT_LEAST_0, "log_zero": (0.0, 1.0, *NOT_FINITE)},
        alpha=0.5,
        beta=0.5,
        log_zero=-4.0,
    ),
    "losses.top_k_error": of_logits(others="k"),
    "losses.top_k_hinge": of_logits(others="k"),
    "losses.vector_scaling": of_logits(
        {"class_counts": WRONG_COUNTS, "gamma": AT_LEAST_0, "tau": AT_LEAST_0},
        class_counts=COUNTS,
        gamma=0.5,
        tau=0.5,
    ),
    "operators.entmax": Case(
        {"scores": SCORES, "alpha": 1.5}, {"alpha": (0.5, 2.5, *NOT_FINITE)}, "scores axis"
    ),
    "operators.expected_top_k_value": of_scores(EPSILON, "num_nodes", epsilon=0.5),
    "operators.lapsum_top_k": of_scores({"alpha": POSITIVE}, alpha=0.5),
    "operators.log_symmetric_polynomials": Case({}, {}, "log_values k axis"),
    "operators.p_norm_top_k": of_scores(
        {"p": (1.0, 2.5, *NOT_FINITE), "regularization": POSITIVE}, p=1.5, regularization=0.5
    ),
    "operators.perturbed_top_k_sum": of_scores(
        EPSILON, "key num_samples noise", key=KEY, num_samples=3, epsilon=0.5
    ),
    "operators.perturbed_top_k_value": of_scores(
        EPSILON, "key num_samples noise", key=KEY, num_samples=3, epsilon=0.5
    ),
    "operators.relaxed_ranks": of_scores(
        {"tau": POSITIVE, "art_lambda": PART},
        "method swap",
        tau=0.5,
        art_lambda=0.25,
        method="odd_even",
        swap="logistic",
    ),
    "operators.sigmoid_top_k": of_scores({"tau": POSITIVE}, tau=0.5),
    "operators.sinkhorn_top_k": of_scores({"epsilon": POSITIVE}, epsilon=0.5),
    "operators.sparse_top": Case(
        {"scores": SCORES, "k": np.array([2, 2])}, {"k": ([-1, -1], [6, 6])}, "scores axis"
    ),
    "operators.top_k_sum": of_scores(),
    "operators.top_k_value": of_scores(),
    "sets.adaptive_set": of_probabilities({"error": PART}, error=0.25),
    "sets.adjust_logits": Case(
        {"logits": SCORES, "class_counts": COUNTS, "tau": 0.5},
        {"class_counts": WRONG_COUNTS, "tau": AT_LEAST_0},
        "logits",
    ),
    "sets.average_error_threshold": of_probabilities({"error": PART}, error=0.25),
    "sets.average_k_threshold": of_probabilities(others="k"),
    "sets.class_average_k_thresholds": of_probabilities(others="labels k"),
    "sets.class_conditional_quantiles": of_calibration(),
    "sets.clustered_quantiles": of_calibration(
        {"clustering_part": PART}, "key num_clusters", key=KEY, num_clusters=2, clustering_part=0.5
    ),
    "sets.conformal_label_scores": of_kind(
        RANK_PENALTY | PAS, "labels", kind="raps", key=KEY, rank_penalty=0.25, unpenalized_ranks=1
    ),
    "sets.conformal_quantile": Case({}, {}, "scores labels error"),
    "sets.conformal_scores": of_kind(
        RANK_PENALTY | PAS, "", kind="raps", key=KEY, rank_penalty=0.25, unpenalized_ranks=1
    ),
    "sets.conformal_set": of_kind(
        RANK_PENALTY | PAS,
        "quantiles",
        kind="raps",
        key=KEY,
        rank_penalty=0.25,
        unpenalized_ranks=1,
    ),
    "sets.conformal_threshold": of_probabilities(others="labels error"),
    "sets.interpolated_quantiles": of_calibration(
        {"weight": (1.5, *AT_LEAST_0), "largest_score": NOT_FINITE}, weight=0.5, largest_score=1.0
    ),
    "sets.label_shift_quantiles": of_calibration(
        {"weights": (*WRONG_MARGINS, np.zeros(5))}, weights=margins
    ),
    "sets.macro_average_k_thresholds": of_probabilities(
        {"class_counts": WRONG_COUNTS}, "k", k=2, class_counts=COUNTS
    ),
    "sets.rank_calibrated_quantiles": of_calibration(others="ranks"),
    "sets.score_set": Case({}, {}, "scores quantiles"),
    "sets.temperature": of_logits(),
    "sets.threshold_set": of_probabilities(others="threshold"),
    "sets.top_k_set": Case({}, {}, "scores k"),
    "metrics.accuracy": of_hits(others="where"),
    "metrics.label_ranks": Case({}, {}, "scores labels"),
    "metrics.macro_accuracy": of_hits(others="labels num_classes where"),
    "metrics.set_sizes": Case({}, {}, "chosen"),
    "metrics.shot_accuracy": of_hits(
        {"class_counts": NEGATIVE_COUNT},
        "labels few many where",
        labels=np.arange(3),
        class_counts=TRAINING_COUNTS,
    ),
    "metrics.shot_groups": Case(
        {"class_counts": TRAINING_COUNTS}, {"class_counts": NEGATIVE_COUNT}, "few many"
    ),
    "metrics.tally": Case({}, {}, "values where"),
    "metrics.tally_by_class": Case({}, {}, "values labels num_classes where"),
    "metrics.threshold_hits": of_probabilities(others="labels threshold"),
    "metrics.top_k_hits": Case({}, {}, "scores labels k"),
    "heads.average_k": of_features(
        {"alpha": AT_LEAST_0},
        "proposal_head k axis_name",
        proposal_head=heads.LinearHead(np.eye(5, dtype=np.float32)),
        k=2,
        alpha=0.5,
    ),
    "heads.calibrated_top_k_hinge": of_features(others="k"),
    "heads.convex_top_k_hinge": of_features(others="k"),
    "heads.cross_entropy": of_features(),
    "heads.noised_top_k_hinge": of_features(
        EPSILON | MARGINS,
        "k num_samples key",
        k=2,
        epsilon=0.5,
        num_samples=3,
        key=KEY,
        margins=margins,
        scale=2.0,
    ),
    "heads.scores": Case({}, {}, "features head"),
    "heads.top_k_hinge": of_features(others="k"),
}
# The parameters of another kind, and of a head, which are no arguments of the functions above.
FURTHER_CASES = {
    f"sets.{name}": case._replace(
        arguments={
            key: value
            for key, value in case.arguments.items()
            if key not in {"key", "rank_penalty", "unpenalized_ranks"}
        }
        | {"kind": "pas", "class_counts": COUNTS, "class_weights": margins},
        wrong=PAS,
    )
    for name in ("conformal_label_scores", "conformal_scores", "conformal_set")
    for case in [CASES[f"sets.{name}"]]
}


# Names, which cannot be traced.
NEVER_TRACED = {"class_axis_name", "implementation"}


def function_of(name):
    module, function = name.split(".")
    return next(
        getattr(each, function) for each in MODULES if each.__name__ == f"topk_jax.{module}"
    )


def test_the_table_has_every_parameter_of_every_public_function():
    public = {
        f"{module.__name__.removeprefix('topk_jax.')}.{name}": getattr(module, name)
        for module in MODULES
        for name in module.__all__
        if inspect.isfunction(getattr(module, name))
    }
    parameters = {
        name: {*inspect.signature(function).parameters} - NEVER_TRACED
        for name, function in public.items()
    }
    assert {name: {*case.wrong, *case.others.split()} for name, case in CASES.items()} == parameters


def _is_marked(results):
    """Whether no number and no class of the results could be taken for a right one."""
    return all(
        not leaf.any() if leaf.dtype == bool else np.isnan(leaf).all()
        for leaf in map(np.asarray, jax.tree.leaves(results))
    )


def _pairs():
    for name, case in [*CASES.items(), *FURTHER_CASES.items()]:
        given = {
            parameter: wrong
            for parameter, wrong in case.wrong.items()
            if parameter in case.arguments
        }
        if given:
            yield pytest.param(name, case, given, id=f"{name}-{'-'.join(given)}")


# What the gradient is taken in.
DIFFERENTIATED = {"losses": "logits", "operators": "scores", "heads": "features"}
# A step function of the logits.
WITHOUT_GRADIENT = {"losses.cardinality_costs"}


@pytest.mark.parametrize(("name", "case", "wrong"), [*_pairs()])
def test_a_traced_parameter_out_of_its_range_gives_nan(name, case, wrong):
    function, given = function_of(name), case.arguments
    right = {parameter: jnp.asarray(given[parameter]) for parameter in wrong}
    rest = {name: value for name, value in given.items() if name not in wrong}
    differentiated = DIFFERENTIATED.get(name.split(".")[0])
    has_gradient = differentiated in rest and name not in WITHOUT_GRADIENT

    @jax.jit
    def result_and_gradient(traced):
        if not has_gradient:
            return function(**rest, **traced), None

        def total(array):
            result = function(**rest | {differentiated: array}, **traced)
            return result.sum(), result

        gradient, result = jax.grad(total, has_aux=True)(rest[differentiated])
        return result, gradient

    result, _ = result_and_gradient(right)
    assert not any(np.isnan(leaf).any() for leaf in jax.tree.leaves(result))
    assert not _is_marked(result)
    for parameter, values in wrong.items():
        for value in values:
            traced = right | {parameter: jnp.asarray(value, right[parameter].dtype)}
            result, gradient = result_and_gradient(traced)
            assert _is_marked(result), (parameter, value, result)
            if has_gradient:
                # A class that cannot be selected has no derivative in any case.
                assert np.isnan(gradient).any(axis=-1).all(), (parameter, value, gradient)
            with pytest.raises(ValueError, match=rf"\b{parameter}\b"):
                function(**rest, **right | {parameter: np.asarray(value)})
