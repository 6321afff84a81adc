"""Which runs are seeds of one group, what the groups are called, and how they are sorted."""

import json

import pytest

from tests.parts.program.comparison.compared import compare, config, labels, make
from tests.parts.program.papers.finished_runs import finish
from train.foundation.errors import UserError


def test_a_group_has_the_seeds_of_one_configuration(tmp_path):
    make(tmp_path, (0, 0.5), (1, 0.6), (2, 0.7))
    make(tmp_path, (0, 0.5), (1, 0.5), name="other", loss="focal")
    comparison = compare(tmp_path)
    assert labels(comparison) == ["loss=cross_entropy", "loss=focal"]
    assert [list(row.group.runs) for row in comparison.tables[0].rows] == [[0, 1, 2], [0, 1]]
    assert comparison.notes == ()


def test_the_machine_and_the_parameters_of_other_losses_make_no_group(tmp_path):
    make(tmp_path, (0, 0.5))
    make(tmp_path, (1, 0.5), loss__epsilon=7.0, dataset__data_dir="/elsewhere")
    finish(tmp_path, "now", {**config(seed=2), "compilation_cache": True}, test={"loss": 1.0})
    assert labels(compare(tmp_path)) == ["loss=cross_entropy"]


def test_columns_are_the_fields_that_differ_and_numbers_are_sorted_by_size(tmp_path):
    for epsilon in (10.0, 1.0, 2.0):
        for rate in (0.1, 0.05):
            fields = {"loss__epsilon": epsilon, "optimizer__learning_rate": rate}
            make(tmp_path, (0, 0.5), name=f"{epsilon}-{rate}", loss="noised_balanced", **fields)
    make(tmp_path, (0, 0.5), name="plain", loss="cross_entropy")
    assert labels(compare(tmp_path)) == [
        # It has no epsilon, and k and num_samples add nothing to the name of the loss.
        "loss=cross_entropy, epsilon=-, learning_rate=0.05",
        "loss=noised_balanced, epsilon=1.0, learning_rate=0.05",
        "loss=noised_balanced, epsilon=1.0, learning_rate=0.1",
        "loss=noised_balanced, epsilon=2.0, learning_rate=0.05",
        "loss=noised_balanced, epsilon=2.0, learning_rate=0.1",
        "loss=noised_balanced, epsilon=10.0, learning_rate=0.05",
        "loss=noised_balanced, epsilon=10.0, learning_rate=0.1",
    ]


def test_two_fields_with_one_short_name_have_their_whole_names(tmp_path):
    make(tmp_path, (0, 0.5), loss="noised_balanced")
    make(tmp_path, (0, 0.5), name="b", loss="noised_balanced", loss__k=5, model__k=2)
    make(tmp_path, (0, 0.5), name="c", loss="noised_balanced", loss__k=5, model__k=3)
    assert labels(compare(tmp_path)) == [
        "model.k=-, loss.k=3",
        "model.k=2, loss.k=5",
        "model.k=3, loss.k=5",
    ]


def test_each_data_set_has_its_table(tmp_path):
    make(tmp_path, (0, 0.5))
    make(tmp_path, (0, 0.9), name="species", dataset="synthetic_species", num_epochs=20)
    for files in ("a", "b"):
        make(tmp_path, (0, 0.7), name=files, dataset="images", dataset__path="photos")
        data = {"image_shape": [8, 8, 1], "digest": 10 * files}
        (tmp_path / f"{files}-0" / "data.json").write_text(json.dumps(data))
    for name, part in (("birds", None), ("trees", "leaves")):
        named = {"dataset__path": f"hf:{name}", "dataset__part": part}
        make(tmp_path, (0, 0.8), name=name, dataset="images", **named)
    comparison = compare(tmp_path)
    assert [table.groups.data_set for table in comparison.tables] == [
        "digits",
        # The photographs changed in between.
        "images hf:birds",
        "images hf:trees leaves",
        "images photos (files aaaaaaaa)",
        "images photos (files bbbbbbbb)",
        "synthetic_species",
    ]
    assert labels(comparison) == ["loss=cross_entropy"] * 6


def test_the_same_run_with_the_same_seed_counts_once(tmp_path):
    make(tmp_path, (0, 0.5), (1, 0.7))
    make(tmp_path, (1, 0.9), name="run-again")
    comparison = compare(tmp_path)
    (row,) = comparison.tables[0].rows
    assert [run.workdir.name for run in row.group.runs.values()] == ["run-0", "run-1"]
    assert comparison.notes == (
        f"left out: {tmp_path / 'run-again-1'} (the same run as {tmp_path / 'run-1'}, with the "
        "same seed, 1)",
    )


# Which runs are found.


def test_runs_that_are_not_finished_are_named(tmp_path):
    make(tmp_path, (0, 0.5), (1, 0.6), (2, 0.7))
    (tmp_path / "run-1" / "results.json").unlink()
    (tmp_path / "photographs").mkdir()
    assert compare(tmp_path).notes == (f"left out: {tmp_path / 'run-1'} (not finished)",)


def test_a_comparison_without_a_run_whose_results_are_damaged_is_refused(tmp_path):
    make(tmp_path, (0, 0.5), (1, 0.6), (2, 0.7))
    (tmp_path / "run-2" / "results.json").write_text("{")
    message = rf"{tmp_path}/run-2/results\.json is not the results of a run, or is damaged: "
    with pytest.raises(UserError, match=message):
        compare(tmp_path)


def test_folders_can_overlap_and_be_of_single_runs(tmp_path):
    make(tmp_path / "a", (0, 0.5), (1, 0.6))
    make(tmp_path / "b", (2, 0.7))
    (tmp_path / "link").symlink_to(tmp_path / "a")
    folders = ("a", "a/run-1", "link", "b/run-2")
    comparison = compare(*(tmp_path / folder for folder in folders))
    assert list(comparison.tables[0].rows[0].group.runs) == [0, 1, 2]
    assert comparison.notes == ()
