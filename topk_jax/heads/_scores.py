"""The scores of a head whose classes may be split over devices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax.heads._blocks import unit_vectors
from topk_jax.heads._head import Head, check_scores

__all__ = ["scores"]


def scores(features: ArrayLike, head: Head) -> jax.Array:
    r"""The scores of all classes of a head, or of the classes on this device.

    If the weights are split over devices by classes, this is a sharded head. No device has the
    weights or the scores of all classes, and devices do not exchange them. In `jax.shard_map`, the
    head has the classes of the device; give the name of the mapped axis to the loss, as
    `class_axis_name`. Along Explicit and Auto axes of a mesh, the scores are split like the
    weights.

    Args:
        features: floating-point features x, `[..., d]`.
        head: a `LinearHead` or a `CosineHead` of L classes.

    Returns:
        The scores, `[..., L]`, in float32 or float64.

    Raises:
        TypeError: an argument has the wrong type or dtype.
        ValueError: the shapes do not match.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jax.sharding import AxisType, NamedSharding, PartitionSpec
        >>> from topk_jax import heads, losses
        >>> mesh = jax.make_mesh((1,), ("classes",), axis_types=(AxisType.Explicit,))
        >>> by_classes = NamedSharding(mesh, PartitionSpec(None, "classes"))
        >>> with jax.set_mesh(mesh):
        ...     head = heads.LinearHead(jax.device_put(jnp.eye(3), by_classes))
        ...     logits = heads.scores(jnp.array([[3.0, 2.5, 1.0]]), head)
        ...     loss = losses.top_k_hinge(logits, jnp.array([1]), k=1)
        >>> print(*logits.sharding.spec, loss)
        None classes [1.5]

    See Also:
        `losses.cross_entropy`.

    Source: Garcin et al. (2022), for cosine heads.
    """
    given = check_scores(features, head)
    vectors = given.layer.weights.astype(given.rows.dtype)
    if given.unit:
        vectors = unit_vectors(vectors, axis=0)
    product = given.rows @ vectors
    bias = given.layer.bias
    return product if bias is None else product + jnp.broadcast_to(bias, product.shape)
