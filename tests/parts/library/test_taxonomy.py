"""Taxonomies, and sets that are their nodes, beside loops over all nodes and all subsets."""

import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from topk_jax import sets
from topk_jax.taxonomy import Taxonomy

# Leaves at several depths, a genus of one species, and a family that has a class of its own.
PATHS = (
    ("Fagaceae", "Quercus", "robur"),
    ("Fagaceae", "Quercus", "ilex"),
    ("Fagaceae", "Fagus", "sylvatica"),
    ("Salicaceae", "Salix", "alba"),
    ("Salicaceae", "Populus tremula"),
    ("Salicaceae", "Salix", "nigra"),
    ("Ginkgo",),
)
TREE = Taxonomy.from_paths(PATHS)
NUM_CLASSES = len(PATHS)
WRONG: Any = "tree"
# A dozen roundings of float32.
ROUNDING = 2e-6


def classes_of(tree):
    """Which classes each node has, [V, L], by a walk from each class to the root."""
    below = np.zeros((tree.num_nodes, tree.num_classes), bool)
    for leaf in range(tree.num_classes):
        node = leaf
        below[node, leaf] = True
        while tree.parents[node] != node:
            node = tree.parents[node]
            below[node, leaf] = True
    return below


def distributions(rng, *shape):
    weights = rng.gamma(0.5, size=shape)
    return (weights / weights.sum(axis=-1, keepdims=True)).astype(np.float32)


def test_nodes_are_the_classes_those_above_and_the_root():
    assert TREE.names[:NUM_CLASSES] == tuple(path[-1] for path in PATHS)
    assert TREE.names[NUM_CLASSES:] == (
        *("Fagaceae", "Quercus", "Fagus", "Salicaceae", "Salix", "all"),
    )
    assert [TREE.names[parent] for parent in TREE.parents] == [
        *("Quercus", "Quercus", "Fagus", "Salix", "Salicaceae", "Salix", "all"),
        *("all", "Fagaceae", "Fagaceae", "all", "Salicaceae", "all"),
    ]
    assert (TREE.num_classes, TREE.num_nodes) == (7, 13)
    np.testing.assert_array_equal(TREE.sizes, classes_of(TREE).sum(axis=1))
    assert Taxonomy.from_paths(PATHS) == TREE
    # Static, so that a compiled function takes it.
    assert jax.jit(lambda tree: tree.num_nodes)(TREE) == 13


def test_one_class_is_a_tree():
    tree = Taxonomy.from_paths([("only",)])
    assert (tree.names, tree.parents, tree.num_classes) == (("only", "all"), (1, 1), 1)
    scores = sets.node_scores(jnp.ones((2, 1)), tree)
    assert scores.tolist() == [[0.0], [0.0]]
    assert sets.fewest_names(jnp.array([[True], [False]]), tree, names=3).tolist() == [
        [True, False],
        [False, False],
    ]


@pytest.mark.parametrize(
    ("paths", "error", "message"),
    [
        ([], ValueError, "paths must name at least one class, got none"),
        ([("a", "b"), ()], ValueError, "paths must name each class once, got an empty one"),
        ([("a", "b"), ("a", "b")], ValueError, "paths must name each class once, got a/b twice"),
        ([("a",), ("a", "b")], ValueError, "paths must end at classes, got the class a above oth"),
        (["ab"], TypeError, "paths must be sequences of names, got 'ab'"),
        ([("a", 3)], TypeError, r"paths must be sequences of names, got \('a', 3\)"),
    ],
)
def test_wrong_paths_are_refused(paths, error, message):
    with pytest.raises(error, match=message):
        Taxonomy.from_paths(paths)


@pytest.mark.parametrize(
    ("parents", "error", "message"),
    [
        ((2, 2), ValueError, "must have one entry for each .*, got 3 names and 2 parents"),
        ((2, 2, 3), ValueError, "parents must be from 0 to 2, got 3"),
        ((2, 1, 2), ValueError, r"parents must have one root, the last node 2, got the roots \[1"),
        ((1, 0, 1), ValueError, r"parents must have one root, the last node 2, got the roots \[\]"),
        ((2.0, 2, 2), TypeError, "parents must be integers"),
        ([2, 2, 2], TypeError, "names and parents must be tuples, got tuple and list"),
    ],
)
def test_parents_that_are_no_tree_are_refused(parents, error, message):
    with pytest.raises(error, match=message):
        Taxonomy(("a", "b", "c"), parents)


def test_a_circle_and_a_class_above_a_class_are_refused():
    with pytest.raises(ValueError, match=r"must be a tree, got a circle through node [12]"):
        Taxonomy(("leaf", "a", "b", "root"), (3, 2, 1, 3))
    with pytest.raises(ValueError, match="parents must be nodes that come after all classes"):
        Taxonomy(("genus", "leaf", "leaf", "root"), (3, 0, 3, 3))


def test_probabilities_of_nodes_are_sums_over_their_classes(rng):
    probabilities = distributions(rng, 2, 5, NUM_CLASSES)
    found = sets.node_probabilities(probabilities, TREE)
    np.testing.assert_allclose(found, probabilities @ classes_of(TREE).T, rtol=ROUNDING, atol=1e-9)


def expected_scores(row, uniform):
    """By the candidate sets from the likeliest class up."""
    below = classes_of(TREE)
    way = [int(row.argmax())]
    while TREE.parents[way[-1]] != way[-1]:
        way.append(TREE.parents[way[-1]])
    sums = [0.0, *(float(row[below[node]].sum()) for node in way)]
    scores = []
    for leaf in range(NUM_CLASSES):
        first = next(i for i, node in enumerate(way) if below[node, leaf])
        scores.append(sums[first] + uniform * (sums[first + 1] - sums[first]))
    return scores


