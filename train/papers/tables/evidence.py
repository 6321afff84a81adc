"""The experiments behind `docs/evidence.md`, on species whose best classifier is known.

Every loss is tuned on validation with the same budget, eight candidates of one run each: four
learning rates by two values of its own parameter, or eight learning rates if it has none. A
parameter that a table varies is not tuned: each epsilon has its own learning rate, out of four.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from train.evaluation.metric import Metric
from train.papers.tables.layouts import (
    AVERAGE_K,
    Column,
    average_k,
    epsilon_columns,
    k_columns,
    macro_top_k,
    make_table,
    noise_columns,
    sample_columns,
    top_k,
    with_expectation,
)
from train.papers.tables.readings import FirstEpochMean, LastEpoch, ResultMetric, SetSizeShare
from train.papers.tables.table import Table, Tuning, grid
from train.series.recipe import Overrides, Recipe
from train.training.losses import LOSSES

_SEEDS = 5
# Half of the epochs of the recipe: all runs take two hours on two cores instead of four.
_SHORTER = {"num_epochs": 10, "optimizer.decay_epochs": (6, 8)}
# A fifth of the images and four times the epochs: enough to learn every training label by heart.
_FEW_IMAGES = {
    "dataset.num_train": 4000,
    "num_epochs": 40,
    "optimizer.decay_epochs": (24, 32),
}
_K = 5
_RATES = (0.005, 0.02, 0.08, 0.32)
_MORE_RATES = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64)
_LARGE_RATES = (0.32, 0.64, 1.28, 2.56)
# The two values of its own parameter that a loss is tuned over.
_PARAMETERS: dict[str, dict[str, tuple[float, ...]]] = {
    "focal": {"gamma": (1.0, 2.0)},
    "ldam": {"scale": (20.0, 40.0)},
    "smooth_top_k_hinge": {"tau": (0.1, 1.0)},
    "noised_balanced": {"epsilon": (0.1, 1.0)},
    "expected_balanced": {"epsilon": (0.1, 1.0)},
    "noised_imbalanced": {"scale": (20.0, 40.0)},
    "expected_imbalanced": {"scale": (20.0, 40.0)},
    "expected_positive_regularization": {"beta": (0.01, 0.1)},
    "role": {"weight": (0.0, 0.01)},
    "average_k": {"alpha": (0.3, 3.0)},
}
_LABEL_NOISE = ("cross_entropy", "smooth_top_k_hinge", "noised_balanced", "expected_balanced")
_LONG_TAIL = (
    "cross_entropy",
    "focal",
    "ldam",
    "top_k_hinge",
    "convex_top_k_hinge",
    "calibrated_top_k_hinge",
    "smooth_top_k_hinge",
    "noised_balanced",
    "expected_balanced",
    "noised_imbalanced",
    "expected_imbalanced",
    "sparsemax",
)
_FEW_IMAGES_LONG_TAIL = (
    "cross_entropy",
    "focal",
    "ldam",
    "smooth_top_k_hinge",
    "noised_balanced",
    "noised_imbalanced",
)
_TOP_K = top_k(_K)
_CLASSES_AND_IMAGES = {
    f"macro top-{_K}": Column(top_k(_K, macro=True, with_shots=True)),
    f"top-{_K}": Column(_TOP_K),
}
_SAMPLES = (1, 3, 10, 50)
_SET_SIZES = (1, 2, 5, 10)
_NOISES = (0, 0.2, 0.4)
_FEWER_NOISES = (0, 0.4)
_ALPHAS = (0.01, 0.1, 0.3, 1.0, 10.0, 100.0)


# A table of five seeds on the species.
_table = functools.partial(make_table, seeds=_SEEDS, on="synthetic_species", has_best=True)


def _candidates(loss: str, rates: tuple[float, ...]) -> tuple[Overrides, ...]:
    """The eight candidates of a loss; `rates` are used if it has a parameter of its own."""
    own = _PARAMETERS.get(loss)
    if own is None:
        return _rates(_MORE_RATES)
    return tuple(rate + parameters for rate in _rates(rates) for parameters in grid(**own))


def _rates(values: tuple[float, ...]) -> tuple[Overrides, ...]:
    return tuple((("optimizer.learning_rate", value),) for value in values)


def _on_a_long_tail(
    select_by: Metric, changes: Mapping[str, Any] | Overrides = ()
) -> Callable[[str], Recipe]:
    def recipe(loss: str) -> Recipe:
        shorter = Recipe("synthetic_species", loss).changed(_SHORTER)
        return shorter.changed({"select_by": select_by.name}).changed(changes)

    return recipe


def _balanced(changes: Mapping[str, Any]) -> Callable[[str], Recipe]:
    return _on_a_long_tail(_TOP_K.metric, {"dataset.long_tail_exponent": 0.0, **changes})


def _tuned(
    recipe: Callable[[str], Recipe],
    select_by: Metric,
    rates: tuple[float, ...] = _RATES,
) -> Callable[[str, Column], Tuning]:
    """Tunes each loss once, for all columns."""
    return lambda loss, _column: Tuning(recipe(loss), _candidates(loss, rates), select_by)


def _by_epsilon() -> Table:
    recipe = _balanced({})
    return _table(
        "E1",
        f"test top-{_K} accuracy (%) by epsilon, M = 10, balanced classes",
        ("noised_balanced",),
        epsilon_columns(_TOP_K),
        recipe,
        tuning=lambda loss, column: Tuning(
            column.recipe(recipe(loss)), _rates(_RATES), _TOP_K.metric
        ),
    )


def _by_samples() -> Table:
    return _table(
        "E2",
        f"test top-{_K} accuracy (%) by noise samples M, epsilon = 1, balanced classes",
        ("noised_balanced",),
        with_expectation(sample_columns(_SAMPLES, _TOP_K), _TOP_K),
        _balanced({}),
        note="M = inf is the exact expectation, the loss expected_balanced.",
    )


def _by_noise(number: str, k: int) -> Table:
    recipe = _balanced({})
    return _table(
        number,
        f"test top-{k} accuracy (%) by label noise p, balanced classes",
        _LABEL_NOISE,
        noise_columns(_NOISES, top_k(k)),
        recipe,
        note=f"Tuned without noise. Trained and selected with K = {_K}.",
        tuning=_tuned(recipe, _TOP_K.metric),
    )


def _few_images_noise(
    number: str, title: str, metric: ResultMetric | LastEpoch, note: str
) -> Table:
    recipe = _balanced(_FEW_IMAGES)

    def tuning(loss: str, column: Column) -> Tuning:
        return Tuning(
            column.recipe(recipe(loss)),
            _candidates(loss, _RATES),
            _TOP_K.metric,
            # Runs that are read after the last epoch are also tuned by it.
            at_last_epoch=isinstance(metric, LastEpoch),
        )

    return _table(
        number,
        title,
        _LABEL_NOISE,
        noise_columns(_FEWER_NOISES, metric),
        recipe,
        note=note,
        tuning=tuning,
    )


def _long_tail(
    number: str,
    title: str,
    losses: tuple[str, ...],
    columns: Mapping[str, Column],
    note: str,
    *,
    changes: Mapping[str, Any] | Overrides = (),
    rates: tuple[float, ...] = _RATES,
) -> Table:
    select_by = macro_top_k(_K).metric
    recipe = _on_a_long_tail(select_by, changes)
    tuning = _tuned(recipe, select_by, rates)
    return _table(number, title, losses, columns, recipe, note=note, tuning=tuning)


def _average_k(
    number: str, title: str, columns: Mapping[str, Column], note: str, *, by_sigmoids: bool
) -> Table:
    select_by = average_k(_K).metric

    def recipe(loss: str) -> Recipe:
        found = _on_a_long_tail(select_by, {"eval.ks": _SET_SIZES})(loss)
        has_sigmoids = by_sigmoids and "sigmoid" in LOSSES[loss].scores
        return found.changed({"eval.scores": "sigmoid"} if has_sigmoids else {})

    tuning = _tuned(recipe, select_by)
    return _table(number, title, AVERAGE_K, columns, recipe, note=note, tuning=tuning)


def _by_alpha() -> Table:
    metric = average_k(_K)
    return _table(
        "E7",
        f"test average-{_K} accuracy (%) by alpha, on a long tail",
        ("average_k",),
        {f"alpha={alpha:g}": Column(metric, (("loss.alpha", alpha),)) for alpha in _ALPHAS},
        _on_a_long_tail(metric.metric),
    )


def _gradient_sparsity() -> Table:
    return _table(
        "E8",
        "gradient coordinates other than 0, an image, in the first epoch, M = 3, balanced classes",
        ("noised_balanced",),
        epsilon_columns(FirstEpochMean("nonzero_gradients")),
        _balanced({"loss.num_samples": 3, "num_epochs": 1}),
        note="Of 100; an image that the hinge is at rest for has none.",
    )


_AVERAGE_K_TITLE = "test average-K accuracy (%) on a long tail"
_AVERAGE_K_COLUMNS = k_columns(_SET_SIZES[1:], lambda k: average_k(k, with_shots=True))
_SINGLE_TITLE = f"test sets of one class (%), of sets of average size {_K}, on a long tail"
_SINGLE_COLUMNS = k_columns((_K,), lambda k: SetSizeShare(k, size=1))

TABLES = (
    _by_epsilon(),
    _by_samples(),
    _by_noise("E3", _K),
    _by_noise("E3b", 1),
    _few_images_noise(
        "E3c",
        f"test top-{_K} accuracy (%) by label noise p, balanced classes, few images, many epochs",
        _TOP_K,
        "A fifth of the images of E3, four times the epochs; tuned with the noise.",
    ),
    _few_images_noise(
        "E3d",
        f"validation top-{_K} accuracy (%) after the last epoch, by label noise p",
        LastEpoch(_TOP_K.metric),
        "The candidates of E3c, selected by their last epoch.",
    ),
    _long_tail(
        "E4",
        "test accuracy (%) on a long tail",
        _LONG_TAIL,
        {
            f"macro top-{_K}": _CLASSES_AND_IMAGES[f"macro top-{_K}"],
            "top-1": Column(top_k(1)),
            f"top-{_K}": _CLASSES_AND_IMAGES[f"top-{_K}"],
            f"average-{_K}": Column(average_k(_K)),
        },
        f"Trained with K = {_K}, selected and tuned by macro top-{_K} accuracy.",
    ),
    _long_tail(
        "E4b",
        "test accuracy (%) on a long tail, few images, many epochs",
        _FEW_IMAGES_LONG_TAIL,
        _CLASSES_AND_IMAGES,
        "A fifth of the images of E4, four times the epochs.",
        changes=_FEW_IMAGES,
    ),
    _long_tail(
        "E5",
        "test accuracy (%) on a long tail, the smooth top-K hinge at larger rates",
        ("cross_entropy", "smooth_top_k_hinge"),
        _CLASSES_AND_IMAGES,
        f"The rates of the smooth top-K hinge are {', '.join(map(str, _LARGE_RATES))}.",
        rates=_LARGE_RATES,
    ),
    _average_k(
        "E6",
        _AVERAGE_K_TITLE,
        _AVERAGE_K_COLUMNS,
        f"Selected by average-{_K} accuracy, and tuned by it with K = {_K}.",
        by_sigmoids=False,
    ),
    _average_k("E6b", _SINGLE_TITLE, _SINGLE_COLUMNS, "The runs of E6.", by_sigmoids=False),
    _average_k(
        "E6c",
        _AVERAGE_K_TITLE,
        _AVERAGE_K_COLUMNS,
        "As E6, but the multi-label losses are scored, selected and tuned by sigmoids.",
        by_sigmoids=True,
    ),
    _average_k("E6d", _SINGLE_TITLE, _SINGLE_COLUMNS, "The runs of E6c.", by_sigmoids=True),
    _by_alpha(),
    _gradient_sparsity(),
)
