"""Losses of examples whose truth is several classes, or that are mixed, against the dense ones."""

import functools
from types import SimpleNamespace

import jax
import numpy as np
import optax
import pytest
import scipy.stats

from tests import reference
from tests.parts.program.training.test_objectives import NUM_CLASSES, make_objective
from topk_jax import losses
from train.data.truths import SEVERAL, VOTES, Truths
from train.training import randomness, steps, truth
from train.training.losses import LOSSES
from train.training.optimizer import Optimizer
from train.training.state import TrainState

SEED, STEP, ALPHA = 3, 5, np.float32(0.4)


def truths(rng, kind, size=6):
    examples = np.repeat(np.arange(size), 3)
    classes = np.concatenate([rng.choice(NUM_CLASSES, 3, replace=False) for _ in range(size)])
    # The first example has one class.
    kept = np.append(0, np.arange(3, len(examples)))
    shares = np.ones(len(examples)) if kind == SEVERAL else rng.random(len(examples)) + 0.1
    return Truths.of_entries(examples[kept], classes[kept], shares[kept], kind)


@pytest.mark.parametrize("name", ["cross_entropy", "noised_top_k_hinge"])
@pytest.mark.parametrize("kind", [VOTES, SEVERAL])
def test_losses_and_gradients_are_those_of_the_dense_row(rng, name, kind):
    given, logits = truths(rng, kind), rng.normal(size=(6, NUM_CLASSES)).astype(np.float32)
    batch = {"labels": given.labels} | given.arrays(np.arange(6))
    dense = np.zeros((6, NUM_CLASSES), np.float32)
    np.add.at(dense, (np.arange(6)[:, None], given.classes), given.shares)
    objective, keys = make_objective(name), jax.random.split(jax.random.key(0), 6)

    def of_dense(logits):
        return losses.expect_over_labels(
            logits, dense, loss=lambda *both: objective.loss(*both, keys, None)
        )

    @jax.jit
    def found(logits):
        return objective.of_examples(logits, batch, keys, None)

    # Some sums in float32.
    np.testing.assert_allclose(found(logits), of_dense(logits), rtol=1e-6, atol=1e-6)
    gradient, wanted = (jax.grad(lambda x, f=f: f(x).sum())(logits) for f in (found, of_dense))
    np.testing.assert_allclose(gradient, wanted, rtol=1e-5, atol=1e-6)


@jax.jit
def mixed(inputs, labels, alpha):
    """The mixed inputs and each example's own share."""
    positions = np.arange(len(inputs), dtype=np.int32)
    keys = randomness.mixup_keys(SEED, STEP, positions)
    found, of_truth = truth.mix(keys, alpha, inputs, {"labels": labels})
    return found, of_truth(lambda of: (of["labels"] == labels).astype(np.float32))


def swapped(array):
    """The other one of each pair of neighbours."""
    return array[np.arange(len(array)) ^ 1]


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_shares_follow_their_distribution(alpha):
    count = 20_000
    _, shares = mixed(np.zeros((count, 1), np.float32), np.arange(count), np.float32(alpha))
    # Not up to 1: with alpha 0.2, float32 rounds 2 % of the shares to 1.
    places = np.linspace(0, 0.999, 1000)
    found = np.searchsorted(np.sort(shares), places, side="right") / count
    expected = scipy.stats.beta(alpha, alpha).cdf(places)
    # Dvoretzky, Kiefer and Wolfowitz: the largest difference of the two distribution functions is
    # above this with probability 1e-6.
    assert np.abs(found - expected).max() < np.sqrt(np.log(2 / 1e-6) / (2 * count))


def test_a_tiny_alpha_mixes_nothing():
    _, shares = mixed(np.zeros((100, 1), np.float32), np.arange(100), np.float32(1e-45))
    assert set(shares.tolist()) == {0.0, 1.0}


@pytest.mark.parametrize(
    ("loss", "parameters", "parts"),
    [("cross_entropy", {"label_smoothing": 0.1}, 1), ("focal", {"gamma": 2.0}, 2)],
)
def test_gradients_of_a_mixed_batch(loss, parameters, parts, rng):
    features = rng.normal(size=(8, 6)).astype(np.float32)
    kernel = rng.normal(size=(6, 5)).astype(np.float32)
    labels = rng.integers(5, size=8, dtype=np.int32)
    spec = LOSSES[loss]

    def apply(variables, inputs, **_settings):
        return inputs @ variables["params"]["kernel"], {"batch_stats": {}}

    step = steps.make_train_step(
        SimpleNamespace(apply=apply),
        functools.partial(spec.objective, parameters),
        # The parameters move by minus the gradient.
        lambda _values: Optimizer(optax.sgd(1.0), optax.constant_schedule(1.0)),
        augment=lambda _key, row: row,
        normalize=lambda rows: rows,
        devices=SimpleNamespace(axis=None, of_batch=lambda outputs: outputs),
        parts=parts,
    )
    state = TrainState(
        step=np.int32(STEP),
        params={"kernel": kernel},
        batch_stats={},
        opt_state=optax.sgd(1.0).init(None),
    )
    hyperparameters = {
        "seed": np.uint32(SEED),
        "loss": spec.hyperparameters(parameters, np.ones(5, int)),
        "optimizer": {},
        "mixup_alpha": ALPHA,
    }
    positions = np.arange(8, dtype=np.int32)
    batch = {"images": features, "labels": labels, "positions": positions, "examples": positions}
    after, metrics = jax.jit(step)(state, hyperparameters, batch)
    inputs, shares = mixed(features, positions, ALPHA)
    own = np.asarray(shares, np.float64)
    assert len(set(own.tolist())) == 8
    expected = own[:, None] * features + (1 - own[:, None]) * swapped(features)
    # Two products and a sum in float32, of numbers below 4: some roundings of 2.4e-7.
    np.testing.assert_allclose(inputs, expected, rtol=0, atol=1e-6)
    logits, others = expected @ kernel, swapped(labels)
    value, gradient = getattr(reference, loss), getattr(reference, f"{loss}_gradient")
    by_logits = own[:, None] * gradient(logits, labels, **parameters)
    by_logits += (1 - own[:, None]) * gradient(logits, others, **parameters)
    mean = own * value(logits, labels, **parameters)
    mean += (1 - own) * value(logits, others, **parameters)
    guesses = logits.argmax(axis=-1)
    hits = own * (guesses == labels) + (1 - own) * (guesses == others)
    moved = kernel.astype(np.float64) - after.params["kernel"]
    # Sums of some dozens of roundings of 6e-8, relative to kernels of at most 3.
    np.testing.assert_allclose(moved, expected.T @ by_logits / 8, rtol=0, atol=2e-6)
    np.testing.assert_allclose(metrics["loss"], mean.mean(), rtol=2e-6)
    np.testing.assert_allclose(metrics["accuracy"], hits.mean(), rtol=0, atol=1e-6)
