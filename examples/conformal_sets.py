"""Sets that contain the label with a given probability, for any classifier.

    python -m examples.conformal_sets

The guarantee holds on average over draws of the calibration examples. The example draws them many
times and prints the mean coverage beside the requested one.
"""

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.linear_model import LogisticRegression

from examples import digits_data
from topk_jax import metrics, sets

NUM_DRAWS = 200
COVERAGES = (0.9, 0.95, 0.99)


def main() -> dict[float, float]:
    """Returns the mean coverage for each requested coverage."""
    train, train_labels, test, test_labels = digits_data.load()
    classifier = LogisticRegression(C=0.01, max_iter=200).fit(train[:300], train_labels[:300])
    images = np.concatenate([train[300:], test])
    labels = jnp.concatenate([train_labels[300:], test_labels])
    probabilities = jnp.asarray(classifier.predict_proba(images), jnp.float32)

    def cover(order: jax.Array, error: float) -> tuple[jax.Array, jax.Array]:
        """The coverage and mean size of one draw."""
        ours, others = order[:500], order[500:]
        threshold = sets.conformal_threshold(probabilities[ours], labels[ours], error=error)
        hits = metrics.threshold_hits(probabilities[others], labels[others], threshold)
        sizes = metrics.set_sizes(sets.threshold_set(probabilities[others], threshold))
        return hits.mean(), sizes.mean()

    keys = jax.random.split(jax.random.key(0), NUM_DRAWS)
    orders = jax.vmap(lambda key: jax.random.permutation(key, len(labels)))(keys)
    found = {}
    for coverage in COVERAGES:
        error = round(1 - coverage, 10)
        draws = jax.jit(jax.vmap(lambda order, error=error: cover(order, error)))
        covered, sizes = draws(orders)
        found[coverage] = float(covered.mean())
        print(
            f"requested {coverage}: {found[coverage]:.4f}, with {sizes.mean():.2f} classes per set"
        )
    return found


if __name__ == "__main__":
    main()
