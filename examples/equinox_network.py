"""The expected top-K hinge with an Equinox module: no key, no samples.

    python -m examples.equinox_network

Needs Equinox: `pip install '.[train,examples]'`, or `make test-peers PEERS=examples`.

Equinox uses `vmap` to apply a module to a batch. The loss takes the complete batch at once.
"""

import equinox as eqx
import jax
import numpy as np
import optax

from examples import digits_data
from topk_jax import losses, metrics

NUM_STEPS = 400
BATCH_SIZE = 100


def main() -> float:
    """Trains and returns the top-3 accuracy on test images."""
    train, train_labels, test, test_labels = digits_data.load()
    network = eqx.nn.MLP(64, 10, width_size=128, depth=1, key=jax.random.key(0))
    optimizer = optax.sgd(0.1, momentum=0.9, nesterov=True)
    opt_state = optimizer.init(eqx.filter(network, eqx.is_array))

    @eqx.filter_jit
    def step(network, opt_state, images, labels):
        def mean_loss(network):
            logits = jax.vmap(network)(images)
            return losses.expected_top_k_hinge(logits, labels, k=3, epsilon=1.0).mean()

        loss, gradient = eqx.filter_value_and_grad(mean_loss)(network)
        updates, opt_state = optimizer.update(gradient, opt_state)
        return eqx.apply_updates(network, updates), opt_state, loss

    order = np.random.default_rng(0)
    for number in range(NUM_STEPS):
        batch = order.choice(len(train), BATCH_SIZE, replace=False)
        network, opt_state, loss = step(network, opt_state, train[batch], train_labels[batch])
        if number % 100 == 99:
            print(f"step {number + 1}: loss {loss:.3f}")
    hits = metrics.top_k_hits(jax.vmap(network)(test), test_labels, k=3)
    accuracy = float(hits.mean())
    print(f"top-3 accuracy on {len(test)} test images: {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
