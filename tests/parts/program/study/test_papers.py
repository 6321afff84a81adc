"""The tables of the thesis: their published numbers, the runs of each cell, and how they print."""

import importlib
import io
import json
import re

import numpy as np
import pytest
from rich.console import Console

from tests.parts.program.study import finished_runs
from train.foundation.errors import UserError
from train.foundation.nested import flatten
from train.models import MODELS
from train.reports import metric
from train.run.runs import StoredRun
from train.study import papers
from train.study.papers import NETWORKS, TABLES, find


def keys(number, *places):
    arms = TABLES[number].arms
    return {arms[place].run({}, 0).key for place in places or arms}


def config(table, *place):
    return dict(flatten(table.arms[place].run({}, 0).config))


@pytest.mark.parametrize("number", TABLES)
def test_each_run_can_be_made_and_leaves_the_number_of_its_cell(number):
    table = find(number, rows=[r for r in TABLES[number].rows if r in MODELS or r not in NETWORKS])
    study = table.study()
    planned = {arm.run({}, seed).key for arm in study.arms for seed in study.seeds}
    for (row, head), arm in table.arms.items():
        assert planned >= {arm.run({}, seed).key for seed in table.seeds}
        ks = config(table, row, head)["eval.ks"]
        assert table.columns[head].metric in metric.selectable(ks)


def test_each_published_number_has_its_cell():
    assert sum(len(table.published) for table in TABLES.values()) == 139
    for number, table in TABLES.items():
        # For most networks in table 3.1 the thesis has only figures.
        rows = ["resnet50"] if number == "3.1" else table.rows
        places = {(row, head) for row in rows for head in table.columns}
        assert table.published.keys() == (places if table.title.startswith("Table") else set())
        assert all(("(" in text) == table.shots for text in table.published.values())
    assert papers.value_of("36.3±0.3 (12.6/42.9/71.7)") == (36.3, 0.3)
    assert papers.value_of("9") == (9.0, 0.0)


def test_published_numbers_are_those_that_the_recipes_cite():
    # The two were written down apart from each other.
    for number in ("4.4", "4.5", "4.6", "4.9", "5.1", "5.2"):
        table = TABLES[number]
        words = importlib.import_module(f"configs.{table.recipe.partition(':')[0]}").__doc__
        for row in table.rows:
            ours = [papers.value_of(table.published[row, head])[0] for head in table.columns]
            lines = re.findall(rf"\b{row} +([\d. ]+\d)", words)
            assert ours in [[*map(float, line.split())] for line in lines], (number, row)


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("3.9 vgg11 smooth_top_k_hinge", {"loss.name": "smooth_top_k_hinge", "loss.k": 5}),
        ("4.2 noised_top_k_hinge epsilon=1e-3", {"loss.epsilon": 0.001, "loss.k": 5}),
        ("4.4 cross_entropy p=0.3", {"dataset.label_noise": 0.3}),
        ("4.5 ldam K=3", {"loss.name": "ldam", "select_by": "macro_top_3_accuracy"}),
        ("4.9 noised_top_k_hinge K=1", {"loss.k": 1, "select_by": "top_1_accuracy"}),
        ("5.1 role K=5", {"dataset.holdout": "balanced"}),
        ("5.2 average_k K=10", {"loss.k": 10, "select_by": "average_10_accuracy"}),
        ("5.5 average_k alpha=0.3", {"loss.alpha": 0.3, "select_by": "average_5_accuracy"}),
        ("5.6 average_k B=256", {"dataset.batch_size": 256, "optimizer.learning_rate": 0.4}),
    ],
)
def test_a_cell_is_run_as_the_thesis_says(place, expected):
    number, *cell = place.split()
    found = config(TABLES[number], *cell)
    assert {name: found[name] for name in expected} == expected


def test_cells_share_the_runs_that_are_the_same():
    assert keys("4.7") == keys("4.4")
    assert keys("4.5") < keys("4.8")
    assert keys("4.3", ("noised_top_k_hinge", "M=10")) == keys("4.4", ("noised_top_k_hinge", "p=0"))
    assert len(TABLES["3.1"].study().arms) == len(NETWORKS)
    # In chapter 5 other images are held out, and another metric selects.
    assert not keys("5.1") & keys("4.4")


