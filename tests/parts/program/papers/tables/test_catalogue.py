"""The tables of the catalogue: their published numbers, and the runs behind each cell."""

import importlib
import math
import re

import pytest

from train.configuration.parsing import parse
from train.foundation.nested import flatten
from train.models import MODELS
from train.papers.networks import NETWORKS
from train.papers.tables.catalogue import CATALOGUE, EMBEDDED, THESIS
from train.papers.tables.published import PUBLISHED, Published
from train.papers.tables.readings import ResultMetric
from train.reports import metric
from train.series.planned_runs import PlannedRun
from train.series.recipe import Recipe

# The number, and the data set if it is an embedded one.
NAMES = {key: " on ".join(filter(None, key)) for key in CATALOGUE}


# The numbers


FIGURES = ("3.9", "5.5", "5.6")


@pytest.mark.parametrize("number", [number for number in THESIS if number not in FIGURES])
def test_every_published_number_has_its_cell(number):
    table = CATALOGUE[number, None]
    assert table.cells.keys() >= PUBLISHED[number].keys()
    # For most networks in table 3.1 the thesis has only figures.
    of_published = {row for row, _ in PUBLISHED[number]}
    assert of_published == ({"resnet50"} if number == "3.1" else set(table.rows))
    assert {row for row, _ in table.cells} == set(table.rows)
    assert {column for _, column in table.cells} == set(table.columns)
    for place, cell in table.cells.items():
        assert cell.published == PUBLISHED[number].get(place)
        if isinstance(cell.metric, ResultMetric):
            assert bool(cell.published.shots) == cell.metric.with_shots
            # Tables 4.2 and 4.3 are of the best validation accuracy.
            assert cell.metric.split == ("validation" if number in ("4.2", "4.3") else "test")


def test_the_numbers_of_figures_are_not_published_and_no_table_has_them():
    assert tuple(number for number in THESIS if CATALOGUE[number, None].is_figure) == FIGURES
    assert not PUBLISHED.keys() & set(FIGURES)
    for number in FIGURES:
        table = CATALOGUE[number, None]
        assert table.name == f"figure {number}"
        assert all(cell.published is None for cell in table.cells.values())
        split = "test" if number == "3.9" else "validation"
        assert {cell.metric.split for cell in table.cells.values()} == {split}


def test_the_rate_follows_the_batch_size_in_figure_5_6():
    for cell in CATALOGUE["5.6", None].cells.values():
        changed = dict(cell.recipe.overrides)
        # 0.1 for batches of 64, as in the recipe; each is a quotient of powers of 2 and 0.1.
        assert changed["optimizer.learning_rate"] == changed["dataset.batch_size"] * (0.1 / 64)


def test_published_numbers_are_those_that_the_recipes_cite():
    # The two were written down apart from each other.
    cited = {
        ("4.4", "cifar100"): ("p=0", "p=0.1", "p=0.2", "p=0.3", "p=0.4"),
        ("4.5", "plantnet300k"): ("K=1", "K=3", "K=5"),
        ("4.6", "imagenet_lt"): ("K=1", "K=3", "K=5"),
        ("4.9", "imagenet"): ("K=1", "K=5"),
        ("5.1", "cifar100"): ("K=5",),
        ("5.2", "plantnet300k_average_k"): ("K=2", "K=3", "K=5", "K=10"),
    }
    for (number, config), columns in cited.items():
        words = importlib.import_module(f"configs.{config}").__doc__
        for row in CATALOGUE[number, None].rows:
            ours = [PUBLISHED[number][row, column].value for column in columns]
            lines = re.findall(rf"\b{row} +([\d. ]+\d)", words)
            theirs = [[float(value) for value in line.split()] for line in lines]
            assert ours in theirs, (number, row)


def test_a_published_number_is_read_as_it_is_printed():
    read = Published.parse("36.3±0.3 (12.6/42.9/71.7)")
    assert read == Published(36.3, 0.3, (12.6, 42.9, 71.7), decimals=1)
    assert Published.parse("9") == Published(9.0, None, (), decimals=0)
    with pytest.raises(ValueError, match="not a published number"):
        Published.parse("36.3 ± 0.3")


# The runs


@pytest.mark.parametrize("key", CATALOGUE, ids=NAMES.values())
def test_every_run_of_a_table_can_be_made_and_leaves_the_cells_metric(key):
    table = CATALOGUE[key]
    for (row, _), cell in table.cells.items():
        if row in NETWORKS and row not in MODELS:
            continue
        config = PlannedRun(cell.recipe, 0).config
        parse(config)
        selectable = metric.selectable(config["eval"]["ks"])
        if isinstance(cell.metric, ResultMetric):
            metrics = (cell.metric, *cell.metric.shots.values())
            assert {one.metric for one in metrics} <= set(selectable)
    for search in {cell.search for cell in table.cells.values() if cell.search}:
        # Every combination is tried.
        assert len(search.recipes) == math.prod(len(choice.values) for choice in search.space)
        for recipe in search.recipes:
            config = PlannedRun(recipe, 0).config
            parse(config)
            assert search.metric in metric.selectable(config["eval"]["ks"])


