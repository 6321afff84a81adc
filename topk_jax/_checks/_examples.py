"""Arguments with an entry or a row for each example of a batch."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _numerics
from topk_jax._checks._arrays import (
    boolean_array,
    booleans_or_reals,
    floating_array,
    integer_array,
    real_array,
)
from topk_jax._checks._given import known_values
from topk_jax._checks._static import rank

__all__ = [
    "logits_and_labels",
    "logits_and_targets",
    "multi_hot",
    "random_keys",
    "ranks",
    "some_examples",
    "two_heads",
    "weights_of_examples",
    "zero_elsewhere",
]


def logits_and_labels(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    name: str = "logits",
    where: ArrayLike | None = None,
    hint: str = "losses.expect_over_labels, metrics.expected_hits and sets.vote_quantile take "
    "one-hot and soft labels",
) -> tuple[jax.Array, jax.Array]:
    """Returns logits [..., L] and labels [...], or raises if their types or shapes are wrong.

    The values of traced labels cannot be checked here. `_numerics.nan_where_invalid` turns the
    result of a label outside [0, L) into NaN. Examples that `where` leaves out get scores and a
    label of 0; see `_numerics.zero_left_out`. `hint` ends the message about labels of the scores'
    own shape.
    """
    scores = floating_array(logits, name)
    try:
        found = integer_array(labels, "labels", scores.shape[:-1], of=(name, scores.shape))
    except (TypeError, ValueError) as error:
        words = _hint_at_labels(labels, scores.shape, name, hint)
        if not words:
            raise
        raise type(error)(str(error).removesuffix(".") + words) from error
    return zero_elsewhere(where, scores, found)


def _hint_at_labels(labels: ArrayLike, shape: tuple[int, ...], name: str, hint: str) -> str:
    """What to do about wrong labels of two other conventions."""
    given = getattr(labels, "shape", None)
    if given == shape:
        return f"; {hint}."
    if len(shape) > 2 and given == (shape[0], *shape[2:]):
        return f"; the classes are the last axis of {name}, see jnp.moveaxis."
    return ""


def zero_elsewhere(
    where: ArrayLike | None, vectors: jax.Array, others: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Returns vectors [..., n] and others, [...] or [..., n], with zeros where an example is out.

    Raises if `where` is neither a boolean array [...] nor `None`, which leaves out none.
    """
    if where is None:
        return vectors, others
    counts = boolean_array(where, "where", vectors.shape[:-1])
    of_vectors = counts[..., None]
    return (
        jnp.where(of_vectors, vectors, 0),
        jnp.where(counts if others.shape == counts.shape else of_vectors, others, 0),
    )


def logits_and_targets(
    logits: ArrayLike,
    targets: ArrayLike,
    *,
    name: str = "targets",
    where: ArrayLike | None = None,
    may_be_soft: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """Returns logits and multi-label targets, both [..., L] in the logits' dtype, or raises.

    Targets are booleans or numbers: 0 or 1, or between them if they may be soft. The values of
    traced targets, and of targets beside `where`, are not checked here. NaN is allowed.
    `_numerics.nan_where_invalid_targets` turns the result of other targets into NaN. Examples that
    `where` leaves out get scores and targets of 0.
    """
    scores = floating_array(logits, "logits")
    converted = booleans_or_reals(targets, name, scores.shape).astype(scores.dtype)
    concrete = None if where is not None else known_values(targets)
    if concrete is not None:
        between = (concrete > 0) & (concrete < 1)
        is_wrong = (concrete < 0) | (concrete > 1) | (between & (not may_be_soft))
        if is_wrong.any():
            allowed = "from 0 to 1" if may_be_soft else "0 or 1"
            raise ValueError(f"{name} must be {allowed}, got {concrete[is_wrong].flat[0]}.")
    return zero_elsewhere(where, scores, converted)


def multi_hot(targets: ArrayLike, name: str, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """Returns multi-label targets [..., L] as booleans, and which of them are 0 or 1, or raises.

    All concrete targets are booleans, or numbers that are 0 or 1.
    """
    converted = booleans_or_reals(targets, name, shape)
    if converted.dtype == jnp.bool_:
        return converted, jnp.ones(shape, jnp.bool_)
    concrete = known_values(targets)
    if concrete is not None and (is_wrong := (concrete != 0) & (concrete != 1)).any():
        raise ValueError(f"{name} must be 0 or 1, got {concrete[is_wrong].flat[0]}.")
    return converted == 1, (converted == 0) | (converted == 1)


def two_heads(
    first: tuple[str, ArrayLike], second: tuple[str, ArrayLike], labels: ArrayLike
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns the logits of two heads, [..., L] in one dtype, and labels [...], or raises."""
    scores, labels = logits_and_labels(first[1], labels, name=first[0])
    others = floating_array(second[1], second[0])
    if others.shape != scores.shape:
        raise ValueError(f"{second[0]} must have shape {scores.shape}, got shape {others.shape}.")
    dtype = max(scores.dtype, others.dtype, key=lambda dtype: dtype.itemsize)
    return scores.astype(dtype), others.astype(dtype), labels


def some_examples(logits: jax.Array, name: str) -> None:
    """Raises for an empty batch, whose mean is undefined."""
    if logits.size == 0:
        raise ValueError(f"{name} must have at least one example, got shape {logits.shape}.")


def weights_of_examples(weights: ArrayLike, name: str, shape: tuple[int, ...]) -> jax.Array:
    """Returns weights of this shape in the default float type, or raises.

    They are finite and at least 0. A traced weight that is not becomes NaN.
    """
    # A number that overflows is refused below.
    with np.errstate(over="ignore"):
        converted = real_array(weights, name, shape, jnp.result_type(float))
    concrete = known_values(weights)
    if concrete is None:
        return _numerics.nan_unless((converted >= 0) & jnp.isfinite(converted), converted)
    with np.errstate(over="ignore"):
        is_wrong = ~((concrete >= 0) & np.isfinite(concrete.astype(converted.dtype)))
    if is_wrong.any():
        wrong = float(concrete[is_wrong].flat[0])
        raise ValueError(f"{name} must be finite and at least 0, got {wrong:g}.")
    return converted


def ranks(k: Any, maximum: int, shape: tuple[int, ...]) -> jax.Array:
    """Returns set sizes of the given shape, or raises if one is not from 1 to maximum.

    In an array, 0 is allowed too, for examples without targets. The values of a traced array cannot
    be checked.
    """
    if not isinstance(k, jax.Array | np.ndarray):
        return jnp.full(shape, rank(k, maximum))
    sizes = integer_array(k, "k", shape)
    concrete = known_values(k)
    if concrete is not None:
        outside = concrete[(concrete < 0) | (concrete > maximum)]
        if outside.size:
            raise ValueError(
                f"k must be from 0 to {maximum} (the number of classes), got {outside[0]}."
            )
    return sizes


def random_keys(key: Any, name: str, batch_shape: tuple[int, ...]) -> jax.Array:
    """Returns one key, or keys of the batch's shape, as typed keys; accepts legacy keys too."""
    if not isinstance(key, jax.Array | np.ndarray):
        raise TypeError(f"{name} must be a key made by jax.random.key, got {type(key).__name__}.")
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        try:
            key = jax.random.wrap_key_data(jnp.asarray(key))
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"{name} must be a key made by jax.random.key, got an array of dtype {key.dtype} "
                f"and shape {key.shape}."
            ) from error
    if key.shape not in ((), batch_shape):
        raise ValueError(
            f"{name} must be one key, or an array of keys of the batch's shape {batch_shape}, "
            f"got shape {key.shape}."
        )
    return key
