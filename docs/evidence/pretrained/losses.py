"""The losses of the study as functions of scores, and the scores that they are evaluated with."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from topk_jax import losses

Parameters = Mapping[str, jax.Array]


class Data(NamedTuple):
    """What a loss may know of the training set.

    Attributes:
        class_counts: the images of each class, float32 [L].
        key: a random key of the step.
    """

    class_counts: jax.Array
    key: jax.Array

    @property
    def log_priors(self) -> jax.Array:
        """The logarithms of the frequencies of the classes, [L]."""
        return jnp.log(self.class_counts / self.class_counts.sum())


# Scores [n, L], labels [n], the parameters and the data, to losses [n].
Loss = Callable[[jax.Array, jax.Array, Parameters, Data], jax.Array]

# The set size of all losses that have one.
K = 5
# The samples of the noised hinges.
_NUM_SAMPLES = 5


def _noised(scores: jax.Array, labels: jax.Array, values: Parameters, data: Data) -> jax.Array:
    return losses.noised_top_k_hinge(
        scores, labels, k=K, epsilon=values["epsilon"], num_samples=_NUM_SAMPLES, key=data.key
    )


def _margins(values: Parameters, data: Data) -> jax.Array:
    return losses.class_margins(data.class_counts, max_margin=values["margin"])


def _imbalanced_noised(
    scores: jax.Array, labels: jax.Array, values: Parameters, data: Data
) -> jax.Array:
    return losses.noised_top_k_hinge(
        scores,
        labels,
        k=K,
        epsilon=values["epsilon"],
        num_samples=_NUM_SAMPLES,
        key=data.key,
        margins=_margins(values, data),
    )


def _imbalanced_expected(
    scores: jax.Array, labels: jax.Array, values: Parameters, data: Data
) -> jax.Array:
    margins = _margins(values, data)
    return losses.expected_top_k_hinge(
        scores, labels, k=K, epsilon=values["epsilon"], margins=margins
    )


def _ldam(scores: jax.Array, labels: jax.Array, values: Parameters, data: Data) -> jax.Array:
    # The margin of a cosine head is one of cosines, which the scale multiplies.
    margins = _margins(values, data) * values.get("scale", 1.0)
    return losses.ldam(scores, labels, margins=margins, scale=1.0)


def _average_k(scores: jax.Array, labels: jax.Array, values: Parameters, data: Data) -> jax.Array:
    half = data.class_counts.shape[0]
    # A loss of the batch.
    found = losses.average_k(
        scores[:, :half], scores[:, half:], labels, k=float(K), alpha=values["alpha"]
    )
    return jnp.broadcast_to(found, labels.shape)


def _library(loss: Callable[..., jax.Array], *own: tuple[str, str], **fixed: object) -> Loss:
    """A loss of the library; `own` has the names of its parameters, there and here."""

    def compute(scores: jax.Array, labels: jax.Array, values: Parameters, _data: Data) -> jax.Array:
        return loss(scores, labels, **{name: values[here] for name, here in own}, **fixed)

    return compute


def _logit_adjustment(
    scores: jax.Array, labels: jax.Array, values: Parameters, data: Data
) -> jax.Array:
    return losses.logit_adjusted_cross_entropy(
        scores, labels, class_counts=data.class_counts, tau=values["tau"]
    )


def _noised_with_priors(
    scores: jax.Array, labels: jax.Array, values: Parameters, data: Data
) -> jax.Array:
    return _noised(scores + values["tau"] * data.log_priors[None], labels, values, data)


LOSSES: Mapping[str, Loss] = {
    "cross-entropy": _library(losses.cross_entropy),
    "label smoothing": _library(losses.cross_entropy, ("label_smoothing", "smoothing")),
    "logit adjustment": _logit_adjustment,
    "logit adjustment afterwards": _library(losses.cross_entropy),
    "generalized cross-entropy": _library(losses.generalized_cross_entropy, ("q", "q")),
    "LDAM, deferred weights": _ldam,
    "smooth hinge": _library(losses.smooth_top_k_hinge, ("tau", "tau"), k=K),
    "noised hinge": _noised,
    "expected hinge": _library(losses.expected_top_k_hinge, ("epsilon", "epsilon"), k=K),
    "noised hinge with priors": _noised_with_priors,
    "imbalanced noised hinge": _imbalanced_noised,
    "imbalanced noised hinge, deferred weights": _imbalanced_noised,
    "imbalanced expected hinge": _imbalanced_expected,
    "imbalanced expected hinge, deferred weights": _imbalanced_expected,
    "average-K": _average_k,
}


def weights(values: Parameters, data: Data, is_late: jax.Array) -> jax.Array:
    """The weights of the classes in a step, [L]: deferred ones if there are, else 1.

    The mean weight of the training images is 1.
    """
    if "one_minus_beta" not in values:
        return jnp.ones_like(data.class_counts)
    found = losses.class_balanced_weights(data.class_counts, beta=1 - values["one_minus_beta"])
    found = found / jnp.average(found, weights=data.class_counts)
    return jnp.where(is_late, found, 1.0)


def num_outputs(name: str, num_classes: int) -> int:
    """The outputs of the head: average-K has a second head, which proposes classes."""
    return 2 * num_classes if name == "average-K" else num_classes


def predicted(name: str, scores: jax.Array, values: Parameters, data: Data) -> jax.Array:
    """The scores that classes are ranked by, [n, L]."""
    scores = scores[:, : data.class_counts.shape[0]]
    if name == "logit adjustment afterwards":
        return scores - values["tau"] * data.log_priors[None]
    return scores
