"""scikit-learn's handwritten digits as arrays, for the examples."""

import jax
import jax.numpy as jnp
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def load() -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Training images [1347, 64] in [0, 1] and labels, and 450 test images and labels."""
    images, labels = load_digits(return_X_y=True)
    train, test, train_labels, test_labels = train_test_split(
        images / 16, labels, test_size=450, stratify=labels, random_state=0
    )
    return (
        jnp.asarray(train, jnp.float32),
        jnp.asarray(train_labels, jnp.int32),
        jnp.asarray(test, jnp.float32),
        jnp.asarray(test_labels, jnp.int32),
    )
