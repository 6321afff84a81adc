"""What the rules of sets promise, by 400 calibrations on a known law; and that others promise less.

The classifier is wrong: it is too sure, and the law has a long tail. The coverage of a calibration
is computed from the law at new examples, without drawing their labels. Ties apart, the mean
coverage of a rule with a guarantee is from 1 - error to that and 1 / (n + 1). Rules for other
promises are beside their references: votes and risks in test_modern_sets.py, new classes and
answers in test_new_classes.py, drift and covariate shift in test_drift.py, groups in
test_groups.py, label shift in test_conformal.py.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from topk_jax import sets
from topk_jax.taxonomy import Taxonomy

REPETITIONS, CALIBRATION, NEW, CLASSES, ERROR = 400, 91, 100, 6, 0.1
TREE = Taxonomy.from_paths([(f"genus {index // 2}", f"{index}") for index in range(CLASSES)])
COUNTS = np.array([400, 300, 200, 100, 60, 30])
# Standard errors, so that one of twenty rules in some hundred draws is outside by chance.
FEW = 3


class Examples(NamedTuple):
    """Examples of the law: what a classifier says, the law of the label, and a label."""

    probabilities: jax.Array
    law: jax.Array
    labels: jax.Array


def draw(key, number):
    """Examples whose classifier is too sure and has errors of its own."""
    keys = jax.random.split(key, 3)
    logits = jnp.log(COUNTS / 100.0)[None, :] + jax.random.normal(keys[0], (number, CLASSES))
    said = 2 * logits + jax.random.normal(keys[1], logits.shape)
    labels = jax.random.categorical(keys[2], logits)
    return Examples(jax.nn.softmax(said), jax.nn.softmax(logits), labels)


def by_score(quantile_of, kind, *, is_random=False, **options):
    """A rule: the classes whose score is at most the quantile of the labels' scores."""

    def rule(old, new, key):
        keys = jax.random.split(key) if is_random else (None, None)
        scores = sets.conformal_label_scores(
            old.probabilities, old.labels, kind=kind, key=keys[0], **options
        )
        quantile = quantile_of(scores, old.labels)
        return sets.conformal_set(new.probabilities, quantile, kind=kind, key=keys[1], **options)

    return rule


of_all = functools.partial(sets.conformal_quantile, error=ERROR)
of_each_class = functools.partial(
    sets.class_conditional_quantiles, error=ERROR, num_classes=CLASSES
)


def of_clusters(scores, labels):
    # One key, as of a user; the part is fixed, because its default depends on the labels.
    return sets.clustered_quantiles(
        scores,
        labels,
        key=jax.random.key(0),
        error=ERROR,
        num_classes=CLASSES,
        num_clusters=2,
        clustering_part=0.5,
    )


def halfway(scores, labels):
    return sets.interpolated_quantiles(scores, labels, error=ERROR, weight=0.5, num_classes=CLASSES)


def threshold(old, new, key):
    found = sets.conformal_threshold(old.probabilities, old.labels, error=ERROR)
    return sets.threshold_set(new.probabilities, found)


def nodes(old, new, key):
    keys = jax.random.split(key)
    scores = sets.node_scores(old.probabilities, TREE, key=keys[0])
    quantile = sets.conformal_quantile(scores, old.labels, error=ERROR)
    return sets.score_set(sets.node_scores(new.probabilities, TREE, key=keys[1]), quantile)


def two_names(old, new, key):
    chosen = threshold(old, new, key)
    return sets.node_set(sets.fewest_names(chosen, TREE, names=2), TREE)


def ranks_and_scores(old, new, key):
    quantiles, ranks = sets.rank_calibrated_quantiles(
        sets.conformal_label_scores(old.probabilities, old.labels, kind="lac"),
        sets.conformal_label_scores(old.probabilities, old.labels, kind="rank"),
        old.labels,
        error=ERROR,
        num_classes=CLASSES,
    )
    kept = sets.conformal_set(new.probabilities, quantiles, kind="lac")
    return kept & sets.conformal_set(new.probabilities, ranks, kind="rank")


def naive(old, new, key):
    return sets.adaptive_set(new.probabilities, error=ERROR)


def promised_by_probabilities(old, new, key):
    found = sets.average_error_threshold(old.probabilities, error=ERROR)
    return sets.threshold_set(new.probabilities, found)


def best_two(old, new, key):
    return sets.top_k_set(new.probabilities, k=2)


def two_on_average(old, new, key):
    found = sets.average_k_threshold(old.probabilities, k=2)
    return sets.threshold_set(new.probabilities, found)


def best_utility(old, new, key):
    worth = sets.set_utilities("u65", num_classes=CLASSES)
    return sets.utility_set(new.probabilities, utilities=worth)


