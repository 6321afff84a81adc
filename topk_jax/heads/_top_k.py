"""The best classes of each example, over blocks of classes."""

from __future__ import annotations

from collections.abc import Hashable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _classes, _numerics
from topk_jax._compilation import compiled
from topk_jax._sharding import unify
from topk_jax.heads._blocks import Block, scan_blocks, with_slopes_of_scores
from topk_jax.heads._each_device import split_examples
from topk_jax.heads._head import Head, Scores, check_scores, size_of_block
from topk_jax.heads._selection import Largest, merge, select_nothing
from topk_jax.operators._top_k import merge_devices

__all__ = ["top_k"]


@split_examples
def top_k(
    features: ArrayLike,
    head: Head,
    *,
    k: int,
    block_size: int | None = None,
    class_axis_name: Hashable | None = None,
) -> tuple[jax.Array, jax.Array]:
    r"""The k classes with the largest scores, best first, without the scores of all classes.

    .. math:: s_{c_1}(x) \ge s_{c_2}(x) \ge \dots \ge s_{c_k}(x) \ge s_j(x)
        \quad \text{for all other classes } j

    These are the classes of `sets.top_k_set` of the scores. The derivative of a score is that of
    its class; the backward pass reads and writes only the vectors of the selected classes. Only
    reverse mode is supported.

    If the classes are split over devices, each device sends its k best classes.

    Args:
        features: floating-point features x, `[..., d]`.
        head: a `LinearHead` or a `CosineHead` of L classes.
        k: static number of classes, from 1 to L.
        block_size: static number of classes whose scores are in memory at a time, at least 1; a
            smaller one than k counts as k. By default a block has 2^20 scores on the CPU, and 2^24
            elsewhere.
        class_axis_name: the mapped axis of `shard_map` that the classes of the head are split along
            into equal parts, or `None`; see `docs/scaling.md`.

    Returns:
        The scores in descending order, in float32 or float64, and their classes, int32, both
        `[..., k]`. Among equal scores, lower classes come first. A masked class has a score of
        -inf, as has a class with a score below -1e30. If a score is NaN or +inf, all scores of
        the example are NaN and its classes -1.

    Raises:
        TypeError: an argument has the wrong type or dtype.
        ValueError: the shapes do not match, or `k` or `block_size` is outside its range.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import heads
        >>> head = heads.LinearHead(jnp.eye(4))
        >>> scores, classes = heads.top_k(jnp.array([[1.0, 3.0, 2.5, 3.0]]), head, k=3)
        >>> print(scores, classes)
        [[3.  3.  2.5]] [[1 3 2]]

    See Also:
        `sets.top_k_set`, `metrics.top_k_hits`, `heads.scores`.

    Source: Garcin (2023), thesis, equation 2.13; blocks of classes here.
    """
    given = _checks.floating_array(features, "features")
    rows = given.reshape(-1, given.shape[-1])
    scores = check_scores(rows, head, shape=given.shape)
    weights = scores.layer.weights
    if class_axis_name is None:
        _class_axis.check_not_split(
            "head.weights", weights, rows, "give class_axis_name={}", of_labels="features"
        )
    else:
        _class_axis.check_name(class_axis_name, "head.weights", weights, {"features": rows})
    k = _checks.rank(k, _classes.count(weights, class_axis_name))
    block_size = size_of_block(block_size, scores, at_least=k)
    values, classes = compute_top_k(scores, k, block_size, class_axis_name)
    shape = (*given.shape[:-1], k)
    return values.reshape(shape), classes.reshape(shape)


@compiled
def compute_top_k(
    scores: Scores, k: int, block_size: int, class_axis_name: Hashable | None
) -> tuple[jax.Array, jax.Array]:
    """The largest of checked scores and their classes, `[n, k]` both."""
    rows, layer = unify(scores.rows, scores.layer)
    size = scores.num_classes

    def step(found: Largest, block: Block) -> Largest:
        # Whether a product is 0 or -0 depends on the device. As for a set, both are equal.
        values = jnp.where(block.scores == 0, 0, block.scores)
        return merge(found, values, block.classes[0])

    (values, classes), marks = scan_blocks(
        step,
        scores.unit,
        block_size,
        *jax.lax.stop_gradient((rows, layer)),
        select_nothing(jnp.zeros_like(rows[:, 0]), min(k, size)),
    )
    valid = ~_classes.any_class(jnp.isnan(marks)[:, None], class_axis_name, keepdims=True)
    if class_axis_name is None:
        values = with_slopes_of_scores(scores.unit, values, rows, layer, classes)
    else:
        values, classes = merge_devices(values, classes, k, size, class_axis_name)
        places, is_own = _classes.own_places(classes, size, class_axis_name)
        own = with_slopes_of_scores(scores.unit, *unify(values, rows, layer, places))
        values = _classes.sum_devices(jnp.where(is_own, own, 0), class_axis_name)
    # The slopes of a NaN example are NaN, whatever was selected.
    values = jnp.where(valid & (values <= _numerics.FLOOR), -jnp.inf, values)
    return _numerics.nan_unless(valid, values), jnp.where(valid, classes, -1)
