"""The losses of the program by name. To add a loss, add an entry to `LOSSES`."""

from collections.abc import Mapping
from typing import Annotated, Any

from topk_jax import losses
from train.configuration import LossFields, declaring
from train.data.truths import ONE, SEVERAL
from train.foundation import import_paths
from train.foundation.kinds import (
    COUNT,
    NOT_NEGATIVE,
    SET_SIZE,
    SMALLER_SET,
    integer,
    number,
    one_of,
)
from train.training import loss_objectives
from train.training.loss_objectives import Build, of_labels, of_targets
from train.training.objectives import CONSTANT, LossSpec

# A top-K loss compares the label with sets that do not contain it, so their size is below L.
_K = {"k": SMALLER_SET}
_MEAN_SIZE = {"k": SET_SIZE}
_NOISE = {"epsilon": NOT_NEGATIVE}
# Samples are computed one after another: more would take minutes for a single batch.
_SAMPLES = {"num_samples": integer(1, 10_000)}
_TAU = {"tau": NOT_NEGATIVE}
_MARGINS = {"max_margin": NOT_NEGATIVE, "scale": number(gt=0)}
_ERROR = number(gt=0, lt=1)
_OF_SETS = {"temperature": number(gt=0), "weight": NOT_NEGATIVE}
# Every configuration has the field.
_LABEL_SMOOTHING = declaring.of_group(LossFields)["label_smoothing"].kind
# Each class can have a probability of its own.
_MULTI_LABEL = ("softmax", "sigmoid")


def _top_k(title: str, build: Build, parameters: Mapping[str, Any], **others: Any) -> LossSpec:
    """A loss that is made for the top-K accuracy of its own K."""
    return LossSpec(title, build, parameters, optimizes_top_k=True, **others)


# The margins are those of cosines, larger for rare classes.
_WITH_MARGINS: dict[str, Any] = {
    "derive": loss_objectives.with_margins,
    "head": "cosine",
    "by_class": True,
}
_WITH_COUNTS: dict[str, Any] = {"derive": loss_objectives.with_counts, "by_class": True}
_OF_BATCH: dict[str, Any] = {"of_batch": True, "truths": (ONE,)}

