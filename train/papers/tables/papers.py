"""The tables of the thesis on its own data sets, with the runs that make each number anew."""

from collections.abc import Callable
from dataclasses import replace

from train.papers.tables import layouts
from train.papers.tables.layouts import k_columns, make_table
from train.papers.tables.published import PUBLISHED
from train.papers.tables.table import Cell, Metric, Recipe, Table

_PRETRAINED = (
    "The published networks start from weights trained on ImageNet: "
    "--override=model.pretrained=FILE."
)
_SELECTED = "Selected by the validation {metric} of the column's K, as the thesis does."
_SEEDS_UNKNOWN = "The thesis does not say with how many seeds."


def _table_3_1() -> Table:
    recipe = Recipe("plantnet300k", "cross_entropy").changed(
        {"optimizer.learning_rate": 0.01, "select_by": "top_1_accuracy"}
    )
    return layouts.count_table(
        recipe,
        "test top-1 accuracy (%) on Pl@ntNet-300K by training images of the class, ResNet-50",
        seeds=1,
        note=f"The thesis does not say how the epoch was selected: here by top-1. {_PRETRAINED}",
    )


def _table_4_2() -> Table:
    metric = Metric("top_5_accuracy", split="validation")
    recipe = Recipe("cifar100", "noised_balanced")
    return make_table(
        "4.2",
        "best validation top-5 accuracy (%) on CIFAR-100 by epsilon, K = 5, M = 10, DenseNet 40-40",
        ("noised_balanced",),
        layouts.epsilon_columns(),
        lambda _, epsilon: Cell(recipe.changed({"loss.epsilon": epsilon}), metric),
        seeds=1,
        note=_SEEDS_UNKNOWN,
    )


def _table_4_3() -> Table:
    metric = Metric("top_5_accuracy", split="validation")
    recipe = Recipe("cifar100", "noised_balanced")
    return make_table(
        "4.3",
        "best validation top-5 accuracy (%) on CIFAR-100 by the number of noise samples M, K = 5, "
        "epsilon = 0.2, DenseNet 40-40",
        ("noised_balanced",),
        {f"M={samples}": samples for samples in layouts.SAMPLES},
        lambda _, samples: Cell(recipe.changed({"loss.num_samples": samples}), metric),
        seeds=1,
        note=_SEEDS_UNKNOWN,
    )


def _by_noise(number: str, k: int, note: str = "") -> Table:
    return make_table(
        number,
        f"test top-{k} accuracy (%) on CIFAR-100 by label noise p within superclasses, "
        "DenseNet 40-40",
        layouts.BALANCED,
        layouts.noise_columns(layouts.NOISES),
        lambda loss, noise: Cell(
            layouts.with_noise(Recipe("cifar100", loss), noise), layouts.top_k(k)
        ),
        seeds=4,
        note=f"Trained with K = 5 and selected by the validation top-5 accuracy. {note}".strip(),
    )


def _table_4_5() -> Table:
    return make_table(
        "4.5",
        "test macro top-K accuracy (%) on Pl@ntNet-300K, ResNet-50",
        layouts.IMBALANCED,
        k_columns((1, 3, 5)),
        lambda loss, k: Cell(
            layouts.for_k(Recipe("plantnet300k", loss), k, f"macro_top_{k}_accuracy"),
            layouts.top_k(k, macro=True, with_shots=True),
        ),
        seeds=3,
        note=f"{_SELECTED.format(metric='macro top-K accuracy')} {_PRETRAINED}",
    )


def _table_4_6() -> Table:
    return make_table(
        "4.6",
        "test top-K accuracy (%) on ImageNet-LT, ResNet-34",
        [loss for loss in layouts.IMBALANCED if loss != "noised_balanced"],
        k_columns((1, 3, 5)),
        lambda loss, k: Cell(
            layouts.for_k(Recipe("imagenet_lt", loss), k, f"macro_top_{k}_accuracy"),
            layouts.top_k(k, with_shots=True),
        ),
        seeds=4,
        note="The thesis does not say where its search for the scale of LDAM and noised imbalanced "
        "ended: here at its centre.",
    )


def _table_4_8() -> Table:
    return make_table(
        "4.8",
        "test top-K accuracy (%) of the models of table 4.5 on Pl@ntNet-300K, ResNet-50",
        layouts.IMBALANCED,
        k_columns((1, 3, 5, 10)),
        lambda loss, k: Cell(
            layouts.for_k(Recipe("plantnet300k", loss), k, f"macro_top_{k}_accuracy"),
            layouts.top_k(k),
        ),
        seeds=3,
        note=f"{_SELECTED.format(metric='macro top-K accuracy')} {_PRETRAINED}",
    )


def _table_4_9() -> Table:
    return make_table(
        "4.9",
        "test top-K accuracy (%) on ImageNet, ResNet-18",
        layouts.BALANCED,
        k_columns((1, 5)),
        lambda loss, k: Cell(
            layouts.for_k(Recipe("imagenet", loss), k, f"top_{k}_accuracy"), layouts.top_k(k)
        ),
        seeds=3,
        note=_SELECTED.format(metric="top-K accuracy"),
    )


def _table_5_1() -> Table:
    # What the losses of chapter 5 alone have in their recipe already.
    chapter_5 = {"dataset.holdout": "balanced", "select_by": "average_5_accuracy"}
    return make_table(
        "5.1",
        "test average-5 accuracy (%) on CIFAR-100, DenseNet 40-40",
        layouts.AVERAGE_K,
        k_columns((5,)),
        lambda loss, k: Cell(Recipe("cifar100", loss).changed(chapter_5), layouts.average_k(k)),
        seeds=3,
        note=f"{_SELECTED.format(metric='average-K accuracy')} {_SEEDS_UNKNOWN}",
    )


def _table_5_2() -> Table:
    return make_table(
        "5.2",
        "test average-K accuracy (%) on Pl@ntNet-300K, ResNet-18",
        [loss for loss in layouts.AVERAGE_K if loss != "role"],
        k_columns((2, 3, 5, 10)),
        lambda loss, k: Cell(
            layouts.for_k(Recipe("plantnet300k_average_k", loss), k, f"average_{k}_accuracy"),
            layouts.average_k(k, with_shots=True),
        ),
        seeds=3,
        note=f"{_SELECTED.format(metric='average-K accuracy')} {_SEEDS_UNKNOWN} {_PRETRAINED}",
    )


_TABLES: dict[str, Callable[[], Table]] = {
    "3.1": _table_3_1,
    "4.2": _table_4_2,
    "4.3": _table_4_3,
    "4.4": lambda: _by_noise(
        "4.4",
        k=5,
        note="For smooth hinge at p = 0, the paper of 2022 has 94.34 where this has 93.3.",
    ),
    "4.5": _table_4_5,
    "4.6": _table_4_6,
    "4.7": lambda: _by_noise("4.7", k=1),
    "4.8": _table_4_8,
    "4.9": _table_4_9,
    "5.1": _table_5_1,
    "5.2": _table_5_2,
}
NUMBERS = tuple(_TABLES)


def table(number: str) -> Table:
    """The table of that number, with what was published in each cell."""
    made = _TABLES[number]()
    published = PUBLISHED[number]
    return replace(
        made,
        cells={
            place: replace(cell, published=published[place]) for place, cell in made.cells.items()
        },
    )
