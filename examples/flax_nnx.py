"""The smooth top-K hinge with a Flax NNX module.

    python -m examples.flax_nnx

The optimizer updates the module in place. The loss takes its logits like any other array.
"""

import jax
import numpy as np
import optax
from flax import nnx

from examples import digits_data
from topk_jax import losses, metrics

NUM_STEPS = 400
BATCH_SIZE = 100


class Network(nnx.Module):
    """One hidden layer."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.hidden = nnx.Linear(64, 128, rngs=rngs)
        self.out = nnx.Linear(128, 10, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Maps images [n, 64] to logits [n, 10]."""
        return self.out(nnx.relu(self.hidden(images)))


@nnx.jit
def step(
    network: Network, optimizer: nnx.Optimizer, images: jax.Array, labels: jax.Array
) -> jax.Array:
    """Takes one optimizer step in place and returns the loss."""

    def mean_loss(network: Network) -> jax.Array:
        return losses.smooth_top_k_hinge(network(images), labels, k=3, tau=1.0).mean()

    loss, gradient = nnx.value_and_grad(mean_loss)(network)
    optimizer.update(network, gradient)
    return loss


def main() -> float:
    """Trains and returns the top-3 accuracy on test images."""
    train, train_labels, test, test_labels = digits_data.load()
    network = Network(nnx.Rngs(0))
    optimizer = nnx.Optimizer(network, optax.sgd(0.1, momentum=0.9, nesterov=True), wrt=nnx.Param)
    order = np.random.default_rng(0)
    for number in range(NUM_STEPS):
        batch = order.choice(len(train), BATCH_SIZE, replace=False)
        loss = step(network, optimizer, train[batch], train_labels[batch])
        if number % 100 == 99:
            print(f"step {number + 1}: loss {loss:.3f}")
    accuracy = float(metrics.top_k_hits(network(test), test_labels, k=3).mean())
    print(f"top-3 accuracy on {len(test)} test images: {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
