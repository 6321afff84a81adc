"""Parts that the tables share: groups of losses, columns, and the tables made from both."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from train.papers.tables.published import PUBLISHED
from train.papers.tables.readings import CountBin, Reading, ResultMetric
from train.papers.tables.table import Cell, Table
from train.reports.metric import Metric, Rule
from train.series.recipe import Overrides, Recipe
from train.series.search import Search
from train.training.losses import LOSSES

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
# As texts, which are also the keys of the columns.
EPSILONS = ("0", "1e-4", "1e-3", "1e-2", "0.1", "1", "10", "100")
SAMPLES = (1, 2, 3, 5, 10, 50, 100)


@dataclass(frozen=True)
class Variant:
    """What the runs of a column are.

    Attributes:
        metric: the number that is read from its runs.
        changes: the fields that it changes in the recipe of a loss.
        k: the K for losses that have one; None for the recipe's.
        loss: the loss that its runs are trained with; None for the row's.
        head: the head of the column; None for its key.
    """

    metric: Reading
    changes: Overrides = ()
    k: int | None = None
    loss: str | None = None
    head: str | None = None

    def recipe(self, recipe: Recipe) -> Recipe:
        """The recipe of a loss with the changes of the column."""
        if self.k is not None and LOSSES[recipe.choice].has_k:
            recipe = recipe.changed({"loss.k": self.k})
        return recipe.changed(self.changes)


# The columns of table 3.1, by the training images of the class.
COUNT_COLUMNS = {
    "0-10": Variant(CountBin(0, 10)),
    "10-50": Variant(CountBin(10, 50)),
    "50-500": Variant(CountBin(50, 500)),
    "500-2000": Variant(CountBin(500, 2000), head="500-2,000"),
    "2000-": Variant(CountBin(2000, None), head="> 2,000"),
}


def top_k(k: int, *, macro: bool = False, with_shots: bool = False) -> ResultMetric:
    """The test top-K accuracy."""
    return _accuracy("top", k, macro=macro, with_shots=with_shots)


def macro_top_k(k: int) -> ResultMetric:
    """The test macro top-K accuracy."""
    return top_k(k, macro=True)


def average_k(k: int, *, with_shots: bool = False) -> ResultMetric:
    """The test average-K accuracy."""
    return _accuracy("average", k, macro=False, with_shots=with_shots)


def k_columns(
    ks: Iterable[int],
    metric: Callable[[int], Reading],
    *,
    select_by: Callable[[int], ResultMetric] | None = None,
) -> dict[str, Variant]:
    """A column for each K, with the metric of that K; `select_by` also selects the epochs."""
    return {
        f"K={k}": Variant(
            metric(k), () if select_by is None else (("select_by", select_by(k).name),), k
        )
        for k in ks
    }


def noise_columns(noises: Iterable[float], metric: Reading) -> dict[str, Variant]:
    """A column for each share of label noise in the training split."""
    return {
        f"p={noise:g}": Variant(metric, (("dataset.label_noise", noise),) if noise else ())
        for noise in noises
    }


def epsilon_columns(metric: Reading) -> dict[str, Variant]:
    """A column for each epsilon."""
    return {
        f"epsilon={epsilon}": Variant(metric, (("loss.epsilon", float(epsilon)),))
        for epsilon in EPSILONS
    }


def sample_columns(samples: Iterable[int], metric: Reading) -> dict[str, Variant]:
    """A column for each number of noise samples."""
    return {f"M={count}": Variant(metric, (("loss.num_samples", count),)) for count in samples}


def alpha_columns(alphas: Iterable[str], metric: Reading) -> dict[str, Variant]:
    """A column for each weight alpha of the candidate classes, headed by alpha as it is given."""
    return {f"alpha={alpha}": Variant(metric, (("loss.alpha", float(alpha)),)) for alpha in alphas}


def batch_columns(sizes: Iterable[int], *, rate: float, metric: Reading) -> dict[str, Variant]:
    """A column for each batch size, whose learning rate is that size times `rate`."""
    return {
        f"B={size}": Variant(
            metric, (("dataset.batch_size", size), ("optimizer.learning_rate", size * rate))
        )
        for size in sizes
    }


def with_expectation(columns: Mapping[str, Variant], metric: Reading) -> dict[str, Variant]:
    """The columns by noise samples, and a last one for the exact expectation, another loss."""
    return {**columns, "M=inf": Variant(metric, loss="expected_balanced")}


def make_table(
    number: str,
    title: str,
    rows: Collection[str],
    columns: Mapping[str, Variant],
    recipe: Callable[[str], Recipe],
    *,
    seeds: int,
    note: str = "",
    on: str | None = None,
    has_best: bool = False,
    is_figure: bool = False,
    search: Callable[[str], Search | None] = lambda _loss: None,
) -> Table:
    """A table whose rows are losses, or in table 3.1 networks.

    Args:
        number: see `Table`.
        title: see `Table`.
        rows: the losses or networks.
        columns: the columns by their keys.
        recipe: returns the recipe of a row, before a column changes it.
        seeds: the number of seeds.
        note: see `Table`.
        on: see `Table`.
        has_best: see `Table`.
        is_figure: see `Table`; it has no published numbers.
        search: returns the search of the cells of a row; None if nothing is tuned.
    """
    published = PUBLISHED[number] if on is None and not is_figure else {}
    return Table(
        number=number,
        title=title,
        rows={row: LOSSES[row].title if row in LOSSES else row for row in rows},
        columns={
            key: key.replace("=", " = ") if column.head is None else column.head
            for key, column in columns.items()
        },
        cells={
            (row, key): Cell(
                column.recipe(recipe(column.loss or row)),
                column.metric,
                published.get((row, key)),
                search(row),
            )
            for row in rows
            for key, column in columns.items()
        },
        seeds=tuple(range(seeds)),
        note=note,
        on=on,
        has_best=has_best,
        is_figure=is_figure,
    )


def _accuracy(rule: Rule, k: int, *, macro: bool, with_shots: bool) -> ResultMetric:
    metric = Metric.accuracy(rule, k, "macro" if macro else "micro")
    return ResultMetric(metric, with_shots=with_shots)
