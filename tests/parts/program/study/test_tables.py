"""Runs as a table: which are seeds of one group, what is printed, and what is refused."""

import csv
import io
import json

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from tests.parts.program.study.finished_runs import config, finish, write_outcomes
from train.foundation.console import printable_lines
from train.foundation.errors import UserError
from train.reports.metric import LOSS, Metric
from train.run.runs import StoredRun
from train.study import tables

TOP_1, TOP_3 = Metric.accuracy("top", 1), Metric.accuracy("top", 3)
OURS = {0: 0.91, 1: 0.94, 2: 0.95, 4: 0.97}
THEIRS = {0: 0.90, 1: 0.92, 2: 0.96, 3: 0.93}


@pytest.fixture
def make(tmp_path):
    """Makes a finished run for each seed, with a top-1 accuracy; returns all until now."""
    made = []

    def finished(values, *, digest=None, hits=None, **fields):
        for seed, value in values.items():
            test = {"loss": 0.5, "top_1_accuracy": value, "top_3_accuracy": 0.5 + value / 2}
            counted = {"test": {"groups": {"all": {"classes": 2, "examples": 72}}}}
            given = config(seed=seed, **fields)
            workdir = finish(tmp_path, str(len(made)), given, test=test, evaluated=counted)
            if digest:
                data = {"image_shape": [8, 8, 1], "digest": digest}
                (workdir / "data.json").write_text(json.dumps(data))
            if hits is not None:
                write_outcomes(workdir, np.arange(len(hits)) % 2, ranks=1 - np.array(hits))
            made.append(StoredRun.read(workdir))
        return made

    return finished


def columns(runs):
    found = tables.rows(runs)
    return [{head: one.text(field) for head, field in found.heads.items()} for one in found.groups]


def shown(runs, metrics=(TOP_1,), baseline=None, width=200):
    """The printed lines, with single spaces."""
    console = Console(file=io.StringIO(), width=width)
    tables.show(console, tables.rows(runs), metrics, "test", baseline)
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]


def test_a_group_has_the_seeds_of_one_configuration(make):
    make(OURS, loss="focal")
    # The machine, and the parameters of other losses, make no group. The second is seed 1 again.
    runs = make({0: 0.5, 1: 0.6}) and make({1: 0.6}, loss__gamma=7.0, dataset__data_dir="there")
    found = tables.rows(runs)
    assert columns(runs) == [{"loss": "cross_entropy"}, {"loss": "focal"}]
    assert [[*one.seeds] for one in found.groups] == [[0, 1], [0, 1, 2, 4]]
    runs = make({0: 0.5}, loss__rank_weights=[1, 0])
    assert [one["rank_weights"] for one in columns(runs)] == ["()", "(1, 0)", "()"]


def test_columns_are_the_fields_that_differ_and_numbers_are_sorted_by_size(make):
    for gamma in (10.0, 1.0, 2.0):
        make({0: 0.5}, loss="focal", loss__gamma=gamma, optimizer__decay_epochs=[9])
    # It has no gamma; k adds nothing to the name of the loss.
    runs = make({0: 0.5})
    assert [tuple(one.values()) for one in columns(runs)] == [
        ("cross_entropy", "-", "(15, 25)"),
        *(("focal", gamma, "(9,)") for gamma in ("1.0", "2.0", "10.0")),
    ]
    # A field that only some runs have is a column if nothing else differs.
    assert columns([runs[-1], make({0: 0.5}, model__k=2)[-1]]) == [{"k": "-"}, {"k": "2"}]
    # Two fields with one short name have their whole names.
    for k in (2, 3):
        runs = make({0: 0.5}, loss="noised_top_k_hinge", loss__k=k, model__k=k)
    assert columns(runs[-2:]) == [{"model.k": k, "loss.k": k} for k in ("2", "3")]


def test_other_files_under_one_name_are_other_data(make):
    runs = make({0: 0.5}, digest="aaaaaaaaaa", dataset="images", dataset__path="a")
    runs = make({0: 0.5}, digest="bbbbbbbbbb")
    assert columns(runs) == [{"dataset": "digits"}, {"dataset": "images"}]
    make({0: 0.5}, digest="cccccccccc")
    assert columns(runs[1:]) == [{"data": "bbbbbbbb"}, {"data": "cccccccc"}]


@pytest.mark.parametrize("baseline", ["loss=cross_entropy", "loss.name=cross_entropy"])
def test_means_and_differences_have_students_intervals_over_the_shared_seeds(make, baseline):
    lines = "\n".join(shown(make(THEIRS) and make(OURS, loss="focal"), baseline=baseline))

    def number(sample, sign=""):
        interval = stats.ttest_1samp(sample, 0).confidence_interval(0.95)
        half_width = (interval.high - interval.low) / 2
        return f"{100 * np.mean(sample):{sign}.2f} ± {100 * half_width:.2f}"

    paired = number([OURS[seed] - THEIRS[seed] for seed in (0, 1, 2)], "+")
    assert f"focal 4 {number([*OURS.values()])}\n{paired}\n(3 of 4 seeds)\n" in lines
    assert f"cross_entropy 4 {number([*THEIRS.values()])}\nbaseline\n" in lines
    assert "interval of other seeds" in lines
    assert "One seed" not in lines


