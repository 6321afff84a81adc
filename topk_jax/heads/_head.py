"""Linear heads, which turn features into the scores of the classes, and blocks of examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks
from topk_jax._checks import as_array, floating_array

__all__ = ["LinearHead", "in_blocks", "scores", "unit_vectors"]


class LinearHead(NamedTuple):
    r"""A head whose scores are affine functions of the features.

    .. math:: s = W^\top x + b

    Attributes:
        weights: W, floating-point, `[d, L]`.
        bias: b, floating-point, `[L]`, or `None` for none. A bias of -inf masks a class.

    Example:
        >>> head = LinearHead(jnp.eye(3), bias=jnp.array([0.0, 0.0, -1.0]))
        >>> print(scores(jnp.array([1.0, 2.0, 1.0]), head))
        [1. 2. 0.]
    """

    weights: ArrayLike
    bias: ArrayLike | None = None


# `help` shows types as they are written here, in place of the references of named tuples to them.
_types = LinearHead.__new__.__annotations__
_types.update({name: getattr(one, "__forward_arg__", one) for name, one in _types.items()})


def unit_vectors(vectors: ArrayLike, *, axis: int) -> jax.Array:
    r"""Vectors divided by their length: the scores of two such are cosines.

    .. math:: u = v / \lVert v \rVert

    A vector shorter than 1e-12 becomes 0, without a gradient. A cosine head is
    `LinearHead(scale * unit_vectors(weights, axis=0))` of features that are unit vectors too.

    Args:
        vectors: floating-point, `[..., d]` or with another axis for the d entries of a vector.
        axis: the axis of the entries.

    Returns:
        The shape of the vectors, in float32 or float64.

    Example:
        >>> print(unit_vectors(jnp.array([3.0, 4.0]), axis=-1))
        [0.6 0.8]

    Source: Garcin et al. (2022), "Stochastic smoothing of the top-K calibrated hinge loss".
    """
    vectors = floating_array(vectors, "vectors", axis)
    # Squares of long vectors overflow. A power of two rounds nothing.
    squares = (vectors * vectors).sum(axis=axis, keepdims=True)
    scaled = vectors * 2.0 ** -(jnp.finfo(vectors.dtype).maxexp // 2 + 10)
    scaled_squares = (scaled * scaled).sum(axis=axis, keepdims=True)
    long = squares > 2.0 ** (5 * jnp.finfo(vectors.dtype).maxexp // 8)
    # Written so that a NaN is kept.
    tiny = squares <= 1e-24
    inverse_length = jax.lax.rsqrt(jnp.where(tiny, 1.0, jnp.where(long, scaled_squares, squares)))
    return jnp.where(tiny, 0.0, jnp.where(long, scaled, vectors) * inverse_length)


def scores(features: ArrayLike, head: LinearHead) -> jax.Array:
    r"""The scores of all classes of a head, or of the classes on this device.

    Devices that have parts of the weights exchange nothing: the scores are split like the weights.

    Args:
        features, head: see `topk_jax.heads`.

    Returns:
        The scores, `[..., L]`, in float32 or float64.

    Example:
        >>> head = LinearHead(jnp.eye(2), bias=jnp.array([0.0, 1.0]))
        >>> print(scores(jnp.array([[3.0, 2.5]]), head))
        [[3.  3.5]]

    Source: none; the product that every classifier ends with.
    """
    given, head = check_head(features, head)
    product = given @ jnp.asarray(head.weights).astype(given.dtype)
    return product if head.bias is None else product + jnp.broadcast_to(head.bias, product.shape)


def in_blocks(
    loss: Callable[[Any, Any], jax.Array], features: Any, labels: Any, *, block_size: int
) -> jax.Array:
    """A loss of single examples, for a few examples at a time, so that many classes fit in memory.

    The gradient computes each block again: the scores of only one block are in memory. Products of
    matrices are slow if a block has few examples. Call it in `jax.jit`: outside, each call compiles
    the loss.

    Args:
        loss: a function of the features and the labels of some examples, with a number for each,
            `[n, ...]`. It may close over parameters, which get gradients.
        features: an array or a tree of arrays, with the examples along their first axis.
        labels: the same, such as `(labels, keys)`.
        block_size: static number of examples in a block, at least 1. It need not divide n.

    Returns:
        The numbers of all examples, `[n, ...]`, as from `loss(features, labels)`.

    Example:
        >>> from topk_jax import losses
        >>> def loss(features, labels):
        ...     return losses.top_k_hinge(features @ jnp.eye(3), labels, k=1)
        >>> print(in_blocks(loss, 2 * jnp.eye(3), jnp.array([0, 1, 1]), block_size=2))
        [0. 0. 3.]

    Source: Chen et al. (2016), "Training deep nets with sublinear memory cost".
    """
    size = _checks.static_integer(block_size, "block_size", minimum=1)
    examples = {}
    for name, given in (("features", features), ("labels", labels)):
        try:
            examples[name] = jax.tree.map(jnp.asarray, given)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"{name} must be an array or a tree of arrays, got {given!r}."
            ) from error
    shapes = {leaf.shape for leaf in jax.tree.leaves(examples)}
    if () in shapes or len({shape[0] for shape in shapes}) != 1:
        raise ValueError(
            "features and labels must have the same number of examples along their first axes, "
            f"got shapes {' and '.join(map(str, sorted(shapes)))}."
        )
    number = next(iter(shapes))[0]
    whole = number // size * size

    def of_block(block: Any) -> jax.Array:
        found = loss(block["features"], block["labels"])
        expected = jax.tree.leaves(block)[0].shape[:1]
        if jnp.shape(found)[:1] != expected:
            raise ValueError(
                f"loss must return one number for each of {expected[0]} examples, "
                f"got shape {jnp.shape(found)}."
            )
        return found

    recomputed = jax.checkpoint(of_block)
    parts = []
    if whole:
        blocks = jax.tree.map(
            lambda leaf: leaf[:whole].reshape(-1, size, *leaf.shape[1:]), examples
        )
        found = jax.lax.map(recomputed, blocks)
        parts.append(found.reshape(whole, *found.shape[2:]))
    if whole < number or not number:
        parts.append(recomputed(jax.tree.map(lambda leaf: leaf[whole:], examples)))
    return jnp.concatenate(parts)


def check_head(features: ArrayLike, head: LinearHead) -> tuple[jax.Array, LinearHead]:
    """The features and the head, or raises. The weights stay in their type: a cast is a copy."""
    given = floating_array(features, "features")
    if not isinstance(head, LinearHead):
        raise TypeError(f"head must be a LinearHead, got {_checks.describe(head)}.")
    weights = as_array(head.weights, "head.weights", "floating-point array", (jnp.floating,))
    if weights.ndim != 2 or weights.shape[0] != given.shape[-1] or weights.shape[1] == 0:
        raise ValueError(
            f"head.weights must have shape ({given.shape[-1]}, classes) for features of shape "
            f"{given.shape}, got shape {weights.shape}."
        )
    widest = jnp.float64 if jnp.float64 in (given.dtype, weights.dtype) else jnp.float32
    bias = None
    if head.bias is not None:
        bias = floating_array(head.bias, "head.bias").astype(widest)
        if bias.shape != weights.shape[1:]:
            raise ValueError(
                f"head.bias must have shape {weights.shape[1:]} for head.weights of shape "
                f"{weights.shape}, got shape {bias.shape}."
            )
    return given.astype(widest), LinearHead(weights, bias)
