"""What losses of sets share: scores that conform, and the scores of the labels of a batch."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _classes, _numerics, _sharding

_CONFORMITIES = ("log_probability", "logit")


class Conformity(NamedTuple):
    """The scores of a batch; larger scores conform better.

    Attributes:
        logits: the checked logits, `[..., L]`, which mark invalid examples.
        labels: the labels, `[...]`.
        scores: finite scores of all classes, `[..., L]`.
        of_labels: the scores of the labels on all devices, `[n]`, in the order of the examples.
    """

    logits: jax.Array
    labels: jax.Array
    scores: jax.Array
    of_labels: jax.Array


def measure(
    logits: ArrayLike,
    labels: ArrayLike,
    conformity: str,
    axis_name: Hashable | None,
    class_axis_name: Hashable | None,
) -> Conformity:
    """The scores of a batch that is not empty, or raises.

    Communication: each device gets the scores of the labels of all others, one number per example.
    """
    checked, labels = _checks.logits_and_labels(logits, labels)
    kind = _checks.choice(conformity, "conformity", _CONFORMITIES)
    _checks.some_examples(checked, "logits")
    _checks.axis_size(axis_name)
    if kind == "log_probability":
        # Its gradient spreads a NaN over all classes.
        scores = log_probabilities(_numerics.finite_scores(checked), class_axis_name)
    else:
        (marked,) = _numerics.batch_with_slopes_or_nan(
            checked, labels=labels, axis_name=axis_name, class_axis_name=class_axis_name
        )
        scores = _numerics.finite_scores(marked)
    of_labels = _numerics.score_of_label(scores, labels, class_axis_name)
    return Conformity(checked, labels, scores, of_whole_batch(of_labels, axis_name))


def log_probabilities(scores: jax.Array, class_axis_name: Hashable | None) -> jax.Array:
    """The log-softmax of finite scores [..., L]."""
    if class_axis_name is None:
        return jax.nn.log_softmax(scores, axis=-1)
    shifted = scores - _classes.max_classes(scores, class_axis_name, keepdims=True)
    return shifted - _classes.log_sum_exp(shifted, class_axis_name, keepdims=True)


def of_whole_batch(values: jax.Array, axis_name: Hashable | None) -> jax.Array:
    """One number of each example, [...], of the examples of all devices, `[n]`."""
    if axis_name is None:
        return _sharding.gather(values).reshape(-1)
    whole: jax.Array = jax.lax.all_gather(values.reshape(-1), axis_name, tiled=True)
    return whole


def mass_up_to_labels(
    scores: jax.Array, labels: jax.Array, own_part: jax.Array, class_axis_name: Hashable | None
) -> jax.Array:
    """The softmax's sum over the classes above the label, with a part of the label's, `[...]`."""
    probabilities = jnp.exp(log_probabilities(scores, class_axis_name))
    of_label = _numerics.score_of_label(scores, labels, class_axis_name)
    above = jnp.where(scores > of_label[..., None], probabilities, 0)
    own = _numerics.score_of_label(probabilities, labels, class_axis_name)
    return _classes.sum_classes(above, class_axis_name) + own_part * own


def mean_of_odd_places(values: jax.Array, axis_name: Hashable | None) -> jax.Array:
    """The mean of values [...] at places 1, 3, ... of the complete batch; NaN if a value is."""
    places = jnp.arange(values.size)
    if axis_name is not None:
        places = places + values.size * jax.lax.axis_index(axis_name)
    odd = (places % 2).reshape(values.shape).astype(values.dtype)
    num_examples = values.size * _checks.axis_size(axis_name)
    return _numerics.batch_mean(odd * values, axis_name) / ((num_examples // 2) / num_examples)
