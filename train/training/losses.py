"""The losses of the program by name. To add a loss, add an entry to `LOSSES`."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax import losses
from train.configuration import LossFields, declaring
from train.data.truths import ONE, SEVERAL
from train.foundation import import_paths
from train.foundation.fields import Number, SetSize, integer, one_of
from train.models.heads import TwoLogits
from train.training.class_counts import check_all_positive
from train.training.objectives import Hyperparameters, LossSpec, Objective, class_logits, softmax


def _build_plain(loss: Callable[..., jax.Array]) -> Callable[..., Objective]:
    """Builds the objective of a loss that takes logits, labels and its parameters."""

    def build(**parameters: Any) -> Objective:
        return _deterministic(functools.partial(loss, **parameters))

    return build


def _build_split(loss: Callable[..., jax.Array]) -> Callable[..., Objective]:
    """Like `_build_plain`, for a loss that can split the classes."""

    def build(*, class_axis_name: str | None, **parameters: Any) -> Objective:
        return _deterministic(
            functools.partial(loss, class_axis_name=class_axis_name, **parameters),
            _softmax(class_axis_name),
        )

    return build


def _cross_entropy(
    *, label_smoothing: jax.Array | float = 0.0, class_axis_name: str | None
) -> Objective:
    plain = functools.partial(losses.cross_entropy, class_axis_name=class_axis_name)
    # Evaluated without smoothing, so that runs with other labels compare.
    return dataclasses.replace(
        _deterministic(plain, _softmax(class_axis_name)),
        loss=lambda logits, labels, _keys, _estimates: plain(
            logits, labels, label_smoothing=label_smoothing
        ),
    )


def _soft_label_cross_entropy(**parameters: Any) -> Objective:
    loss: Callable[..., jax.Array] = functools.partial(
        losses.soft_label_cross_entropy, **parameters
    )
    # Evaluated without soft labels, so that runs with other labels compare.
    return dataclasses.replace(
        _deterministic(losses.cross_entropy),
        loss=lambda logits, labels, _keys, _estimates: loss(logits, labels),
    )


def _build_scaled(loss: Callable[..., jax.Array]) -> Callable[..., Objective]:
    """Like `_build_split`, for a loss of cosines that has a `scale`."""

    def build(*, scale: jax.Array, class_axis_name: str | None, **parameters: Any) -> Objective:
        return _deterministic(
            functools.partial(loss, scale=scale, class_axis_name=class_axis_name, **parameters),
            _softmax(class_axis_name, scale),
        )

    return build


def _noised_balanced(*, class_axis_name: str | None, **settings: Any) -> Objective:
    return _noised(_softmax(class_axis_name), class_axis_name=class_axis_name, **settings)


def _noised_imbalanced(
    *, scale: jax.Array, class_axis_name: str | None, **settings: Any
) -> Objective:
    scores = _softmax(class_axis_name, scale)
    return _noised(scores, scale=scale, class_axis_name=class_axis_name, **settings)


def _relaxed_top_k_cross_entropy(
    *, k: int, top_1_weight: jax.Array, num_candidates: int, **relaxation: Any
) -> Objective:
    def loss(logits: jax.Array, labels: jax.Array) -> jax.Array:
        weights = jnp.zeros(k, logits.dtype).at[0].set(top_1_weight).at[-1].add(1 - top_1_weight)
        return losses.relaxed_top_k_cross_entropy(
            logits,
            labels,
            top_k_weights=weights,
            # All of them if there are fewer.
            num_candidates=min(max(num_candidates, k), logits.shape[-1]),
            **relaxation,
        )

    return _deterministic(loss)


def _build_of_targets(loss: Callable[..., jax.Array]) -> Callable[..., Objective]:
    """Builds the objective of a loss that takes logits, a row over the classes, and parameters."""

    def build(**parameters: Any) -> Objective:
        plain = _deterministic(functools.partial(loss, **parameters))
        return dataclasses.replace(plain, takes_targets=True)

    return build


def _expected_positive_regularization(*, k: int, beta: jax.Array, axis_name: str) -> Objective:
    loss = functools.partial(
        losses.expected_positive_regularization, expected_positives=float(k), beta=beta
    )
    return _couple_batch(loss, axis_name)


def _average_k(
    *, k: int, alpha: jax.Array, axis_name: str, class_axis_name: str | None
) -> Objective:
    def loss(outputs: TwoLogits, labels: jax.Array, axis_name: str | None = None) -> jax.Array:
        return losses.average_k(
            outputs.logits,
            outputs.proposal_logits,
            labels,
            k=k,
            alpha=alpha,
            axis_name=axis_name,
            class_axis_name=class_axis_name,
        )

    return _couple_batch(loss, axis_name, _softmax(class_axis_name))


def _beside_cross_entropy(
    loss: Callable[..., jax.Array],
    *,
    weight: jax.Array,
    axis_name: str,
    class_axis_name: str | None,
    **parameters: Any,
) -> Objective:
    """The cross-entropy and a loss of the sets of a batch; evaluated without the latter."""
    plain = functools.partial(losses.cross_entropy, class_axis_name=class_axis_name)
    of_sets = functools.partial(
        loss, axis_name=axis_name, class_axis_name=class_axis_name, **parameters
    )
    return dataclasses.replace(
        _deterministic(plain, _softmax(class_axis_name)),
        loss=lambda logits, labels, _keys, _estimates: (
            jax.lax.pmean(plain(logits, labels).mean(), axis_name)
            + weight * of_sets(logits, labels)
        ),
    )


def _role(*, k: int, weight: jax.Array, axis_name: str) -> Objective:
    settings = {"expected_positives": float(k)}

    def loss(logits: jax.Array, labels: jax.Array, _keys: jax.Array, estimates: Any) -> jax.Array:
        return losses.role(
            logits, estimates, labels, weight=weight, axis_name=axis_name, **settings
        )

    # The labels of other examples are not estimated, so only the network's own part is left.
    networks_part = functools.partial(
        losses.expected_positive_regularization, beta=weight, **settings
    )
    return dataclasses.replace(_couple_batch(networks_part, axis_name), loss=loss)


def _couple_batch(
    loss: Callable[..., jax.Array],
    axis_name: str,
    scores: Callable[[jax.Array], jax.Array] = jax.nn.softmax,
) -> Objective:
    def of_example(outputs: Any, label: jax.Array) -> jax.Array:
        return loss(jax.tree.map(lambda array: array[None], outputs), label[None])

    return Objective(
        lambda outputs, labels, _keys, _estimates: loss(outputs, labels, axis_name=axis_name),
        jax.vmap(of_example),
        lambda outputs: scores(class_logits(outputs)),
    )


def _noised(
    scores: Callable[[jax.Array], jax.Array], *, num_samples: int, **settings: Any
) -> Objective:
    def loss(
        logits: jax.Array, labels: jax.Array, keys: jax.Array, _estimates: jax.Array | None
    ) -> jax.Array:
        return losses.noised_top_k_hinge(
            logits, labels, num_samples=num_samples, key=keys, **settings
        )

    return Objective(loss, functools.partial(losses.expected_top_k_hinge, **settings), scores)


def _deterministic(
    loss: Callable[[jax.Array, jax.Array], jax.Array],
    scores: Callable[[jax.Array], jax.Array] = jax.nn.softmax,
) -> Objective:
    return Objective(lambda logits, labels, _keys, _estimates: loss(logits, labels), loss, scores)


def _softmax(
    class_axis_name: str | None, scale: jax.Array | None = None
) -> Callable[[jax.Array], jax.Array]:
    """Probabilities from logits, or from cosines, which differ by at most 2, with their scale."""

    def probabilities(logits: jax.Array) -> jax.Array:
        return softmax(logits if scale is None else scale * logits, class_axis_name)

    return probabilities


def _without_label_rate(values: Hyperparameters, _class_counts: np.ndarray) -> Hyperparameters:
    """Without the rate of the label estimates, which the step has relative to the network's."""
    return {name: value for name, value in values.items() if name != "label_learning_rate"}


