"""SoftSort: ranks as softmaxes of the distances to the sorted scores."""

import jax
import jax.numpy as jnp

from topk_jax.operators._top_k import largest


def log_soft_sort(scores: jax.Array, k: int, tau: jax.Array) -> jax.Array:
    """The logarithms of the relaxed ranks of finite scores [..., L], `[..., k, L]`."""
    sorted_scores, _ = largest(scores, k)
    distances = jnp.abs(scores[..., None, :] - sorted_scores[..., :, None])
    return jax.nn.log_softmax(-distances / tau, axis=-1)
