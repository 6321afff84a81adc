"""SoftSort: ranks as softmaxes of the distances to the sorted scores."""

import jax
import jax.numpy as jnp

from topk_jax.operators._top_k import select_largest


def log_soft_sort(scores: jax.Array, k: int, tau: jax.Array) -> jax.Array:
    """The logarithms of the relaxed ranks of finite scores [..., L], `[..., k, L]`.

    Hazard: the derivative of JAX's abs at 0 is 1, so equal scores would have slopes that depend on
    the order of the classes. Choice: gap times sign(gap), whose derivative at 0 is 0. Cost: none.
    """
    sorted_scores, _ = select_largest(scores, k)
    gaps = scores[..., None, :] - sorted_scores[..., :, None]
    return jax.nn.log_softmax(-gaps * jnp.sign(gaps) / tau, axis=-1)
