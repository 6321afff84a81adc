"""Linear and cosine heads, which turn features into the scores of the classes."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis
from topk_jax.heads._blocks import Layer, unit_vectors

__all__ = ["CosineHead", "LinearHead"]

# The number of scores in a block. On the CPU they fit in the cache; elsewhere they are small
# compared to the memory.
_BLOCK = {"cpu": 2**20}
_BLOCK_OF_OTHERS = 2**24
_USUAL_BATCH = 256


class LinearHead(NamedTuple):
    r"""A head whose scores are affine functions of the features.

    .. math:: s = W^\top x + b

    Attributes:
        weights: W, floating-point, `[d, L]`.
        bias: b, floating-point, `[L]`, or `None` for none. A bias of -inf masks a class.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import heads
        >>> head = heads.LinearHead(jnp.eye(3), bias=jnp.array([0.0, 0.0, -1.0]))
        >>> features, labels = jnp.array([[1.0, 2.0, 1.0]]), jnp.array([1])
        >>> print(heads.cross_entropy(features, head, labels).round(4))
        [0.4076]
    """

    weights: ArrayLike
    bias: ArrayLike | None = None


class CosineHead(NamedTuple):
    r"""A head whose scores are cosines of the angles between the features and one vector per class.

    .. math:: s_j = \gamma \, \frac{x \cdot w_j}{\lVert x \rVert \, \lVert w_j \rVert}

    Features or vectors of a length below 1e-12 have cosines of 0 and no gradient.

    Attributes:
        weights: W, one vector for each class, floating-point, `[d, L]`.
        scale: scalar factor of the cosines (gamma above). May be traced, and has a gradient.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import heads
        >>> head = heads.CosineHead(jnp.array([[2.0, 0.0], [0.0, 5.0]]), scale=3.0)
        >>> features, labels = jnp.array([[0.3, 0.4]]), jnp.array([0])
        >>> (loss,) = heads.top_k_hinge(features, head, labels, k=1)
        >>> print(f"{loss:.2f}")
        1.60
    """

    weights: ArrayLike
    scale: ArrayLike = 1.0


Head = LinearHead | CosineHead
# `help` shows types as they are written here, in place of the references of named tuples to them.
for _head in (LinearHead, CosineHead):
    _types = _head.__new__.__annotations__
    _types.update({name: getattr(one, "__forward_arg__", one) for name, one in _types.items()})


class Scores(NamedTuple):
    """The checked arguments that determine the scores of a batch, in the form of `_blocks`.

    Attributes:
        rows: the features, for a cosine head scaled vectors of length 1, `[n, d]` or `[..., d]`.
        layer: the weights and the bias.
        unit: whether the vectors of the classes must be divided by their length.
    """

    rows: jax.Array
    layer: Layer
    unit: bool

    @property
    def num_classes(self) -> int:
        """The number of classes L."""
        return self.layer.weights.shape[1]


def check_batch(
    features: ArrayLike,
    head: Head,
    labels: ArrayLike,
    name: str = "head",
    *,
    where: ArrayLike | None = None,
) -> tuple[Scores, jax.Array, tuple[int, ...]]:
    """The scores of the features, the labels `[n]` and the shape of the batch, or raises.

    The labels have 32 bits, like all classes here. Labels outside [0, L) become -1. Examples that
    `where` leaves out get features and a label of 0; see `_numerics.zero_left_out`.
    """
    given = _checks.floating_array(features, "features")
    batch_shape = given.shape[:-1]
    labels = _checks.integer_array(labels, "labels", batch_shape, of=("features", given.shape))
    given, labels = _checks.zero_elsewhere(where, given, labels)
    scores = check_scores(given.reshape(-1, given.shape[-1]), head, name, given.shape)
    _class_axis.check_not_split(
        f"{name}.weights",
        scores.layer.weights,
        labels,
        "use heads.scores and the loss of topk_jax.losses with class_axis_name={}",
    )
    is_inside = (labels >= 0) & (labels < scores.num_classes)
    labels = jnp.where(is_inside, labels, -1).astype(jnp.int32)
    return scores, labels.reshape(-1), batch_shape


def check_scores(
    features: ArrayLike, head: Head, name: str = "head", shape: tuple[int, ...] | None = None
) -> Scores:
    """The scores of features [..., d] in the form of `_blocks`, with rows [..., d], or raises.

    Args:
        features: the user's argument, or an array of them.
        head: the user's argument.
        name: the name of that argument.
        shape: the shape of the features that the user gave, for the message.
    """
    given = _checks.floating_array(features, "features")
    shape = shape or given.shape
    if not isinstance(head, LinearHead | CosineHead):
        raise TypeError(
            f"{name} must be a LinearHead or a CosineHead, got {_checks.describe(head)}."
        )
    # Only its data type is checked here: a cast of all weights would be a copy of them.
    weights = head.weights if isinstance(head.weights, jax.Array) else jnp.asarray(head.weights)
    if not jnp.issubdtype(weights.dtype, jnp.floating):
        raise TypeError(f"{name}.weights must be floating-point, got dtype {weights.dtype}.")
    if weights.ndim != 2 or weights.shape[0] != shape[-1] or weights.shape[1] == 0:
        raise ValueError(
            f"{name}.weights must have shape ({shape[-1]}, classes) for features of shape "
            f"{shape}, got shape {weights.shape}."
        )
    widest = jnp.float64 if jnp.float64 in (given.dtype, weights.dtype) else jnp.float32
    rows = given.astype(widest)
    bias = None
    if isinstance(head, CosineHead):
        scale = _checks.scalar(head.scale, f"{name}.scale", rows.dtype)
        rows = scale * unit_vectors(rows, axis=-1)
    elif head.bias is not None:
        bias = _checks.floating_array(head.bias, f"{name}.bias")
        if bias.shape != weights.shape[1:]:
            raise ValueError(
                f"{name}.bias must have shape {weights.shape[1:]} for {name}.weights of shape "
                f"{weights.shape}, got shape {bias.shape}."
            )
        bias = bias.astype(rows.dtype)
    return Scores(rows, Layer(weights, bias), isinstance(head, CosineHead))


def size_of_block(given: Any, scores: Scores, *, at_least: int = 1) -> int:
    """The number of classes in a block: the user's number, or a number that suits the device.

    Args:
        given: the user's argument, or `None`.
        scores: the scores of the batch.
        at_least: the smallest allowed number of classes in a block. The result is smaller only if L
            is.
    """
    if given is None:
        entries = _BLOCK.get(jax.default_backend(), _BLOCK_OF_OTHERS)
        num_rows = scores.rows.shape[0]
        # A program of `jax.export` may take any number of examples. Assume the usual number.
        num_rows = max(1, num_rows) if isinstance(num_rows, int) else _USUAL_BATCH
        # A multiple of a vector register on any device.
        size = max(128, entries // num_rows // 128 * 128)
    else:
        size = _checks.static_integer(given, "block_size", minimum=1)
    return min(max(size, at_least), scores.num_classes)
