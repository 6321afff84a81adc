"""Taxonomies whose leaves are at several depths: their sets, metrics and losses."""

import functools
import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from tests import compilation, reference
from tests.parts.library.probabilities import distributions
from topk_jax import losses, metrics, sets
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
    "paths",
    [[], [("a", "b"), ()], [("a", "b"), ("a", "b")], [("a",), ("a", "b")], ["ab"], [("a", 3)]],
)
def test_wrong_paths_are_refused(paths):
    with pytest.raises((TypeError, ValueError), match="paths must"):
        Taxonomy.from_paths(paths)


@pytest.mark.parametrize(
    "parents",
    # Of another length, out of range, of several roots and of none; a circle, and a class above
    # a class.
    [(3, 3), (3, 3, 4, 3), (3, 1, 3, 3), (1, 0, 1, 1), (2.0, 2, 2, 3), (3, 2, 1, 3), (3, 0, 3, 3)],
)
def test_parents_that_are_no_tree_are_refused(parents):
    with pytest.raises((TypeError, ValueError), match="parents"):
        Taxonomy(("a", "b", "c", "d"), parents)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_leaves_at_several_depths_are_as_in_the_references(depth, rng):
    # In sixteenths: sums are exact, and some tie.
    probabilities = rng.multinomial(16, np.ones(NUM_CLASSES) / NUM_CLASSES, size=60) / 16
    labels, predictions = rng.integers(-1, NUM_CLASSES + 1, size=(2, 60))
    chosen = rng.random((60, NUM_CLASSES)) < rng.random((60, 1))
    for name, given in {
        "ancestor_ranks": (probabilities.astype(np.float32), labels),
        "ancestor_hits": (chosen, labels),
        "node_counts": (chosen,),
    }.items():
        found = getattr(metrics, name)(*given, TREE, depth=depth)
        np.testing.assert_array_equal(found, getattr(reference, name)(*given, TREE, depth=depth))
    for name, given in {
        "set_heights": (chosen,),
        "name_counts": (chosen,),
        "mistake_heights": (predictions, labels),
    }.items():
        found = getattr(metrics, name)(*given, TREE)
        np.testing.assert_array_equal(found, getattr(reference, name)(*given, TREE))
    shares = distributions(rng, 50, NUM_CLASSES)
    for name in ("node_probabilities", "node_scores"):
        found, wanted = (getattr(room, name)(shares, TREE) for room in (sets, reference))
        np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=1e-7)
    found, wanted = (
        room.soft_labels(labels, taxonomy=TREE, beta=3.0) for room in (losses, reference)
    )
    np.testing.assert_allclose(found, wanted, rtol=2e-6)


@pytest.mark.parametrize("names", [1, 2, 3, 7, 40])
def test_names_are_the_fewest_with_the_fewest_classes(names):
    chosen = np.array([*itertools.product([False, True], repeat=NUM_CLASSES)])
    found = np.asarray(sets.fewest_names(chosen, TREE, names=names))
    union = reference.node_set(found, TREE)
    np.testing.assert_array_equal(sets.node_set(found, TREE), union)
    assert not (chosen & ~union).any()
    if names < NUM_CLASSES:
        best = reference.fewest_names(chosen, TREE, names=names)
        np.testing.assert_array_equal(union.sum(axis=1), reference.node_set(best, TREE).sum(axis=1))
        np.testing.assert_array_equal(found.sum(axis=1), best.sum(axis=1))
    else:
        # There is room for every class.
        np.testing.assert_array_equal(union, chosen)
    # The genus in place of its only species would say less.
    assert not found[:, TREE.names.index("Fagus")].any()


def test_sets_in_several_blocks_have_the_names_of_each(rng):
    different, places = np.unique(
        rng.random((6000, NUM_CLASSES)) < 0.4, axis=0, return_inverse=True
    )
    found = sets.fewest_names(different[places], TREE, names=40)
    np.testing.assert_array_equal(found, sets.fewest_names(different, TREE, names=40)[places])


def test_a_genus_without_possible_classes_is_a_masked_node(rng):
    labels = rng.integers(0, NUM_CLASSES, size=60)
    logits = rng.normal(size=(60, NUM_CLASSES)).astype(np.float32)
    logits[:20, :2] = np.where(labels[:20, None] < 2, 0.0, -np.inf)
    weights = np.array([0.25, 0.0, 1.5])
    found, wanted = (
        room.sum_over_depths(
            logits, labels, TREE, loss=functools.partial(room.focal, gamma=2.0), weights=weights
        )
        for room in (losses, reference)
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_nodes_of_one_class_each_need_not_be_in_the_order_of_the_classes():
    tree = Taxonomy.from_paths([("Quercus", "robur"), ("ilex",)])
    logits, labels = np.array([[3.0, 0.0], [0.5, 2.0]]), np.array([0, 1])
    # At depth 1 each of the two nodes has one class.
    found = losses.sum_over_depths(
        logits, labels, tree, loss=losses.cross_entropy, weights=[1.0, 0.0]
    )
    np.testing.assert_array_equal(found, losses.cross_entropy(logits, labels))


@pytest.mark.parametrize("number", [1, 5, NUM_CLASSES, 7])
def test_counts_do_not_depend_on_the_batch(number, rng):
    chosen = rng.random((number, NUM_CLASSES)) < 0.5
    paths = [("plants", str(leaf)) for leaf in range(NUM_CLASSES)]
    tree = Taxonomy.from_paths([*paths[1:], ("x",)])
    each = np.array([metrics.name_counts(one, tree) for one in chosen])
    # XLA must optimize, for it to share a buffer that it may not.
    of_batch = compilation.for_users(lambda chosen: metrics.name_counts(chosen, tree))
    np.testing.assert_array_equal(of_batch(chosen), each)
    family = Taxonomy.from_paths(paths)
    of_batch = compilation.for_users(lambda chosen: metrics.node_counts(chosen, family, depth=1))
    np.testing.assert_array_equal(of_batch(chosen), chosen.any(axis=-1))
