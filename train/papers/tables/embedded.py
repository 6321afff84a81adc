"""The tables of the thesis on data that needs no download, without published numbers.

On `synthetic_species` the best classifier is known. Tables 4.2, 4.3, 4.4, 4.7, 4.9 and 5.1 have
balanced data sets in the thesis, and balanced species here; the other tables have the long tail of
the recipe. The digits are balanced and do not have label noise; they are so easy that K = 3
replaces K = 5.
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from train.papers.tables import layouts
from train.papers.tables.layouts import (
    AVERAGE_K,
    BALANCED,
    IMBALANCED,
    Variant,
    average_k,
    epsilon_columns,
    k_columns,
    macro_top_k,
    noise_columns,
    sample_columns,
    top_k,
    with_expectation,
)
from train.papers.tables.readings import ResultMetric
from train.papers.tables.table import Table
from train.series.parameters import Choice
from train.series.recipe import Recipe
from train.series.search import Search

# Enough for an interval; a table of a few columns takes an hour on two cores.
_SEEDS = 5
# The values of K in tables with several of them.
_KS = (1, 3, 5)
# The grids of the thesis for its imbalanced data sets (4.6.5).
_MARGINS = Choice("loss.max_margin", (0.2, 0.3, 0.4, 0.5))
_GRIDS: Mapping[str, tuple[Choice, ...]] = {
    "focal": (Choice("loss.gamma", (0.5, 1.0, 2.0, 5.0)),),
    "smooth_top_k_hinge": (Choice("loss.tau", (0.1, 1.0)),),
    "ldam": (_MARGINS,),
    "noised_imbalanced": (_MARGINS, Choice("loss.epsilon", (0.01, 0.05, 0.1))),
}


@dataclass(frozen=True)
class _Embedded:
    """An embedded data set.

    Attributes:
        name: the name of its recipe.
        network: the network of its recipe.
        k: the K of its recipe.
        noises: the shares of label noise that it can have.
        balanced: whether the classes of the recipe are balanced.
        selects: whether epochs are selected by the metric of the table, instead of the recipe's.
        has_best: whether the best classifier is known.
    """

    name: str
    network: str
    k: int
    noises: tuple[float, ...]
    balanced: bool
    selects: bool
    has_best: bool

    def recipe(self, loss: str) -> Recipe:
        """The recipe with a loss."""
        return Recipe(self.name, loss)

    def balanced_recipe(self, loss: str) -> Recipe:
        """The recipe with a loss and with balanced classes."""
        recipe = self.recipe(loss)
        return recipe if self.balanced else recipe.changed({"dataset.long_tail_exponent": 0.0})

    def k_columns(
        self,
        ks: Iterable[int],
        metric: Callable[[int], ResultMetric],
        *,
        select_by: Callable[[int], ResultMetric],
    ) -> dict[str, Variant]:
        """A column for each K."""
        return k_columns(ks, metric, select_by=select_by if self.selects else None)

    def balanced_title(self, text: str) -> str:
        """The title, with a note that classes are balanced if the recipe's classes are not."""
        return text if self.balanced else f"{text}, balanced classes"


_DATA_SETS = (
    _Embedded(
        name="synthetic_species",
        network="mlp",
        k=5,
        noises=layouts.NOISES,
        balanced=False,
        selects=True,
        has_best=True,
    ),
    _Embedded(
        name="digits",
        network="small_cnn",
        k=3,
        noises=(0,),
        balanced=True,
        # By the loss: with 270 validation images many epochs have the same accuracy.
        selects=False,
        has_best=False,
    ),
)


def _tables(data: _Embedded) -> tuple[Table, ...]:
    make_table = functools.partial(
        layouts.make_table, seeds=_SEEDS, on=data.name, has_best=data.has_best
    )
    k, metric = data.k, top_k(data.k)
    tail = not data.balanced
    imbalanced = functools.partial(
        make_table,
        search=functools.partial(_search, data),
        note=f"The grids of the thesis, searched with K = {k} for all columns." if tail else "",
    )
    macro_columns = data.k_columns(
        _KS, lambda k: top_k(k, macro=True, with_shots=tail), select_by=macro_top_k
    )
    noise_note = f"Trained with K = {k}."
    return (
        make_table(
            "3.1",
            "test top-1 accuracy (%) by training images of the class",
            (data.network,),
            layouts.COUNT_COLUMNS,
            lambda _network: data.recipe("cross_entropy"),
            has_best=False,
        ),
        make_table(
            "4.2",
            data.balanced_title(f"test top-{k} accuracy (%) by epsilon, K = {k}, M = 10"),
            ("noised_balanced", "expected_balanced"),
            epsilon_columns(metric),
            data.balanced_recipe,
            note="Expected balanced has the exact expectation in place of M samples.",
        ),
        make_table(
            "4.3",
            data.balanced_title(f"test top-{k} accuracy (%) by noise samples M, K = {k}"),
            ("noised_balanced",),
            with_expectation(sample_columns(layouts.SAMPLES, metric), metric),
            data.balanced_recipe,
            note="M = inf is the exact expectation, the loss expected_balanced.",
        ),
        make_table(
            "4.4",
            data.balanced_title(f"test top-{k} accuracy (%) by label noise p"),
            BALANCED,
            noise_columns(data.noises, metric),
            data.balanced_recipe,
            note=noise_note,
        ),
        imbalanced("4.5", "test macro top-K accuracy (%)", IMBALANCED, macro_columns, data.recipe),
        # The published one is on a class-balanced test set, on which macro and regular are the
        # same.
        imbalanced(
            "4.6",
            "test macro top-K accuracy (%)",
            [loss for loss in IMBALANCED if loss != "noised_balanced"],
            macro_columns,
            data.recipe,
        ),
        make_table(
            "4.7",
            data.balanced_title("test top-1 accuracy (%) by label noise p"),
            BALANCED,
            noise_columns(data.noises, top_k(1)),
            data.balanced_recipe,
            note=noise_note,
        ),
        # The runs of table 4.5 with another metric.
        imbalanced(
            "4.8",
            "test top-K accuracy (%)",
            IMBALANCED,
            data.k_columns(_KS, top_k, select_by=macro_top_k),
            data.recipe,
        ),
        make_table(
            "4.9",
            data.balanced_title("test top-K accuracy (%)"),
            BALANCED,
            data.k_columns((1, k), top_k, select_by=top_k),
            data.balanced_recipe,
        ),
        make_table(
            "5.1",
            data.balanced_title("test average-K accuracy (%)"),
            AVERAGE_K,
            data.k_columns((k,), average_k, select_by=average_k),
            data.balanced_recipe,
        ),
        make_table(
            "5.2",
            "test average-K accuracy (%)",
            [loss for loss in AVERAGE_K if loss != "role"],
            data.k_columns(
                [k for k in _KS if k > 1],
                lambda k: average_k(k, with_shots=tail),
                select_by=average_k,
            ),
            data.recipe,
        ),
    )


def _search(data: _Embedded, loss: str) -> Search | None:
    # On balanced classes, parameters are not tuned to few-shot classes.
    if data.balanced or loss not in _GRIDS:
        return None
    select_by = macro_top_k(data.k).metric
    [column] = data.k_columns((data.k,), macro_top_k, select_by=macro_top_k).values()
    count = math.prod(len(choice.values) for choice in _GRIDS[loss])
    return Search(column.recipe(data.recipe(loss)), _GRIDS[loss], select_by, count)


TABLES = tuple(table for data in _DATA_SETS for table in _tables(data))
