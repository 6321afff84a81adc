"""Losses of examples whose truth is more than one class, against the library's dense ones."""

import functools

import jax
import numpy as np
import pytest

from tests.parts.program.training.test_objectives import NUM_CLASSES, make_objective
from topk_jax import losses
from train.data.truths import SEVERAL, VOTES, Truths
from train.training import mixup, truth


def truths(rng, kind, size=6):
    examples = np.repeat(np.arange(size), 3)
    classes = np.concatenate([rng.choice(NUM_CLASSES, 3, replace=False) for _ in range(size)])
    # The first example has one class.
    kept = np.append(0, np.arange(3, len(examples)))
    shares = np.ones(len(examples)) if kind == SEVERAL else rng.random(len(examples)) + 0.1
    return Truths.of_entries(examples[kept], classes[kept], shares[kept], kind)


def dense(given):
    rows = np.zeros((len(given), NUM_CLASSES), np.float32)
    np.add.at(rows, (np.arange(len(given))[:, None], given.classes), given.shares)
    return rows


def batch(given):
    return {"labels": given.labels} | given.arrays(np.arange(len(given)))


@pytest.mark.parametrize("name", ["cross_entropy", "calibrated_top_k_hinge", "noised_balanced"])
@pytest.mark.parametrize("kind", [VOTES, SEVERAL])
def test_losses_and_gradients_are_those_of_the_dense_row(rng, name, kind):
    given, logits = truths(rng, kind), rng.normal(size=(6, NUM_CLASSES)).astype(np.float32)
    objective, keys = make_objective(name), jax.random.split(jax.random.key(0), 6)

    def of_labels(logits, labels):
        return objective.loss(logits, labels, keys, None)

    expected = losses.expect_over_labels(logits, dense(given), loss=of_labels)

    @jax.jit
    def found(logits):
        return objective.of_examples(logits, batch(given), keys, None)

    # Some sums in float32.
    np.testing.assert_allclose(found(logits), expected, rtol=1e-6, atol=1e-6)
    gradient = jax.grad(lambda logits: found(logits).sum())(logits)
    wanted = jax.grad(
        lambda logits: losses.expect_over_labels(logits, dense(given), loss=of_labels).sum()
    )(logits)
    np.testing.assert_allclose(gradient, wanted, rtol=1e-5, atol=1e-6)


def test_mixed_examples_have_the_truths_of_both(rng):
    given, logits = truths(rng, VOTES), rng.normal(size=(6, NUM_CLASSES)).astype(np.float32)
    keys = jax.random.split(jax.random.key(1), 6)

    def plain(labels):
        return losses.cross_entropy(logits, labels)

    _, of_truth = mixup.mix(keys, np.float32(1), np.zeros((6, 1), np.float32), batch(given))
    own = of_truth(lambda examples: (examples["labels"] == given.labels).astype(np.float32))
    other = dense(given)[np.arange(6) ^ 1]
    # Where neighbours have one label, the share of each is not seen by it.
    seen = given.labels != given.labels[np.arange(6) ^ 1]
    mixed = np.array(own[:, None] * dense(given) + (1 - own[:, None]) * other)
    # The shares may lack a rounding to 1.
    mixed /= mixed.sum(axis=1, keepdims=True)
    expected = losses.expect_over_labels(logits, mixed, loss=losses.cross_entropy)
    found = of_truth(functools.partial(truth.expect, plain))
    assert seen.any()
    np.testing.assert_allclose(found[seen], expected[seen], rtol=1e-5)
