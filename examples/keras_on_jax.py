"""A top-K loss in a Keras 3 model with the JAX backend.

    python -m examples.keras_on_jax

Needs Keras: `pip install '.[train,examples]'`, or `make test-peers PEERS=examples`.

Keras passes labels and predictions to the loss, expects one loss per example, and takes the mean.
"""

import os

os.environ["KERAS_BACKEND"] = "jax"

import jax
import keras

from examples import digits_data
from topk_jax import losses, metrics


def top_3_loss(labels: jax.Array, logits: jax.Array) -> jax.Array:
    """The expected top-3 hinge, [n]."""
    # Keras passes labels as floating-point numbers, [n] or [n, 1].
    return losses.expected_top_k_hinge(logits, labels.reshape(-1).astype("int32"), k=3, epsilon=1.0)


def main() -> float:
    """Trains and returns the top-3 accuracy on test images."""
    keras.utils.set_random_seed(0)
    train, train_labels, test, test_labels = digits_data.load()
    model = keras.Sequential([keras.layers.Dense(128, activation="relu"), keras.layers.Dense(10)])
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True)
    model.compile(optimizer=optimizer, loss=top_3_loss)
    model.fit(train, train_labels, batch_size=100, epochs=30, verbose=2)
    logits = model.predict(test, verbose=0)
    accuracy = float(metrics.top_k_hits(logits, test_labels, k=3).mean())
    print(f"top-3 accuracy on {len(test)} test images: {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
