"""Hits, sizes, heights and losses in a taxonomy, beside walks from each class to the root."""

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from tests import compilation, reference
from tests.reference._taxonomies import common_height, members, node_at
from topk_jax import losses, metrics, sets
from topk_jax.taxonomy import Taxonomy

# Leaves at several depths, and a genus of one species.
TREE = Taxonomy.from_paths(
    [
        ("Fagaceae", "Quercus", "robur"),
        ("Salicaceae", "Salix", "alba"),
        ("Fagaceae", "Quercus", "ilex"),
        ("Fagaceae", "Fagus", "sylvatica"),
        ("Salicaceae", "Populus tremula"),
        ("Ginkgo",),
    ]
)
NUM_CLASSES = TREE.num_classes
DEPTHS = (1, 2, 3)
OUTSIDE = (-1, NUM_CLASSES)
WRONG: Any = None


@pytest.fixture
def labels(rng):
    return rng.integers(0, NUM_CLASSES, size=(3, 20))


@pytest.fixture
def chosen(rng):
    found = rng.random((3, 20, NUM_CLASSES)) < rng.random((3, 20, 1))
    found[0, 0] = False
    return found


def nodes(depth):
    """The node of each class at a depth."""
    return np.array([node_at(TREE, leaf, depth) for leaf in range(NUM_CLASSES)])


@pytest.mark.parametrize("depth", DEPTHS)
def test_ranks_of_nodes_are_those_of_the_sums(depth, labels, rng):
    # In sixteenths: sums are exact, and some tie.
    probabilities = rng.multinomial(16, np.ones(NUM_CLASSES) / 6, size=labels.shape) / 16
    above = np.unique(nodes(depth))
    sums = np.stack([probabilities[..., members(TREE, node)].sum(-1) for node in above], -1)
    own = np.searchsorted(above, nodes(depth)[labels])
    expected = metrics.label_ranks(sums.astype(np.float32), own)
    found = metrics.ancestor_ranks(probabilities.astype(np.float32), labels, TREE, depth=depth)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("depth", DEPTHS)
def test_hits_and_counts_are_of_the_nodes_of_the_members(depth, labels, chosen):
    hits = metrics.ancestor_hits(chosen, labels, TREE, depth=depth)
    counts = metrics.node_counts(chosen, TREE, depth=depth)
    for place in np.ndindex(labels.shape):
        found = {*nodes(depth)[chosen[place]].tolist()}
        assert hits[place] == (nodes(depth)[labels[place]] in found)
        assert counts[place] == len(found)


def test_heights_are_those_of_the_lowest_common_node(labels, chosen, rng):
    heights = np.asarray(metrics.set_heights(chosen, TREE))
    predictions = rng.integers(0, NUM_CLASSES, size=labels.shape)
    mistakes = np.asarray(metrics.mistake_heights(predictions, labels, TREE))
    for place in np.ndindex(labels.shape):
        leaves = np.flatnonzero(chosen[place]).tolist()
        assert heights[place] == (common_height(TREE, *leaves) if leaves else -1)
        assert mistakes[place] == common_height(TREE, int(predictions[place]), int(labels[place]))
    assert {*heights.ravel().tolist()} == {-1, 0, 1, 2, 3}


def test_the_number_of_names_is_that_of_the_fewest_that_add_no_class(chosen):
    names = sets.fewest_names(chosen, TREE, names=NUM_CLASSES)
    np.testing.assert_array_equal(metrics.name_counts(chosen, TREE), names.sum(axis=-1))


@pytest.mark.parametrize("label", OUTSIDE)
def test_a_label_out_of_range_is_a_miss(label):
    given, everything = jnp.array([label]), jnp.ones((1, NUM_CLASSES), bool)
    assert metrics.ancestor_ranks(
        jnp.full((1, NUM_CLASSES), 1 / 6), given, TREE, depth=1
    ).tolist() == [3]
    assert not metrics.ancestor_hits(everything, given, TREE, depth=1).any()
    assert metrics.mistake_heights(jnp.array([0]), given, TREE).tolist() == [-1]
    assert metrics.mistake_heights(given, jnp.array([0]), TREE).tolist() == [-1]
    assert np.isnan(losses.soft_labels(given, TREE, beta=1.0)).all()


def test_soft_labels_are_spread_by_the_distance(labels):
    expected = reference.soft_labels(labels, taxonomy=TREE, beta=3.0)
    # A dozen roundings of float32.
    np.testing.assert_allclose(losses.soft_labels(labels, TREE, beta=3.0), expected, rtol=2e-6)


def test_a_loss_at_every_depth_is_that_of_sums_over_nodes(labels, rng):
    logits = rng.normal(size=(*labels.shape, NUM_CLASSES)).astype(np.float32)
    # A genus without possible classes is a masked node.
    logits[0, :, [0, 2]] = np.where(np.isin(labels[0], [0, 2]), 0.0, -np.inf)
    loss, weights = functools.partial(losses.focal, gamma=2.0), np.array([0.25, 0.0, 1.5])
    expected = np.zeros(labels.shape)
    for depth, weight in zip(DEPTHS, weights, strict=True):
        above = np.unique(nodes(depth))
        with np.errstate(divide="ignore"):
            of_nodes = np.stack(
                [np.log(np.exp(logits[..., members(TREE, one)]).sum(-1)) for one in above], -1
            )
        own = np.searchsorted(above, nodes(depth)[labels])
        expected += weight * reference.focal(of_nodes, own, gamma=2.0)
    found = losses.sum_over_depths(logits, labels, TREE, loss=loss, weights=weights)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


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


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: metrics.node_counts(np.ones((2, 5), bool), TREE, depth=1),
            ValueError,
            "chosen must have one entry for each of the 6 classes of the taxonomy",
        ),
        (
            lambda: metrics.node_counts(np.ones((2, 6), bool), TREE, depth=4),
            ValueError,
            r"depth must be from 1 to 3 \(the depth of the taxonomy\), got 4",
        ),
        (
            lambda: metrics.mistake_heights(np.array([0]), np.array([0]), WRONG),
            TypeError,
            "taxonomy must be a Taxonomy, got None",
        ),
        (
            lambda: losses.sum_over_depths(
                np.ones((1, 6)), np.array([0]), TREE, loss=losses.cross_entropy, weights=np.ones(1)
            ),
            ValueError,
            "weights must .*3",
        ),
        (
            lambda: losses.sum_over_depths(
                np.ones((1, 6)),
                np.array([0]),
                TREE,
                loss=losses.cross_entropy,
                weights=np.array([1, -1, 0]),
            ),
            ValueError,
            "weights must be at least 0, got -1",
        ),
    ],
)
def test_wrong_arguments_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