def _without_zero_smoothing(values: Hyperparameters, _class_counts: np.ndarray) -> Hyperparameters:
    """Without a label smoothing of 0, which would cost another reduction over the logits."""
    return {name: value for name, value in values.items() if value != 0}


def _with_margins(values: Hyperparameters, class_counts: np.ndarray) -> Hyperparameters:
    """Replaces the largest margin by one margin per class.

    Raises:
        UserError: a class has no training images.
    """
    check_all_positive(class_counts, "config.loss.name must be a loss without margins")
    rest = {name: value for name, value in values.items() if name != "max_margin"}
    margins = losses.class_margins(class_counts, max_margin=values["max_margin"])
    return {**rest, "margins": margins}


def _with_counts(values: Hyperparameters, class_counts: np.ndarray) -> Hyperparameters:
    """The parameters and the class counts.

    Raises:
        UserError: a class has no training images.
    """
    check_all_positive(class_counts, "config.loss.name must be a loss without class counts")
    return {**values, "class_counts": class_counts.astype(np.float32)}


# A top-K loss compares the label with sets that do not contain it, so their size is below L.
_K = {"k": SetSize(leaves_one_out=True)}
_MEAN_SIZE = {"k": SetSize()}
_NOISE = {"epsilon": Number(at_least=0)}
# They are computed one after another: more would take minutes for a single batch.
_SAMPLES = {"num_samples": integer(1, 10_000)}
_TAU = {"tau": Number(at_least=0)}
_MARGINS = {"max_margin": Number(at_least=0), "scale": Number(above=0)}
_ERROR = Number(above=0, below=1)
_OF_SETS = {"temperature": Number(above=0), "weight": Number(at_least=0)}
# Those without noise.
_QUANTILES = ("bitonic", "expected", "neural_sort", "odd_even", "soft_sort")
# Every configuration has the field.
_LABEL_SMOOTHING = declaring.of_group(LossFields)["label_smoothing"].check
# Each class can have a probability of its own.
_MULTI_LABEL = ("softmax", "sigmoid")