LOSSES = {
    "cross_entropy": LossSpec(
        "cross-entropy",
        of_labels(losses.cross_entropy, evaluated=losses.cross_entropy),
        {"label_smoothing": _LABEL_SMOOTHING},
        derive=loss_objectives.without_zero_smoothing,
    ),
    "focal": LossSpec("focal", of_labels(losses.focal), {"gamma": NOT_NEGATIVE}),
    "ldam": LossSpec("LDAM", of_labels(losses.ldam), _MARGINS, **_WITH_MARGINS),
    "logit_adjusted_cross_entropy": LossSpec(
        "logit-adjusted cross-entropy",
        of_labels(losses.logit_adjusted_cross_entropy),
        _TAU,
        **_WITH_COUNTS,
    ),
    "vector_scaling": LossSpec(
        "vector scaling",
        of_labels(losses.vector_scaling),
        {"gamma": NOT_NEGATIVE, **_TAU},
        **_WITH_COUNTS,
    ),
    "generalized_cross_entropy": LossSpec(
        "generalized cross-entropy",
        of_labels(losses.generalized_cross_entropy),
        {"q": number(gt=0, le=1)},
    ),
    "symmetric_cross_entropy": LossSpec(
        "symmetric cross-entropy",
        of_labels(losses.symmetric_cross_entropy),
        {"alpha": NOT_NEGATIVE, "beta": NOT_NEGATIVE},
    ),
    "hierarchical_cross_entropy": LossSpec(
        "hierarchical cross-entropy",
        of_labels(losses.hierarchical_cross_entropy),
        {"alpha": NOT_NEGATIVE},
        needs_taxonomy=True,
    ),
    "soft_label_cross_entropy": LossSpec(
        "soft-label cross-entropy",
        of_labels(losses.soft_label_cross_entropy, evaluated=losses.cross_entropy),
        {"beta": NOT_NEGATIVE},
        needs_taxonomy=True,
    ),
    "top_k_hinge": _top_k("top-K hinge", of_labels(losses.top_k_hinge), _K),
    "convex_top_k_hinge": _top_k("convex top-K hinge", of_labels(losses.convex_top_k_hinge), _K),
    "calibrated_top_k_hinge": _top_k(
        "calibrated top-K hinge", of_labels(losses.calibrated_top_k_hinge), _K
    ),
    "smooth_top_k_hinge": _top_k(
        "smooth top-K hinge", of_labels(losses.smooth_top_k_hinge), {**_K, "tau": number(gt=0)}
    ),
    "lapsum_top_k_loss": _top_k(
        "LapSum top-K", of_labels(losses.lapsum_top_k_loss), {**_MEAN_SIZE, "alpha": number(gt=0)}
    ),
    "sigmoid_top_k_loss": _top_k(
        "sigmoid top-K", of_labels(losses.sigmoid_top_k_loss), {**_K, "tau": number(gt=0)}
    ),
    "relaxed_top_k_cross_entropy": _top_k(
        "relaxed top-K cross-entropy",
        of_labels(loss_objectives.relaxed_top_k_cross_entropy),
        {
            **_MEAN_SIZE,
            "top_1_weight": number(ge=0, le=1),
            "method": one_of(("odd_even", "soft_sort")),
            "tau": number(gt=0),
            "swap": one_of(("cauchy", "logistic")),
            "num_candidates": COUNT,
        },
    ),
    "noised_top_k_hinge": _top_k(
        "noised top-K hinge", loss_objectives.noised, {**_K, **_NOISE, **_SAMPLES}
    ),
    "imbalanced_noised_top_k_hinge": _top_k(
        "noised top-K hinge with class margins",
        loss_objectives.noised,
        {**_K, **_NOISE, **_SAMPLES, **_MARGINS},
        **_WITH_MARGINS,
    ),
    "expected_top_k_hinge": _top_k(
        "expected top-K hinge", of_labels(losses.expected_top_k_hinge), {**_K, **_NOISE}
    ),
    "imbalanced_expected_top_k_hinge": _top_k(
        "expected top-K hinge with class margins",
        of_labels(losses.expected_top_k_hinge),
        {**_K, **_NOISE, **_MARGINS},
        **_WITH_MARGINS,
    ),
    "assume_negative": LossSpec(
        "assume negative", of_labels(losses.assume_negative), scores=_MULTI_LABEL
    ),
    "expected_positive_regularization": LossSpec(
        "expected positive regularization",
        loss_objectives.expected_positive_regularization,
        {**_MEAN_SIZE, "beta": NOT_NEGATIVE},
        scores=_MULTI_LABEL,
        **_OF_BATCH,
    ),
    "average_k": LossSpec(
        "average-K",
        loss_objectives.average_k,
        {**_MEAN_SIZE, "alpha": NOT_NEGATIVE},
        head="two_heads",
        scores=_MULTI_LABEL,
        **_OF_BATCH,
    ),
    "conformal_training": LossSpec(
        "conformal training",
        loss_objectives.beside_cross_entropy(losses.conformal_training),
        {
            **_OF_SETS,
            # A constant of the steps: it determines the rank of the quantile.
            "error": Annotated[_ERROR, CONSTANT],
            "smoothing": number(gt=0),
            "size_weight": NOT_NEGATIVE,
        },
        **_OF_BATCH,
    ),
    "size_at_average_error": LossSpec(
        "size at an average error",
        loss_objectives.beside_cross_entropy(losses.size_at_average_error),
        {**_OF_SETS, "error": _ERROR},
        **_OF_BATCH,
    ),
    "role": LossSpec(
        "ROLE",
        loss_objectives.role,
        {**_MEAN_SIZE, "weight": NOT_NEGATIVE, "label_learning_rate": NOT_NEGATIVE},
        derive=loss_objectives.without_label_rate,
        scores=_MULTI_LABEL,
        **_OF_BATCH,
    ),
    "binary_cross_entropy": LossSpec(
        "binary cross-entropy",
        of_targets(losses.binary_cross_entropy),
        scores=_MULTI_LABEL,
        of_rows=True,
    ),
    "asymmetric": LossSpec(
        "asymmetric",
        of_targets(losses.asymmetric),
        {
            "gamma_positive": NOT_NEGATIVE,
            "gamma_negative": NOT_NEGATIVE,
            "margin": number(ge=0, lt=1),
        },
        scores=_MULTI_LABEL,
        of_rows=True,
    ),
    "sparse_top_loss": LossSpec(
        "sparse top-k", of_targets(losses.sparse_top_loss), truths=(ONE, SEVERAL), of_rows=True
    ),
    "sparsemax_loss": LossSpec("sparsemax", of_labels(losses.sparsemax_loss)),
    "entmax_loss": LossSpec("entmax", of_labels(losses.entmax_loss), {"alpha": number(ge=1, le=2)}),
}


def find_loss(name: str) -> LossSpec:
    """The loss of `config.loss.name`: an entry of `LOSSES`, or a `LossSpec` by its path.

    Raises:
        UserError: there is none.
    """
    return import_paths.find("config.loss.name", name, LOSSES, LossSpec)
