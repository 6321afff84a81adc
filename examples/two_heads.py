"""The average-K loss with a network of two heads on frozen features.

    python -m examples.two_heads

The label head makes the predictions. During training the proposal head suggests other classes that
an image might have. optax trains both heads and freezes the features, as for a large network.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from examples import digits_data
from topk_jax import losses, metrics, sets

NUM_STEPS = 600
BATCH_SIZE = 100
K = 2


def init(key: jax.Array) -> dict[str, jax.Array]:
    """Random features of 64 pixels, and two heads on them."""
    keys = jax.random.split(key, 3)
    return {
        "features": jax.random.normal(keys[0], (64, 512)) / 8,
        "labels": jax.random.normal(keys[1], (512, 10)) / jnp.sqrt(512),
        "proposals": jax.random.normal(keys[2], (512, 10)) / jnp.sqrt(512),
    }


def network(params: dict[str, jax.Array], images: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Maps images [n, 64] to the logits of the two heads, each [n, 10]."""
    features = jax.nn.relu(images @ params["features"])
    return features @ params["labels"], features @ params["proposals"]


def main() -> tuple[float, float]:
    """Trains and returns the accuracy and the mean size of sets with two classes on average."""
    train, train_labels, test, test_labels = digits_data.load()
    train, calibration = train[:-200], train[-200:]
    train_labels = train_labels[:-200]
    # SGD with momentum for the heads, no updates for the features.
    optimizer = optax.multi_transform(
        {"trained": optax.sgd(0.05, momentum=0.9, nesterov=True), "frozen": optax.set_to_zero()},
        {"features": "frozen", "labels": "trained", "proposals": "trained"},
    )

    def loss(params, images, labels):
        logits, proposal_logits = network(params, images)
        return losses.average_k(logits, proposal_logits, labels, k=K, alpha=0.3)

    @jax.jit
    def step(params, opt_state, images, labels):
        value, gradient = jax.value_and_grad(loss)(params, images, labels)
        updates, opt_state = optimizer.update(gradient, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    params = init(jax.random.key(0))
    before = params["features"]
    opt_state = optimizer.init(params)
    order = np.random.default_rng(0)
    for number in range(NUM_STEPS):
        batch = order.choice(len(train), BATCH_SIZE, replace=False)
        params, opt_state, value = step(params, opt_state, train[batch], train_labels[batch])
        if number % 200 == 199:
            print(f"step {number + 1}: loss {value:.3f}")
    print(f"features unchanged: {bool((params['features'] == before).all())}")
    threshold = sets.average_k_threshold(jax.nn.softmax(network(params, calibration)[0]), k=K)
    probabilities = jax.nn.softmax(network(params, test)[0])
    hits = metrics.threshold_hits(probabilities, test_labels, threshold)
    sizes = metrics.set_sizes(sets.threshold_set(probabilities, threshold))
    accuracy, size = float(hits.mean()), float(metrics.tally(sizes).mean())
    print(f"average-{K} accuracy: {accuracy:.3f}, with {size:.2f} classes per set")
    return accuracy, size


if __name__ == "__main__":
    main()