@pytest.mark.parametrize("key", [None, jax.random.key(5)])
def test_scores_are_those_of_the_candidate_sets(key, rng):
    probabilities = distributions(rng, 50, NUM_CLASSES)
    uniform = np.zeros(50) if key is None else np.asarray(jax.random.uniform(key, (50,)))
    expected = [
        expected_scores(row, u) for row, u in zip(probabilities.astype(float), uniform, strict=True)
    ]
    found = sets.node_scores(probabilities, TREE, key=key)
    np.testing.assert_allclose(found, expected, rtol=ROUNDING, atol=1e-7)


def test_a_set_of_a_quantile_is_a_node(rng):
    probabilities = distributions(rng, 200, NUM_CLASSES)
    scores = sets.node_scores(probabilities, TREE)
    nodes = {tuple(row) for row in classes_of(TREE).tolist()}
    for quantile in (0.0, 0.3, 0.7, 0.99, math.inf):
        members = np.asarray(sets.score_set(scores, quantile))
        assert {tuple(row) for row in members.tolist()} <= nodes


@pytest.mark.parametrize("randomised", [False, True])
def test_the_coverage_is_what_was_asked(randomised, rng):
    error, covered = 0.2, []
    for index in range(200):
        probabilities = distributions(rng, 90, NUM_CLASSES)
        labels = (rng.random((90, 1)) < probabilities.cumsum(axis=1)).argmax(axis=1)
        key = jax.random.key(index) if randomised else None
        scores = sets.node_scores(probabilities, TREE, key=key)
        quantile = sets.conformal_quantile(scores[:49], labels[:49], error=error)
        chosen = np.asarray(sets.score_set(scores[49:], quantile))
        covered.append(chosen[np.arange(41), labels[49:]].mean())
    standard_error = np.std(covered) / math.sqrt(len(covered))
    assert np.mean(covered) >= 1 - error - 2 * standard_error
    if randomised:
        # No two scores tie: at most 1 / (n + 1) more.
        assert np.mean(covered) <= 1 - error + 1 / 50 + 2 * standard_error


def test_a_nan_is_in_all_scores_of_its_example_alone():
    probabilities = jnp.array([[0.5, 0.5] + 5 * [0.0], [0.5, jnp.nan] + 5 * [0.0]])
    scores = np.asarray(sets.node_scores(probabilities, TREE))
    assert np.isfinite(scores[0]).all()
    assert np.isnan(scores[1]).all()


@pytest.mark.parametrize("names", [1, 2, 3, 7, 40])
def test_names_are_the_fewest_with_the_fewest_classes(names):
    below = classes_of(TREE)
    members = np.array([*itertools.product([False, True], repeat=NUM_CLASSES)])
    found = np.asarray(sets.fewest_names(members, TREE, names=names))
    costs = cheapest(below, min(names, 3)) if names < 7 else None
    for row, chosen in zip(members, found, strict=True):
        union = below[chosen].any(axis=0)
        np.testing.assert_array_equal(sets.node_set(chosen, TREE), union)
        assert not (row & ~union).any()
        if costs is None:
            # There is room for every class.
            assert (union == row).all()
        else:
            assert (union.sum(), chosen.sum()) == costs[tuple(row)]
    # The genus in place of its only species would say less.
    assert not found[:, TREE.names.index("Fagus")].any()


def cheapest(below, names):
    """The classes and the names of the best nodes for every set, by all choices of nodes."""
    found = {}
    unions = [
        (below[list(nodes)].any(axis=0), number)
        for number in range(names + 1)
        for nodes in itertools.combinations(range(len(below)), number)
    ]
    for row in itertools.product([False, True], repeat=NUM_CLASSES):
        members = np.array(row)
        found[row] = min(
            (int(union.sum()), number) for union, number in unions if not (members & ~union).any()
        )
    return found


def test_blocks_of_rows_change_nothing(monkeypatch, rng):
    members = rng.random((9, NUM_CLASSES)) < 0.4
    expected = sets.fewest_names(members, TREE, names=2)
    monkeypatch.setattr("topk_jax.sets._taxonomic._BLOCK", 100)
    jax.clear_caches()
    np.testing.assert_array_equal(sets.fewest_names(members, TREE, names=2), expected)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: sets.node_scores(np.ones((2, 3)) / 3, TREE),
            ValueError,
            r"one entry for each of the 7 classes of the taxonomy, got shape \(2, 3\)",
        ),
        (
            lambda: sets.node_probabilities(np.ones((2, 7)), WRONG),
            TypeError,
            "taxonomy must be a Taxonomy, got 'tree' of type str",
        ),
        (
            lambda: sets.fewest_names(np.ones((2, 7)), TREE, names=1),
            TypeError,
            "members must be a boolean array, got dtype float",
        ),
        (
            lambda: sets.node_set(np.ones((2, 7), bool), TREE),
            ValueError,
            r"one entry for each of the 13 nodes of the taxonomy, got shape \(2, 7\)",
        ),
        (
            lambda: sets.fewest_names(np.ones((2, 7), bool), TREE, names=0),
            ValueError,
            "names must be at least 1, got 0",
        ),
        (
            lambda: sets.node_scores(np.ones((2, 7)), TREE, key=WRONG),
            TypeError,
            "key must be a key made by jax.random.key, got str",
        ),
    ],
)
def test_wrong_arguments_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
