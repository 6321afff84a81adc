"""The noised top-K hinge in a training loop with plain JAX and optax.

    python -m examples.plain_jax

A loss returns one loss per example; your code takes the mean, makes the keys and runs the loop. One
key per batch is enough. With one key per example, a run does not depend on how batches are split.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from examples import digits_data
from topk_jax import losses, metrics

NUM_STEPS = 400
BATCH_SIZE = 100


def init(key: jax.Array) -> dict[str, jax.Array]:
    """A network with one hidden layer."""
    first, second = jax.random.split(key)
    return {
        "hidden": jax.random.normal(first, (64, 128)) / 8,
        "out": jax.random.normal(second, (128, 10)) / jnp.sqrt(128),
    }


def network(params: dict[str, jax.Array], images: jax.Array) -> jax.Array:
    """Maps images [n, 64] to logits [n, 10]."""
    return jax.nn.relu(images @ params["hidden"]) @ params["out"]


def main() -> float:
    """Trains and returns the top-3 accuracy on test images."""
    train, train_labels, test, test_labels = digits_data.load()
    optimizer = optax.sgd(0.1, momentum=0.9, nesterov=True)

    def mean_loss(params, images, labels, key):
        logits = network(params, images)
        return losses.noised_top_k_hinge(
            logits, labels, k=3, epsilon=1.0, num_samples=5, key=key
        ).mean()

    @jax.jit
    def step(params, opt_state, images, labels, key):
        loss, gradient = jax.value_and_grad(mean_loss)(params, images, labels, key)
        updates, opt_state = optimizer.update(gradient, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    params = init(jax.random.key(0))
    opt_state = optimizer.init(params)
    order = np.random.default_rng(0)
    for number in range(NUM_STEPS):
        batch = order.choice(len(train), BATCH_SIZE, replace=False)
        key = jax.random.fold_in(jax.random.key(1), number)
        params, opt_state, loss = step(params, opt_state, train[batch], train_labels[batch], key)
        if number % 100 == 99:
            print(f"step {number + 1}: loss {loss:.3f}")
    hits = metrics.top_k_hits(network(params, test), test_labels, k=3)
    accuracy = float(hits.mean())
    print(f"top-3 accuracy on {len(test)} test images: {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
