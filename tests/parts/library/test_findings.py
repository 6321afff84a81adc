"""Cases that a hunt for wrong numbers once found."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from topk_jax import losses, metrics, operators, sets

LOGITS = jnp.array([[1.0, 2.0, 0.0]])


@pytest.mark.parametrize("label", [2**32, 2**32 + 1, -(2**32) + 2])
def test_wide_labels_do_not_wrap_around(label):
    labels = np.array([label])
    assert jnp.isnan(losses.cross_entropy(LOGITS, labels)).all()
    assert jnp.isnan(losses.cross_entropy(LOGITS, [label])).all()
    assert not metrics.top_k_hits(LOGITS, labels, k=3).any()
    assert jnp.isnan(sets.conformal_threshold(jax.nn.softmax(LOGITS), labels, error=0.5))


def test_wide_counts_and_targets_do_not_wrap_around():
    for counts in (np.array([2**32 + 16, 1]), [2**32 + 16, 1]):
        margins = losses.class_margins(counts, max_margin=0.5)
        # Float32 of a fourth root.
        np.testing.assert_allclose(margins, [0.5 * (2**32 + 16) ** -0.25, 0.5], rtol=1e-6)
    assert metrics.shot_groups(np.array([2**32 + 3]))["many"].all()
    targets = np.array([[2**32 + 1, 0, 0]])
    with pytest.raises(ValueError, match="targets must be from 0 to 1, got 4294967297"):
        losses.binary_cross_entropy(LOGITS, targets)
    with pytest.raises(ValueError, match="values must be from -2147483648 to 2147483647"):
        metrics.tally(np.array([2**32 + 3]))
    # Ints of any size are numbers, unless no float is near.
    assert losses.focal(LOGITS, jnp.array([1]), gamma=2**40) == 0
    with pytest.raises(TypeError, match="gamma must be a real number"):
        losses.focal(LOGITS, jnp.array([1]), gamma=10**400)


@pytest.mark.parametrize(
    ("scores", "k", "tau"), [([-1e4, 1e4, 3.0, 5.0], 2, 1e-3), ([0.0, 30.0, 3.0, 5.0], 1, 0.1)]
)
def test_the_slope_in_a_cold_temperature_is_zero(scores, k, tau):
    def loss(tau):
        return losses.smooth_top_k_hinge(jnp.array(scores), jnp.array(0), k=k, tau=tau)

    # In float64 it is below 1e-100: the entropy of a coin that never falls on its other side.
    assert abs(jax.jit(jax.grad(loss))(tau)) < 1e-30


@pytest.mark.parametrize("lead", [10.0, 15.0, 17.0, 20.0, 60.0, 1e4])
def test_nearly_certain_candidates_are_told_apart(lead):
    proposals = jnp.array([[0.0, lead, 0.0], [0.0, 1.25 * lead, 0.0]])
    candidates = losses.average_k_candidates(proposals, jnp.array([0, 0]), k=1.5)
    np.testing.assert_array_equal(candidates, [[False] * 3, [False, True, False]])


def test_adaptive_sets_are_never_empty(rng):
    probabilities = jax.nn.softmax(jnp.asarray(rng.normal(size=(2000, 50)), jnp.float32))
    assert (sets.adaptive_set(probabilities, error=0.9999999).sum(axis=-1) == 1).all()
    chosen = sets.adaptive_set(jnp.array([0.5, 0.499999]), error=0.999999)
    np.testing.assert_array_equal(chosen, [True, False])


def test_nan_in_given_noise_is_not_hidden():
    noise = jnp.array([[[jnp.nan, 0.0, 0.0], [0.0, 0.0, 0.0]]])
    scores = jnp.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
    values = operators.perturbed_top_k_value(
        None, scores, 2, epsilon=1.0, num_samples=1, noise=noise
    )
    np.testing.assert_array_equal(values, [jnp.nan, 2.0])


def test_a_masked_label_leaves_the_order_of_the_others():
    # Shifted by 1e30, all others were equal.
    logits = jnp.array([[0.1, 0.5, 0.3, -jnp.inf]])

    def loss(logits):
        settings = {"k": 1, "epsilon": 0.01, "num_samples": 2, "key": jax.random.key(0)}
        return losses.noised_top_k_hinge(logits, jnp.array([3]), **settings).sum()

    gradient = jax.jit(jax.grad(loss))(logits)
    np.testing.assert_array_equal(gradient, [[0.0, 0.0, 1.0, 0.0]])


def test_tallies_of_unlike_shapes_do_not_add_up():
    hits = np.array([True, False])
    by_class = metrics.tally_by_class(hits, np.array([0, 1]), num_classes=2)
    with pytest.raises(ValueError, match="other must be a tally of shape"):
        metrics.tally(hits) + by_class