def test_equal_seeds_are_not_taken_for_certain(make):
    # All seeds have 62 of 72 hits.
    runs = make(dict.fromkeys(range(3), 62 / 72))
    lines = "\n".join(shown(runs))
    assert "86.11 ± 0.00" in lines
    # 1.96 * sqrt(64 / 76 * 12 / 76 / 76) = 8.2 %.
    assert "Other examples alone move an accuracy by up to ± 8.20 points." in lines
    assert "Other examples" not in "\n".join(shown(runs, [LOSS]))


def test_one_seed_has_the_noise_of_the_examples_which_are_paired_in_differences(make):
    first, second = [1, 1, 0, 1, 0, 1], [1, 0, 0, 1, 1, 0]
    make({1: 4 / 6}, loss="focal", hits=first)
    runs = make({0: 0.5, 1: 0.5}, hits=second)
    lines = "\n".join(shown(runs, baseline="loss=cross_entropy"))
    # Within the two classes: differences 0, 0, -1 and 1, 0, 1. And one more that differs.
    half_width = 196 * np.sqrt((3 * np.var([0, 0, -1]) + 3 * np.var([1, 0, 1]) + 1) / 36)
    assert f"+16.67 ± {half_width:.2f}" in lines
    assert "One seed: ± 95 % interval of other examples" in lines
    # With other examples, or without outcomes, the noise is not known.
    write_outcomes(runs[0].workdir, np.arange(7) % 2)
    assert "+16.67" in shown(runs, baseline="loss=cross_entropy")
    (runs[0].workdir / "outcomes_test.npz").unlink()
    assert "+16.67" in shown(runs, baseline="loss=cross_entropy")


def test_a_baseline_is_compared_on_its_own_data_only(make):
    for name in ("digits", "synthetic_species"):
        make({0: 0.5, 1: 0.5}, dataset=name)
        make({0: 0.75, 1: 0.75}, dataset=name, loss="focal")
    runs = make({0: 0.9, 1: 0.9}, dataset="images", loss="focal")
    lines = shown(runs, baseline="loss=cross_entropy")
    assert sum("+25.00 ± 0.00" in line for line in lines) == 2
    assert lines[lines.index("images focal 2 90.00 ± 0.00") + 1] == "-"


def test_losses_of_two_kinds_are_not_compared(make):
    runs = make({0: 0.5}) and make({0: 0.5}, loss__label_smoothing=0.1)
    lines = shown(runs, [LOSS], "label_smoothing=0.1")
    assert lines[lines.index("0.0 1 0.5") + 1] == "+0"
    lines = shown(make({0: 0.5}, loss="focal"), [LOSS], "loss=focal")
    assert lines[lines.index("cross_entropy 0.0 1 0.5") + 1] == "-"
    assert "Values of different losses cannot be compared." in lines


def test_a_run_without_a_number_is_counted_and_nothing_is_cut(make):
    runs = make({0: 0.5, 1: 0.7, 2: 0.9})
    runs[1].results["test"]["top_1_accuracy"] = None
    runs = make({0: 0.5}, model__name="w" * 50)
    lines = "".join(shown(runs, [TOP_1, TOP_3, LOSS], width=50)).replace(" ", "")
    assert "(2of3seeds)" in lines
    assert lines.count("w") >= 50


def test_a_mistake_is_one_line(make):
    for gamma in (1.0, 2.0):
        runs = make({0: 0.5}, loss="focal", loss__gamma=gamma)
    wrong = {"gama=1.0": "none of", "gamma=3.0": "none of", "loss=focal": "2 groups"}
    for baseline, number in wrong.items():
        message = f"'{baseline}' is {number}: 'gamma=1.0', 'gamma=2.0'"
        with pytest.raises(UserError, match=f"--baseline must be .*; {message}"):
            shown(runs, baseline=baseline)
    for split, names, message in (
        ("test", ["top_5_accuracy"], "no run has top_5_accuracy on test; did you mean"),
        ("tset", [], "--split"),
    ):
        with pytest.raises(UserError, match=message):
            tables.choose(runs, split, names)
    assert tables.choose(runs, "test") == [TOP_3, TOP_1]
    runs = make({1: 7.5})
    with pytest.raises(UserError, match=r"is damaged \(top_1_accuracy is 7\.5\): delete it"):
        shown(runs)


def test_the_file_has_a_line_a_run_and_nothing_that_a_spreadsheet_obeys(make):
    make(OURS, model__name="=cmd|' /C calc'!A0")
    written = tables.to_csv(tables.rows(make(THEIRS, model__name="a\x1b[31m\u202e\nx")), "test")
    assert printable_lines(written) == written
    lines = list(csv.DictReader(io.StringIO(written)))
    assert {line["model.name"] for line in lines} == {
        "'=cmd|' /C calc'!A0",
        r"a\x1b[31m\u202e" "\nx",
    }
    of_seeds = [(int(line["seed"]), float(line["top_1_accuracy"])) for line in lines]
    assert of_seeds == [*OURS.items(), *THEIRS.items()]
