"""The losses of the program by name. To add a loss, add an entry to `LOSSES`."""

import functools

from topk_jax import losses
from train.configuration import LossFields, declaring
from train.data.truths import ONE, SEVERAL
from train.foundation import import_paths
from train.foundation.fields import Number, SetSize, integer, one_of
from train.training import loss_objectives
from train.training.objectives import LossSpec

# A top-K loss compares the label with sets that do not contain it, so their size is below L.
_K = {"k": SetSize(leaves_one_out=True)}
_MEAN_SIZE = {"k": SetSize()}
_NOISE = {"epsilon": Number(at_least=0)}
# Samples are computed one after another: more would take minutes for a single batch.
_SAMPLES = {"num_samples": integer(1, 10_000)}
_TAU = {"tau": Number(at_least=0)}
_MARGINS = {"max_margin": Number(at_least=0), "scale": Number(above=0)}
_ERROR = Number(above=0, below=1)
_OF_SETS = {"temperature": Number(above=0), "weight": Number(at_least=0)}
# The quantiles without noise.
_QUANTILES = ("bitonic", "expected", "neural_sort", "odd_even", "soft_sort")
# Every configuration has the field.
_LABEL_SMOOTHING = declaring.of_group(LossFields)["label_smoothing"].check
# Each class can have a probability of its own.
_MULTI_LABEL = ("softmax", "sigmoid")

