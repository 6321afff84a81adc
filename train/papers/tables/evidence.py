"""The experiments behind `docs/evidence/first_edition.md`, on `synthetic_species`."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from train.evaluation.metric import Metric
from train.papers.tables.layouts import Variant, average_k, epsilon_columns, make_table, top_k
from train.papers.tables.readings import FirstEpochMean
from train.papers.tables.table import Table
from train.series.recipe import Recipe

_K = 5
# Half of the epochs of the recipe, to save time.
_SHORTER = {"num_epochs": 10, "optimizer.decay_epochs": (6, 8)}
_ALPHAS = (0.01, 0.1, 0.3, 1.0, 10.0, 100.0)


# A table of five seeds on the species.
_table = functools.partial(make_table, seeds=5, on="synthetic_species", has_best=True)


def _recipe(select_by: Metric, changes: Mapping[str, Any]) -> Callable[[str], Recipe]:
    def recipe(loss: str) -> Recipe:
        shorter = Recipe("synthetic_species", loss).changed(_SHORTER)
        return shorter.changed({"select_by": select_by.name}).changed(changes)

    return recipe


def _by_alpha() -> Table:
    metric = average_k(_K)
    return _table(
        "E7",
        f"test average-{_K} accuracy (%) by alpha, on a long tail",
        ("average_k",),
        {f"alpha={alpha:g}": Variant(metric, (("loss.alpha", alpha),)) for alpha in _ALPHAS},
        _recipe(metric.metric, {}),
    )


def _gradient_sparsity() -> Table:
    balanced = {"dataset.long_tail_exponent": 0.0, "loss.num_samples": 3, "num_epochs": 1}
    return _table(
        "E8",
        "gradient coordinates other than 0, an image, in the first epoch, M = 3, balanced classes",
        ("noised_balanced",),
        epsilon_columns(FirstEpochMean("nonzero_gradients")),
        _recipe(top_k(_K).metric, balanced),
        note="Of 100; an image that the hinge is at rest for has none.",
    )


TABLES = (_by_alpha(), _gradient_sparsity())