CONFIGURATIONS = {
    ("3.1", "vit_base_patch16_224", "0-10"): {
        "model.name": "vit_base_patch16_224",
        "optimizer.learning_rate": 5e-4,
        "num_epochs": 20,
        "optimizer.decay_epochs": [15],
    },
    ("3.9", "vgg11", "smooth_top_k_hinge"): {
        "dataset.name": "plantnet300k",
        "model.name": "vgg11",
        "loss.name": "smooth_top_k_hinge",
        "loss.k": 5,
        "loss.tau": 1.0,
        "optimizer.learning_rate": 0.001,
    },
    ("5.6", "cross_entropy", "B=256"): {
        "dataset.batch_size": 256,
        "dataset.holdout": "balanced",
        "optimizer.learning_rate": 0.4,
        "select_by": "average_5_accuracy",
    },
    ("4.2", "noised_balanced", "epsilon=1e-3"): {
        "dataset.name": "cifar100",
        "loss.k": 5,
        "loss.epsilon": 0.001,
        "loss.num_samples": 10,
        "dataset.label_noise": 0.0,
    },
    ("4.4", "smooth_top_k_hinge", "p=0.3"): {
        "loss.tau": 1.0,
        "loss.k": 5,
        "dataset.label_noise": 0.3,
        "dataset.label_noise_kind": "blocks",
        "select_by": "top_5_accuracy",
        "dataset.holdout": "permuted",
    },
    ("4.5", "noised_imbalanced", "K=3"): {
        "loss.k": 3,
        "loss.epsilon": 0.01,
        "loss.max_margin": 0.2,
        "loss.scale": 60.0,
        "select_by": "macro_top_3_accuracy",
    },
    ("4.9", "noised_balanced", "K=1"): {
        "loss.k": 1,
        "loss.epsilon": 0.5,
        "select_by": "top_1_accuracy",
        "optimizer.weight_decay": 1.5e-4,
    },
    ("5.1", "noised_balanced", "K=5"): {
        "dataset.holdout": "balanced",
        "select_by": "average_5_accuracy",
        "loss.epsilon": 0.2,
    },
    ("5.2", "average_k", "K=10"): {
        "model.name": "resnet18",
        "loss.k": 10,
        "loss.alpha": 5.0,
        "select_by": "average_10_accuracy",
    },
}


@pytest.mark.parametrize("place", CONFIGURATIONS, ids=" ".join)
def test_a_cell_is_run_as_the_thesis_says(place):
    number, row, column = place
    recipe = CATALOGUE[number, None].cells[row, column].recipe
    config = dict(flatten(PlannedRun(recipe, 0).config))
    expected = CONFIGURATIONS[place]
    assert {name: config[name] for name in expected} == expected


def test_the_rows_of_table_3_1_are_networks():
    assert tuple(CATALOGUE["3.1", None].rows) == NETWORKS
    for on in (None, *EMBEDDED):
        for (row, _), cell in CATALOGUE["3.1", on].cells.items():
            assert PlannedRun(cell.recipe, 0).config["model"]["name"] == row
    # A run of the ResNet-50 that was made before there were other networks serves as before.
    before = Recipe("plantnet300k", "cross_entropy").changed(
        {"optimizer.learning_rate": 0.01, "select_by": "top_1_accuracy"}
    )
    assert keys("3.1", ("resnet50", "0-10")) == {PlannedRun(before, 0).key}


def keys(number, *places):
    cells = CATALOGUE[number, None].cells
    return {PlannedRun(cells[place].recipe, 0).key for place in places or cells}


def test_cells_share_the_runs_that_are_the_same():
    assert keys("4.7") == keys("4.4")
    assert keys("4.5") < keys("4.8")
    p0 = keys("4.4", ("noised_balanced", "p=0"))
    assert keys("4.3", ("noised_balanced", "M=10")) == p0
    assert p0 < keys("4.4")
    # In chapter 5 other images are held out, and another metric selects.
    assert not keys("5.1") & keys("4.4")


def test_a_runs_folder_is_named_after_what_is_changed():
    recipe = Recipe("digits", "focal", (("loss.gamma", 2.0), ("model.name", "mlp")))
    assert PlannedRun(recipe, 3).name == "digits-focal-model=mlp-gamma=2.0-seed=3"
    # Whatever is written out that the recipe has anyway, it is the same run in the same place.
    same = recipe.changed({"num_epochs": 30})
    assert PlannedRun(same, 3).name == PlannedRun(recipe, 3).name
    assert PlannedRun(same, 3).key == PlannedRun(recipe, 3).key
    # The folder of the data does not change the run; a parameter does.
    assert PlannedRun(recipe, 3, ("dataset.data_dir=/data",)).key == PlannedRun(recipe, 3).key
    assert PlannedRun(recipe, 3, ("dataset.data_dir=/data",)).name == PlannedRun(recipe, 3).name
    shorter = PlannedRun(recipe, 3, ("num_epochs=2",))
    assert shorter.key != PlannedRun(recipe, 3).key
    # Each has a place, so that a trial is not in the way of the run.
    assert shorter.name == "digits-focal-model=mlp-gamma=2.0-num_epochs=2-seed=3"
    # No file system takes a name of 300 letters; two with the same start still differ.
    long = [PlannedRun(recipe, 3, (f"model.pretrained={300 * 'a'}{end}",)).name for end in "bc"]
    assert len(set(long)) == 2
    assert max(map(len, long)) < 220
    assert PlannedRun(recipe, 4).key != PlannedRun(recipe, 3).key