LOSSES = {
    "cross_entropy": LossSpec(
        "cross-entropy",
        loss_objectives.cross_entropy,
        {"label_smoothing": _LABEL_SMOOTHING},
        derive=loss_objectives.without_zero_smoothing,
        splits_classes=True,
    ),
    "focal": LossSpec(
        "focal",
        loss_objectives.build_split(losses.focal),
        {"gamma": Number(at_least=0)},
        splits_classes=True,
    ),
    "ldam": LossSpec(
        "LDAM",
        loss_objectives.build_scaled(losses.ldam),
        _MARGINS,
        derive=loss_objectives.with_margins,
        head="cosine",
        splits_classes=True,
        by_class=True,
    ),
    "logit_adjusted_cross_entropy": LossSpec(
        "logit-adjusted cross-entropy",
        loss_objectives.build_split(losses.logit_adjusted_cross_entropy),
        _TAU,
        derive=loss_objectives.with_counts,
        splits_classes=True,
        by_class=True,
    ),
    "vector_scaling": LossSpec(
        "vector scaling",
        loss_objectives.build_plain(losses.vector_scaling),
        {"gamma": Number(at_least=0), **_TAU},
        derive=loss_objectives.with_counts,
        by_class=True,
    ),
    "generalized_cross_entropy": LossSpec(
        "generalized cross-entropy",
        loss_objectives.build_plain(losses.generalized_cross_entropy),
        {"q": Number(above=0, at_most=1)},
    ),
    "symmetric_cross_entropy": LossSpec(
        "symmetric cross-entropy",
        loss_objectives.build_plain(losses.symmetric_cross_entropy),
        {"alpha": Number(at_least=0), "beta": Number(at_least=0)},
    ),
    "hierarchical_cross_entropy": LossSpec(
        "hierarchical cross-entropy",
        loss_objectives.build_plain(losses.hierarchical_cross_entropy),
        {"alpha": Number(at_least=0)},
        needs_taxonomy=True,
    ),
    "soft_label_cross_entropy": LossSpec(
        "soft-label cross-entropy",
        loss_objectives.soft_label_cross_entropy,
        {"beta": Number(at_least=0)},
        needs_taxonomy=True,
    ),
    "top_k_hinge": LossSpec(
        "top-K hinge",
        loss_objectives.build_split(losses.top_k_hinge),
        _K,
        optimizes_top_k=True,
        splits_classes=True,
    ),
    "convex_top_k_hinge": LossSpec(
        "convex top-K hinge",
        loss_objectives.build_split(losses.convex_top_k_hinge),
        _K,
        optimizes_top_k=True,
        splits_classes=True,
    ),
    "calibrated_top_k_hinge": LossSpec(
        "calibrated top-K hinge",
        loss_objectives.build_split(losses.calibrated_top_k_hinge),
        _K,
        optimizes_top_k=True,
        splits_classes=True,
    ),
    "smooth_top_k_hinge": LossSpec(
        "smooth top-K hinge",
        loss_objectives.build_split(losses.smooth_top_k_hinge),
        {**_K, "tau": Number(above=0)},
        optimizes_top_k=True,
        splits_classes=True,
    ),
    "lapsum_top_k": LossSpec(
        "LapSum top-K",
        loss_objectives.build_plain(losses.lapsum_top_k_loss),
        {**_MEAN_SIZE, "alpha": Number(above=0)},
        optimizes_top_k=True,
    ),
    "sigmoid_top_k": LossSpec(
        "sigmoid top-K",
        loss_objectives.build_plain(losses.sigmoid_top_k_loss),
        {**_K, "tau": Number(above=0)},
        optimizes_top_k=True,
    ),
    "relaxed_top_k_cross_entropy": LossSpec(
        "relaxed top-K cross-entropy",
        loss_objectives.relaxed_top_k_cross_entropy,
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
        loss_objectives.noised_balanced,
        {**_K, **_NOISE, **_SAMPLES},
        optimizes_top_k=True,
        splits_classes=True,
    ),
    "noised_imbalanced": LossSpec(
        "noised imbalanced",
        loss_objectives.noised_imbalanced,
        {**_K, **_NOISE, **_SAMPLES, **_MARGINS},
        derive=loss_objectives.with_margins,
        head="cosine",
        optimizes_top_k=True,
        splits_classes=True,
        by_class=True,
    ),
    "expected_balanced": LossSpec(
        "expected balanced",
        loss_objectives.build_split(losses.expected_top_k_hinge),
        {**_K, **_NOISE},
        optimizes_top_k=True,
        splits_classes=True,
    ),
    "expected_imbalanced": LossSpec(
        "expected imbalanced",
        loss_objectives.build_scaled(losses.expected_top_k_hinge),
        {**_K, **_NOISE, **_MARGINS},
        derive=loss_objectives.with_margins,
        head="cosine",
        optimizes_top_k=True,
        splits_classes=True,
        by_class=True,
    ),
    "assume_negative": LossSpec(
        "assume negative", loss_objectives.build_plain(losses.assume_negative), scores=_MULTI_LABEL
    ),
    "expected_positive_regularization": LossSpec(
        "expected positive regularization",
        loss_objectives.expected_positive_regularization,
        {**_MEAN_SIZE, "beta": Number(at_least=0)},
        of_batch=True,
        truths=(ONE,),
        scores=_MULTI_LABEL,
    ),
    "average_k": LossSpec(
        "average-K",
        loss_objectives.average_k,
        {**_MEAN_SIZE, "alpha": Number(at_least=0)},
        head="two_heads",
        of_batch=True,
        truths=(ONE,),
        scores=_MULTI_LABEL,
        splits_classes=True,
    ),
    "conformal_training": LossSpec(
        "conformal training",
        functools.partial(loss_objectives.beside_cross_entropy, losses.conformal_training),
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
    ),
    "size_at_average_error": LossSpec(
        "size at an average error",
        functools.partial(loss_objectives.beside_cross_entropy, losses.size_at_average_error),
        {**_OF_SETS, "error": _ERROR},
        of_batch=True,
        truths=(ONE,),
        splits_classes=True,
    ),
    "role": LossSpec(
        "ROLE",
        loss_objectives.role,
        {**_MEAN_SIZE, "weight": Number(at_least=0), "label_learning_rate": Number(at_least=0)},
        derive=loss_objectives.without_label_rate,
        of_batch=True,
        truths=(ONE,),
        scores=_MULTI_LABEL,
    ),
    "binary_cross_entropy": LossSpec(
        "binary cross-entropy",
        loss_objectives.build_of_targets(losses.binary_cross_entropy),
        scores=_MULTI_LABEL,
        of_rows=True,
    ),
    "asymmetric": LossSpec(
        "asymmetric",
        loss_objectives.build_of_targets(losses.asymmetric),
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
        loss_objectives.build_of_targets(losses.sparse_top_loss),
        truths=(ONE, SEVERAL),
        of_rows=True,
    ),
    "sparsemax": LossSpec(
        "sparsemax",
        loss_objectives.build_split(losses.sparsemax_loss),
        splits_classes=True,
    ),
    "entmax": LossSpec(
        "entmax",
        loss_objectives.build_split(losses.entmax_loss),
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
