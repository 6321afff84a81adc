"""The evaluation of images by five crops, as `train.data.ten_crops` has them, and mirrored ones."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def mirrored_too(crops: jax.Array) -> jax.Array:
    """Crops [n, c, height, width, channels], and mirrored crops, as images [2 c n, ...]."""
    both = jnp.concatenate([crops, jnp.flip(crops, axis=-2)], axis=1)
    return both.reshape(-1, *crops.shape[2:])


def averaged(outputs: Any, num_images: int, average: Callable[[jax.Array], jax.Array]) -> Any:
    """What the head returns for images, from what it returns for their crops.

    Args:
        outputs: logits [v n, L], or two of them; the crops of an image are one after another.
        num_images: the number of images n.
        average: see `Objective.average`.
    """
    return jax.tree.map(
        lambda logits: average(logits.reshape(num_images, -1, logits.shape[-1])), outputs
    )
