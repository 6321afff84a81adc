"""What the tables of the papers and their embedded versions share: rows, columns, their runs."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from train.evaluation import metric_names
from train.papers.tables.table import Cell, CountBin, Metric, Recipe, Table

Value = TypeVar("Value")

LOSSES = {
    "cross_entropy": "cross-entropy",
    "smooth_top_k_hinge": "smooth hinge",
    "noised_balanced": "noised balanced",
    "expected_balanced": "expected balanced",
    "focal": "focal",
    "ldam": "LDAM",
    "noised_imbalanced": "noised imbalanced",
    "expected_imbalanced": "expected imbalanced",
    "top_k_hinge": "top-K hinge",
    "convex_top_k_hinge": "convex hinge",
    "calibrated_top_k_hinge": "calibrated hinge",
    "sparsemax": "sparsemax",
    "average_k": "average-K",
    "role": "ROLE",
    "assume_negative": "assume negative",
    "expected_positive_regularization": "expected positive",
}
# Those that have a K of their own; the others differ between values of K in the selection alone.
_WITH_K = frozenset(
    {
        "smooth_top_k_hinge",
        "noised_balanced",
        "expected_balanced",
        "noised_imbalanced",
        "average_k",
        "role",
        "expected_positive_regularization",
    }
)

BALANCED = ("cross_entropy", "smooth_top_k_hinge", "noised_balanced")
IMBALANCED = (*BALANCED, "focal", "ldam", "noised_imbalanced")
AVERAGE_K = (
    "cross_entropy",
    "average_k",
    "role",
    "assume_negative",
    "expected_positive_regularization",
    "noised_balanced",
)
NOISES = (0, 0.1, 0.2, 0.3, 0.4)
# As people write them, which are also the keys of the columns.
EPSILONS = ("0", "1e-4", "1e-3", "1e-2", "0.1", "1", "10", "100")
SAMPLES = (1, 2, 3, 5, 10, 50, 100)
COUNT_BINS = {
    "0-10": CountBin(0, 10),
    "10-50": CountBin(10, 50),
    "50-500": CountBin(50, 500),
    "500-2000": CountBin(500, 2000),
    "2000-": CountBin(2000, None),
}


def for_k(recipe: Recipe, k: int, select_by: str | None) -> Recipe:
    """The recipe for sets of K classes, with another K and another selection where it has them."""
    changes: dict[str, object] = {"loss.k": k} if recipe.loss in _WITH_K else {}
    return recipe.changed(changes | ({} if select_by is None else {"select_by": select_by}))


def with_noise(recipe: Recipe, noise: float) -> Recipe:
    """The recipe with label noise in the training split."""
    return recipe.changed({"dataset.label_noise": noise} if noise else {})


def top_k(k: int, *, macro: bool = False, with_shots: bool = False) -> Metric:
    """The test top-K accuracy."""
    return _accuracy(metric_names.top_k(k), macro=macro, with_shots=with_shots)


def average_k(k: int, *, with_shots: bool = False) -> Metric:
    """The test average-K accuracy."""
    return _accuracy(metric_names.average_k(k), macro=False, with_shots=with_shots)


def k_columns(ks: Iterable[int]) -> dict[str, int]:
    """The columns of a table by K."""
    return {f"K={k}": k for k in ks}


def noise_columns(noises: Iterable[float]) -> dict[str, float]:
    """The columns of a table by label noise."""
    return {f"p={noise:g}": noise for noise in noises}


def epsilon_columns() -> dict[str, float]:
    """The columns of a table by epsilon."""
    return {f"epsilon={epsilon}": float(epsilon) for epsilon in EPSILONS}


def make_table(
    number: str,
    title: str,
    losses: Iterable[str],
    columns: Mapping[str, Value],
    cell: Callable[[str, Value], Cell | None],
    *,
    seeds: int,
    note: str = "",
    on: str | None = None,
    has_best: bool = False,
) -> Table:
    """A table with a loss a row."""
    found: dict[tuple[str, str], Cell] = {}
    for loss in losses:
        for column, value in columns.items():
            made = cell(loss, value)
            if made is not None:
                found[loss, column] = made
    return Table(
        number=number,
        title=title,
        rows={loss: LOSSES[loss] for loss in losses},
        columns={column: column.replace("=", " = ") for column in columns},
        cells=found,
        seeds=tuple(range(seeds)),
        note=note,
        on=on,
        has_best=has_best,
    )


def _accuracy(rule: str, *, macro: bool, with_shots: bool) -> Metric:
    name = metric_names.rule_accuracies(rule)["macro" if macro else "micro"]
    return Metric(name, with_shots=with_shots)


def count_table(
    recipe: Recipe, title: str, *, seeds: int, note: str = "", on: str | None = None
) -> Table:
    """Table 3.1 of a recipe: a row for each range of the number of training images of a class."""
    return Table(
        number="3.1",
        title=title,
        rows={
            key: f"> {count.above:,} images"
            if count.up_to is None
            else f"{count.above}-{count.up_to:,} images"
            for key, count in COUNT_BINS.items()
        },
        columns={"accuracy": "accuracy"},
        cells={(key, "accuracy"): Cell(recipe, count) for key, count in COUNT_BINS.items()},
        seeds=tuple(range(seeds)),
        note=note,
        on=on,
    )
