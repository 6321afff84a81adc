"""The experiments behind `docs/evidence.md`, on species whose best classifier is known.

Every loss is tuned with the same budget, eight candidates of one run each, on validation: four
learning rates by two values of its own parameter, or eight learning rates where it has none. What
is swept is not tuned: of epsilon, each value has its own learning rate out of four.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from train.papers.tables import layouts
from train.papers.tables.layouts import k_columns, make_table
from train.papers.tables.table import (
    Cell,
    FirstEpochMean,
    LastEpoch,
    Metric,
    Overrides,
    Recipe,
    SetSizeShare,
    Table,
    Tuning,
    grid,
)
from train.training.objectives import LOSSES

_SEEDS = 5
# Half of the recipe's epochs, so that all the runs take two hours of two cores and not four.
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
# The two values of a loss's own parameter that it is tuned over.
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
_MACRO = layouts.top_k(_K, macro=True, with_shots=True)
_CLASSES_AND_IMAGES = {f"macro top-{_K}": _MACRO, f"top-{_K}": layouts.top_k(_K)}
_SAMPLES = (1, 3, 10, 50)
_SET_SIZES = (1, 2, 5, 10)
_NOISES = (0, 0.2, 0.4)
_ALPHAS = (0.01, 0.1, 0.3, 1.0, 10.0, 100.0)


def _candidates(loss: str, rates: tuple[float, ...]) -> tuple[Overrides, ...]:
    """The eight candidates of a loss; `rates` are for one that has a parameter of its own."""
    own = _PARAMETERS.get(loss)
    if own is None:
        return _rates(_MORE_RATES)
    return tuple(rate + parameters for rate in _rates(rates) for parameters in grid(**own))


def _rates(values: tuple[float, ...]) -> tuple[Overrides, ...]:
    return tuple((("optimizer.learning_rate", value),) for value in values)


def _recipe(loss: str, select_by: str, *, balanced: bool) -> Recipe:
    recipe = Recipe("synthetic_species", loss).changed(_SHORTER | {"select_by": select_by})
    return recipe.changed({"dataset.long_tail_exponent": 0.0}) if balanced else recipe


def _tuned(recipe: Recipe, select_by: str, rates: tuple[float, ...] = _RATES) -> Tuning:
    return Tuning(recipe, _candidates(recipe.loss, rates), select_by)


def _by_epsilon() -> Table:
    select_by = f"top_{_K}_accuracy"

    def cell(loss: str, epsilon: float) -> Cell:
        recipe = _recipe(loss, select_by, balanced=True).changed({"loss.epsilon": epsilon})
        return Cell(recipe, layouts.top_k(_K), tuning=Tuning(recipe, _rates(_RATES), select_by))

    return _table(
        "E1",
        f"test top-{_K} accuracy (%) by epsilon, M = 10, balanced classes",
        ("noised_balanced",),
        layouts.epsilon_columns(),
        cell,
    )


def _by_samples() -> Table:
    select_by = f"top_{_K}_accuracy"

    def cell(loss: str, samples: int | None) -> Cell:
        if samples is None:
            recipe = _recipe("expected_balanced", select_by, balanced=True)
        else:
            recipe = _recipe(loss, select_by, balanced=True).changed({"loss.num_samples": samples})
        return Cell(recipe, layouts.top_k(_K))

    return _table(
        "E2",
        f"test top-{_K} accuracy (%) by noise samples M, epsilon = 1, balanced classes",
        ("noised_balanced",),
        {**{f"M={samples}": samples for samples in _SAMPLES}, "M=inf": None},
        cell,
        note="M = inf is the exact expectation, the loss expected_balanced.",
    )


def _by_noise(number: str, k: int) -> Callable[[], Table]:
    def make() -> Table:
        select_by = f"top_{_K}_accuracy"

        def cell(loss: str, noise: float) -> Cell:
            recipe = _recipe(loss, select_by, balanced=True)
            return Cell(
                layouts.with_noise(recipe, noise),
                layouts.top_k(k),
                tuning=_tuned(recipe, select_by),
            )

        return _table(
            number,
            f"test top-{k} accuracy (%) by label noise p, balanced classes",
            _LABEL_NOISE,
            layouts.noise_columns(_NOISES),
            cell,
            note=f"Tuned without noise. Trained and selected with K = {_K}.",
        )

    return make


def _few_images_noise(
    number: str, title: str, metric: Metric | LastEpoch, note: str
) -> Callable[[], Table]:
    def cell(loss: str, noise: float) -> Cell:
        select_by = f"top_{_K}_accuracy"
        recipe = _recipe(loss, select_by, balanced=True).changed(_FEW_IMAGES)
        recipe = layouts.with_noise(recipe, noise)
        # Runs that are read after the last epoch are tuned by it too.
        at_last_epoch = isinstance(metric, LastEpoch)
        tuning = replace(_tuned(recipe, select_by), at_last_epoch=at_last_epoch)
        return Cell(recipe, metric, tuning=tuning)

    return lambda: _table(
        number,
        title,
        _LABEL_NOISE,
        layouts.noise_columns((_NOISES[0], _NOISES[-1])),
        cell,
        note=note,
    )


def _long_tail(
    number: str,
    title: str,
    losses: tuple[str, ...],
    columns: dict[str, Metric],
    note: str,
    *,
    changes: Mapping[str, Any] | Overrides = (),
    rates: tuple[float, ...] = _RATES,
) -> Callable[[], Table]:
    def cell(loss: str, metric: Metric) -> Cell:
        select_by = f"macro_top_{_K}_accuracy"
        recipe = _recipe(loss, select_by, balanced=False).changed(changes)
        return Cell(recipe, metric, tuning=_tuned(recipe, select_by, rates))

    return lambda: _table(number, title, losses, columns, cell, note=note)


def _average_k_cell(*, by_sigmoids: bool) -> Callable[[str, int], Cell]:
    def cell(loss: str, k: int) -> Cell:
        select_by = f"average_{_K}_accuracy"
        recipe = _recipe(loss, select_by, balanced=False).changed({"eval.ks": _SET_SIZES})
        has_sigmoids = by_sigmoids and "sigmoid" in LOSSES[loss].scores
        scores = {"eval.scores": "sigmoid"} if has_sigmoids else {}
        return Cell(
            layouts.for_k(recipe, k, None).changed(scores),
            layouts.average_k(k, with_shots=True),
            tuning=_tuned(recipe.changed(scores), select_by),
        )

    return cell


def _average_k(number: str, cell: Callable[[str, int], Cell], note: str) -> Callable[[], Table]:
    return lambda: _table(
        number,
        "test average-K accuracy (%) on a long tail",
        layouts.AVERAGE_K,
        k_columns(_SET_SIZES[1:]),
        cell,
        note=note,
    )


def _single_answers(
    number: str, cell: Callable[[str, int], Cell], note: str
) -> Callable[[], Table]:
    return lambda: _table(
        number,
        f"test sets of one class (%), of sets of average size {_K}, on a long tail",
        layouts.AVERAGE_K,
        k_columns((_K,)),
        lambda loss, k: replace(cell(loss, k), metric=SetSizeShare(k, size=1)),
        note=note,
    )


def _by_alpha() -> Table:
    select_by = f"average_{_K}_accuracy"

    def cell(loss: str, alpha: float) -> Cell:
        recipe = _recipe(loss, select_by, balanced=False).changed({"loss.alpha": alpha})
        return Cell(recipe, layouts.average_k(_K))

    return _table(
        "E7",
        f"test average-{_K} accuracy (%) by alpha, on a long tail",
        ("average_k",),
        {f"alpha={alpha:g}": alpha for alpha in _ALPHAS},
        cell,
    )


def _gradient_sparsity() -> Table:
    changes = {"loss.num_samples": 3, "num_epochs": 1}

    def cell(loss: str, epsilon: float) -> Cell:
        recipe = _recipe(loss, f"top_{_K}_accuracy", balanced=True)
        recipe = recipe.changed(changes | {"loss.epsilon": epsilon})
        return Cell(recipe, FirstEpochMean("nonzero_gradients"))

    return _table(
        "E8",
        "gradient coordinates other than 0, an image, in the first epoch, M = 3, balanced classes",
        ("noised_balanced",),
        layouts.epsilon_columns(),
        cell,
        note="Of 100; an image that the hinge is at rest for has none.",
    )


def _table(
    number: str,
    title: str,
    losses: tuple[str, ...],
    columns: dict[str, Any],
    cell: Callable[[str, Any], Cell],
    *,
    note: str = "",
) -> Table:
    return make_table(
        number,
        title,
        losses,
        columns,
        cell,
        seeds=_SEEDS,
        note=note,
        on="synthetic_species",
        has_best=True,
    )


_TABLES: dict[str, Callable[[], Table]] = {
    "E1": _by_epsilon,
    "E2": _by_samples,
    "E3": _by_noise("E3", _K),
    "E3b": _by_noise("E3b", 1),
    "E3c": _few_images_noise(
        "E3c",
        f"test top-{_K} accuracy (%) by label noise p, balanced classes, few images, many epochs",
        layouts.top_k(_K),
        "A fifth of the images of E3, four times the epochs; tuned with the noise.",
    ),
    "E3d": _few_images_noise(
        "E3d",
        f"validation top-{_K} accuracy (%) after the last epoch, by label noise p",
        LastEpoch(layouts.top_k(_K).name),
        "The candidates of E3c, selected by their last epoch.",
    ),
    "E4": _long_tail(
        "E4",
        "test accuracy (%) on a long tail",
        _LONG_TAIL,
        {
            f"macro top-{_K}": _MACRO,
            "top-1": layouts.top_k(1),
            f"top-{_K}": layouts.top_k(_K),
            f"average-{_K}": layouts.average_k(_K),
        },
        f"Trained with K = {_K}, selected and tuned by macro top-{_K} accuracy.",
    ),
    "E4b": _long_tail(
        "E4b",
        "test accuracy (%) on a long tail, few images, many epochs",
        _FEW_IMAGES_LONG_TAIL,
        _CLASSES_AND_IMAGES,
        "A fifth of the images of E4, four times the epochs.",
        changes=_FEW_IMAGES,
    ),
    "E5": _long_tail(
        "E5",
        "test accuracy (%) on a long tail, the smooth hinge at larger rates",
        ("cross_entropy", "smooth_top_k_hinge"),
        _CLASSES_AND_IMAGES,
        f"The rates of the smooth hinge are {', '.join(map(str, _LARGE_RATES))}.",
        rates=_LARGE_RATES,
    ),
    "E6": _average_k(
        "E6",
        _average_k_cell(by_sigmoids=False),
        f"Selected by average-{_K} accuracy, and tuned by it with K = {_K}.",
    ),
    "E6b": _single_answers("E6b", _average_k_cell(by_sigmoids=False), "The runs of E6."),
    "E6c": _average_k(
        "E6c",
        _average_k_cell(by_sigmoids=True),
        "As E6, but the multi-label losses are scored, selected and tuned by sigmoids.",
    ),
    "E6d": _single_answers("E6d", _average_k_cell(by_sigmoids=True), "The runs of E6c."),
    "E7": _by_alpha,
    "E8": _gradient_sparsity,
}
NUMBERS = tuple(_TABLES)


def table(number: str) -> Table:
    """An experiment by its number."""
    return _TABLES[number]()