RAPS = {"rank_penalty": 0.1, "unpenalized_ranks": 2}
# Scores of labels hardly ever tie: the coverage is exact.
EXACT = {
    "conformal_threshold": threshold,
    "lac": by_score(of_all, "lac"),
    "margin": by_score(of_all, "margin"),
    "pas": by_score(of_all, "pas", class_counts=COUNTS),
    "wpas": by_score(of_all, "pas", class_counts=COUNTS, class_weights=np.arange(1.0, 7.0)),
    "aps with a key": by_score(of_all, "aps", is_random=True),
    "raps with a key": by_score(of_all, "raps", is_random=True, **RAPS),
    "saps with a key": by_score(of_all, "saps", is_random=True, rank_penalty=0.1),
    "nodes with a key": nodes,
}
# Ties, and sets that are made larger, only add to the coverage.
AT_LEAST = {
    "rank": by_score(of_all, "rank"),
    "aps": by_score(of_all, "aps"),
    "raps": by_score(of_all, "raps", **RAPS),
    "saps": by_score(of_all, "saps", rank_penalty=0.1),
    "two names": two_names,
}
# Nothing is promised of all examples for probabilities that are wrong.
LESS = {
    "top_k_set": best_two,
    "average_k_threshold": two_on_average,
    "average_error_threshold": promised_by_probabilities,
    "adaptive_set": naive,
    "utility_set": best_utility,
}


@functools.cache
def examples():
    old, new = jax.random.split(jax.random.key(41))
    return tuple(
        jax.vmap(functools.partial(draw, number=number))(jax.random.split(key, REPETITIONS))
        for key, number in ((old, CALIBRATION), (new, NEW))
    )


def coverages(rule):
    """The coverage of all examples, `[repetitions]`, and of each class, `[repetitions, L]`."""
    old, new = examples()
    keys = jax.random.split(jax.random.key(14), REPETITIONS)
    chosen = jax.jit(jax.vmap(rule))(old, new, keys)
    covered = jnp.where(chosen, new.law, 0)
    return np.asarray(covered.sum(-1).mean(-1)), np.asarray(covered.sum(1) / new.law.sum(1))


def mean_and_error(values):
    return values.mean(), FEW * values.std(ddof=1) / math.sqrt(len(values))


@pytest.mark.parametrize("name", EXACT)
def test_the_coverage_is_what_was_asked(name):
    coverage, error = mean_and_error(coverages(EXACT[name])[0])
    assert error < 0.01
    assert 1 - ERROR - error <= coverage <= 1 - ERROR + 1 / (CALIBRATION + 1) + error


@pytest.mark.parametrize("name", AT_LEAST)
def test_the_coverage_is_at_least_what_was_asked(name):
    coverage, error = mean_and_error(coverages(AT_LEAST[name])[0])
    assert coverage >= 1 - ERROR - error
    # Not by sets of all classes.
    assert coverage < 0.99


@pytest.mark.parametrize("name", LESS)
def test_rules_without_a_calibration_promise_less(name):
    coverage, error = mean_and_error(coverages(LESS[name])[0])
    assert coverage < 1 - ERROR - error


def test_right_probabilities_are_all_that_some_of_them_need():
    for rule in (naive, promised_by_probabilities):
        old, new = examples()
        right = [one._replace(probabilities=one.law) for one in (old, new)]
        chosen = jax.vmap(functools.partial(rule, key=None))(*right)
        coverage, error = mean_and_error(np.asarray(jnp.where(chosen, new.law, 0).sum(-1).mean(-1)))
        assert coverage >= 1 - ERROR - error


def test_each_class_has_the_coverage_only_with_a_quantile_of_its_own():
    """Quantiles of all examples miss rare classes; those halfway, and of clusters, less."""
    rules = {
        "classes": by_score(of_each_class, "lac"),
        "all": by_score(of_all, "lac"),
        "halfway": by_score(halfway, "lac"),
        "clusters": by_score(of_clusters, "lac"),
        "ranks": ranks_and_scores,
    }
    found = {name: coverages(rule) for name, rule in rules.items()}
    means, errors = {}, {}
    for name, (_, of_classes) in found.items():
        means[name] = of_classes.mean(0)
        errors[name] = FEW * of_classes.std(0, ddof=1) / math.sqrt(REPETITIONS)
    assert (means["classes"] >= 1 - ERROR - errors["classes"]).all()
    rare = CLASSES - 1
    assert means["all"][rare] < 1 - ERROR - errors["all"][rare] - 0.1
    assert means["all"][rare] < means["halfway"][rare] < means["classes"][rare]
    # What is promised of all examples.
    for name, least in (("classes", 1 - ERROR), ("halfway", 1 - 2 * ERROR), ("all", 1 - ERROR)):
        coverage, error = mean_and_error(found[name][0])
        assert coverage >= least - error
    # A class of few examples has the quantile of all in place of that of a cluster.
    assert means["clusters"][rare] < 1 - ERROR - errors["clusters"][rare] - 0.1
    # Top-k errors are estimated on the examples of the quantile: RC3P misses a little more.
    assert (means["ranks"] >= 1 - ERROR - errors["ranks"] - 0.05).all()
    assert means["ranks"][rare] < 1 - ERROR - errors["ranks"][rare]
    assert found["ranks"][0].mean() <= found["classes"][0].mean()