LOSSES = {
    "cross_entropy": LossSpec(
        "cross-entropy",
        _cross_entropy,
        {"label_smoothing": _LABEL_SMOOTHING},
        derive=_without_zero_smoothing,
        splits_classes=True,
        of_softmax=True,
    ),
    "focal": LossSpec(
        "focal",
        _build_split(losses.focal),
        {"gamma": Number(at_least=0)},
        splits_classes=True,
        of_softmax=True,
    ),
    "ldam": LossSpec(
        "LDAM",
        _build_scaled(losses.ldam),
        _MARGINS,
        derive=_with_margins,
        head="cosine",
        splits_classes=True,
        by_class=True,
        of_softmax=True,
    ),
    "logit_adjusted_cross_entropy": LossSpec(
        "logit-adjusted cross-entropy",
        _build_split(losses.logit_adjusted_cross_entropy),
        _TAU,
        derive=_with_counts,
        splits_classes=True,
        by_class=True,
        of_softmax=True,
    ),
    "vector_scaling": LossSpec(
        "vector scaling",
        _build_plain(losses.vector_scaling),
        {"gamma": Number(at_least=0), **_TAU},
        derive=_with_counts,
        by_class=True,
        of_softmax=True,
    ),
    "generalized_cross_entropy": LossSpec(
        "generalized cross-entropy",
        _build_plain(losses.generalized_cross_entropy),
        {"q": Number(above=0, at_most=1)},
        of_softmax=True,
    ),
    "symmetric_cross_entropy": LossSpec(
        "symmetric cross-entropy",
        _build_plain(losses.symmetric_cross_entropy),
        {"alpha": Number(at_least=0), "beta": Number(at_least=0)},
        of_softmax=True,
    ),
    "hierarchical_cross_entropy": LossSpec(
        "hierarchical cross-entropy",
        _build_plain(losses.hierarchical_cross_entropy),
        {"alpha": Number(at_least=0)},
        needs_taxonomy=True,
        of_softmax=True,
    ),
    "soft_label_cross_entropy": LossSpec(
        "soft-label cross-entropy",
        _soft_label_cross_entropy,
        {"beta": Number(at_least=0)},
        needs_taxonomy=True,
        of_softmax=True,
    ),
    "top_k_hinge": LossSpec(
        "top-K hinge",
        _build_split(losses.top_k_hinge),
        _K,
        optimizes_top_k=True,
        splits_classes=True,
    ),
    "convex_top_k_hinge": LossSpec(
        "convex top-K hinge",
        _build_split(losses.convex_top_k_hinge),
        _K,
        optimizes_top_k=True,
        splits_classes=True,
    ),
    "calibrated_top_k_hinge": LossSpec(
        "calibrated top-K hinge",
        _build_split(losses.calibrated_top_k_hinge),
        _K,
        optimizes_top_k=True,
        splits_classes=True,
    ),
    "smooth_top_k_hinge": LossSpec(
        "smooth top-K hinge",
        _build_split(losses.smooth_top_k_hinge),
        {**_K, "tau": Number(above=0)},
        optimizes_top_k=True,
        splits_classes=True,
    ),
    "lapsum_top_k": LossSpec(
        "LapSum top-K",
        _build_plain(losses.lapsum_top_k_loss),
        {**_MEAN_SIZE, "alpha": Number(above=0)},
        optimizes_top_k=True,
    ),
    "sigmoid_top_k": LossSpec(
        "sigmoid top-K",
        _build_plain(losses.sigmoid_top_k_loss),
        {**_K, "tau": Number(above=0)},
        optimizes_top_k=True,
    ),
    "relaxed_top_k_cross_entropy": LossSpec(
        "relaxed top-K cross-entropy",
        _relaxed_top_k_cross_entropy,
        {
            **_MEAN_SIZE,
            "top_1_weight": Number(at_least=0, at_most=1),
            "method": one_of(("bitonic", "neural_sort", "odd_even", "soft_sort")),
            "tau": Number(above=0),
            "swap": one_of(("cauchy", "logistic", "optimal")),
            "art_lambda": Number(at_least=0, below=1),
            "num_candidates": integer(1),
        },
        optimizes_top_k=True,
    ),
    "noised_balanced": LossSpec(
        "noised balanced",
        _noised_balanced,
        {**_K, **_NOISE, **_SAMPLES},
        optimizes_top_k=True,
        splits_classes=True,
    ),
    "noised_imbalanced": LossSpec(
        "noised imbalanced",
        _noised_imbalanced,
        {**_K, **_NOISE, **_SAMPLES, **_MARGINS},
        derive=_with_margins,
        head="cosine",
        optimizes_top_k=True,
        splits_classes=True,
        by_class=True,
    ),
    "expected_balanced": LossSpec(
        "expected balanced",
        _build_split(losses.expected_top_k_hinge),
        {**_K, **_NOISE},
        optimizes_top_k=True,
        splits_classes=True,
    ),
    "expected_imbalanced": LossSpec(
        "expected imbalanced",
        _build_scaled(losses.expected_top_k_hinge),
        {**_K, **_NOISE, **_MARGINS},
        derive=_with_margins,
        head="cosine",
        optimizes_top_k=True,
        splits_classes=True,
        by_class=True,
    ),
    "assume_negative": LossSpec(
        "assume negative", _build_plain(losses.assume_negative), scores=_MULTI_LABEL
    ),
    "expected_positive_regularization": LossSpec(
        "expected positive regularization",
        _expected_positive_regularization,
        {**_MEAN_SIZE, "beta": Number(at_least=0)},
        of_batch=True,
        truths=(ONE,),
        scores=_MULTI_LABEL,
    ),
    "average_k": LossSpec(
        "average-K",
        _average_k,
        {**_MEAN_SIZE, "alpha": Number(at_least=0)},
        head="two_heads",
        of_batch=True,
        truths=(ONE,),
        scores=_MULTI_LABEL,
        splits_classes=True,
    ),
    "conformal_training": LossSpec(
        "conformal training",
        functools.partial(_beside_cross_entropy, losses.conformal_training),
        {
            **_OF_SETS,
            # A constant of the steps: it determines the rank of the quantile.
            "error": _ERROR.__call__,
            "quantile": one_of(_QUANTILES),
            "smoothing": Number(above=0),
            "size_weight": Number(at_least=0),
        },
        of_batch=True,
        truths=(ONE,),
        splits_classes=True,
        of_softmax=True,
    ),
    "size_at_average_error": LossSpec(
        "size at an average error",
        functools.partial(_beside_cross_entropy, losses.size_at_average_error),
        {**_OF_SETS, "error": _ERROR},
        of_batch=True,
        truths=(ONE,),
        splits_classes=True,
        of_softmax=True,
    ),
    "role": LossSpec(
        "ROLE",
        _role,
        {**_MEAN_SIZE, "weight": Number(at_least=0), "label_learning_rate": Number(at_least=0)},
        derive=_without_label_rate,
        of_batch=True,
        truths=(ONE,),
        scores=_MULTI_LABEL,
    ),
    "binary_cross_entropy": LossSpec(
        "binary cross-entropy",
        _build_of_targets(losses.binary_cross_entropy),
        scores=_MULTI_LABEL,
        of_rows=True,
    ),
    "asymmetric": LossSpec(
        "asymmetric",
        _build_of_targets(losses.asymmetric),
        {
            "gamma_positive": Number(at_least=0),
            "gamma_negative": Number(at_least=0),
            "margin": Number(at_least=0, below=1),
        },
        scores=_MULTI_LABEL,
        of_rows=True,
    ),
    "sparse_top": LossSpec(
        "sparse top-k",
        _build_of_targets(losses.sparse_top_loss),
        truths=(ONE, SEVERAL),
        of_rows=True,
    ),
    "sparsemax": LossSpec(
        "sparsemax",
        _build_split(losses.sparsemax_loss),
        splits_classes=True,
    ),
    "entmax": LossSpec(
        "entmax",
        _build_split(losses.entmax_loss),
        {"alpha": Number(at_least=1, at_most=2)},
        splits_classes=True,
    ),
}
# The papers' symbols for parameters, for figures.
SYMBOLS = {
    "k": "K",
    "epsilon": "ε",
    "num_samples": "M",
    "tau": "τ",
    "gamma": "γ",
    "alpha": "α",
    "beta": "β",
    "max_margin": "max m",
}


# What `config.loss.name` may be: a name of ours, or the import path of a third-party entry.
LOSS_NAME = import_paths.one_of_or_path(LOSSES, LossSpec)


def find_loss(name: str) -> LossSpec:
    """The loss of a name that `LOSS_NAME` allows."""
    if name in LOSSES:
        return LOSSES[name]
    spec: LossSpec = import_paths.load(name)
    return spec