def test_another_recipe_takes_the_place_of_the_thesis():
    table = find("4.4", on="synthetic_species", rows=["noised_top_k_hinge"], seeds=[7])
    found = config(table, "noised_top_k_hinge", "p=0.2")
    assert (found["dataset.name"], found["dataset.label_noise"]) == ("synthetic_species", 0.2)
    # The classes of CIFAR-100 are balanced; those of Pl@ntNet-300K are not.
    assert found["dataset.long_tail_exponent"] == 0
    unbalanced = config(find("4.5", on="synthetic_species"), "focal", "K=3")
    assert unbalanced["dataset.long_tail_exponent"] > 0
    study = table.study()
    assert {arm.config for arm in study.arms} == {"synthetic_species:noised_top_k_hinge"}
    assert (len(study.arms), study.seeds, table.published) == (5, (7,), {})
    # It evaluates 1, 3 and 5.
    assert [*find("5.2", on="synthetic_species").columns] == ["K=3", "K=5"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"number": "4.1"}, "--table must be 5.1 (did you"),
        ({"number": "4.4", "rows": ["focal"]}, "--rows"),
        ({"number": "4.4", "columns": []}, "--columns"),
        ({"number": "4.4", "overrides": {"seed": "1"}}, "--override cannot change seed"),
        ({"number": "4.4", "overrides": {"dataset.label_noise": "0"}}, "the table itself sets"),
        ({"number": "4.4", "overrides": {"num_epoch": "1"}}, "num_epochs"),
        ({"number": "4.4", "overrides": {"num_epochs": "0"}}, "num_epochs must be"),
        ({"number": "3.1", "on": "digits"}, "--on is for tables of losses"),
        ({"number": "4.4", "on": "digit"}, "--on=digit: "),
        ({"number": "4.4", "on": "features"}, "dataset.path must be"),
        ({"number": "4.7", "on": "plantnet300k_average_k"}, "--on must be a recipe with"),
    ],
)
def test_a_mistake_is_one_line_before_the_first_run(flags, message):
    with pytest.raises(UserError) as error:
        find(**flags).study()
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_of_weights_is_named_after_the_network_of_the_run():
    override = {"model.pretrained": "weights/{model.name}.pth"}
    for number, row, network in (("3.1", "vgg11", "vgg11"), ("4.5", "focal", "resnet50")):
        table = find(number, rows=[row], overrides=override)
        for head in table.columns:
            assert config(table, row, head)["model.pretrained"] == f"weights/{network}.pth"


# The numbers


def finish(folder, table, row, seed, test, **results):
    """A finished run of a cell of the first column, with these test metrics, by its key."""
    run = table.arms[row, next(iter(table.columns))].run({}, seed)
    workdir = finished_runs.finish(folder, run.name, run.config, test=test, **results)
    return {run.key: StoredRun.read(workdir)}


def shown(table, finished):
    console = Console(width=150, file=io.StringIO())
    papers.show(console, table, finished)
    return console.file.getvalue()


def test_means_are_printed_above_published_numbers(tmp_path):
    table, finished = find("4.4", columns=["p=0.1", "p=0"]), {}
    for row, values in (
        ("cross_entropy", (0.7, 0.72)),
        ("smooth_top_k_hinge", (0.9, 0.92)),
        ("noised_top_k_hinge", (0.5, 0.501, 0.502, 0.503)),
    ):
        for seed, value in enumerate(values):
            finished |= finish(tmp_path, table, row, seed, {"top_5_accuracy": value})
    text = shown(table, finished)
    # 12.7062 is the quantile of t with one degree of freedom; the deviation is √2.
    assert re.search(r"cross_entropy +71.00 ± 12.71 ▼ \(2 of 4 seeds\) +no run *\n", text)
    assert re.search(r"published +90.3±0.2 +94.2±0.1 *\n", text)
    assert re.search(r"smooth_top_k_hinge +91.00 ± 12.71 \(2 of 4 seeds\)", text)
    assert re.search(r"noised_top_k_hinge +50.15 ± 0.21 ▼ +no run *\n", text)
    assert "the paper of 2022 has 94.34" in text
    assert "Not the recipes" not in text
    # These are other runs.
    text = shown(find("4.4", overrides={"num_epochs": "3"}), finished)
    assert "all runs have num_epochs=3" in text
    assert "71.00" not in text


def test_shots_and_the_best_possible_are_shown_where_they_are_known(tmp_path):
    names = [f"{kind}_top_1_accuracy" for kind in ("macro", "few", "medium", "many")]
    test = dict(zip(names, (0.6, None, 0.5, 0.9), strict=True))
    table = find("4.5", on="synthetic_species", columns=["K=1"])
    text = shown(table, finish(tmp_path, table, "focal", 0, test, bayes={names[0]: 0.8}))
    assert re.search(r"focal +60.00 \(1 of 3 seeds\) *\n +few/medium/many +\(-/50.0/90.0\)", text)
    assert re.search(r"best possible +80.00", text)
    assert "published" not in text
    assert "here with the recipe synthetic_species" in text


def test_table_3_1_is_over_classes_by_their_training_images(tmp_path):
    table = find("3.1", rows=["resnet50"])
    [(key, run)] = finish(tmp_path, table, "resnet50", 0, {}).items()
    counts, ranks = (0, 10, 11, 50, 2001), (0, 1, 0, 0, 1)
    classes = [{"name": f"c{i}", "training_images": count} for i, count in enumerate(counts)]
    (run.workdir / "classes.json").write_text(json.dumps(classes))
    finished_runs.write_outcomes(run.workdir, np.arange(5), ranks=ranks)
    assert re.search(r"resnet50 +50.00 +100.00 +- +- +0.00 *\n", shown(table, {key: run}))
