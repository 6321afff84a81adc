"""The command that draws figures: its files, and every mistake in one line."""

import importlib
import json

import matplotlib as mpl
import pytest
from matplotlib.colors import to_hex

from tests.parts.program.forked import start
from tests.parts.program.papers.finished_runs import lines_of_run, make_run, read
from train.foundation.errors import UserError
from train.foundation.printable import printable, printable_lines
from train.papers.figures import curves, drawing, learning
from train.workdir import figure_style

# Style and files.


def test_lines_differ_without_their_colours():
    lines = [figure_style.line_look(index) for index in range(40)]
    assert len({(look["marker"], str(look["linestyle"])) for look in lines}) == len(lines)
    points = [figure_style.point_look(index) for index in range(16)]
    hollow = {(look["marker"], look["markerfacecolor"] == "none") for look in points}
    assert len(hollow) == len(points)
    # Where there is colour, it helps among the first.
    assert len({look["color"] for look in points[:7]}) == 7
    assert all(to_hex(color) == color.lower() for color in figure_style.COLORS)


@pytest.mark.parametrize(
    ("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")]
)
def test_the_same_data_give_the_same_file(tmp_path, monkeypatch, suffix, start):
    runs = read(make_run(tmp_path / "a"), make_run(tmp_path / "b", epsilon=0.1))
    # Both at once, so that they have different places in memory.
    figures = [curves.gradient_sparsity(runs) for _ in range(2)]
    first = figure_style.encode(figures[0], suffix)
    # What a file would have of the time that it was written.
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    assert figure_style.encode(figures[1], suffix) == first
    assert first.startswith(start)


def test_names_of_runs_are_no_formulas_and_hold_nothing_that_is_obeyed(tmp_path):
    names = ["$\\frac{$", "a\x1b[31m\u202eb", "5 $ and 6 $"]
    runs = read(*(make_run(tmp_path / name) for name in names))
    drawn = figure_style.encode(learning.learning_curves(runs, metric=None), ".svg").decode()
    assert printable_lines(drawn) == drawn
    # matplotlib writes each text as a comment beside its outlines.
    assert all(f"<!-- {printable(name)} -->" in drawn for name in names)


def test_settings_of_the_current_folder_start_no_program(monkeypatch):
    monkeypatch.setitem(mpl.rcParams, "text.usetex", True)
    importlib.reload(figure_style)
    assert not figure_style.new_figure(1, 1).text(0, 0, "a").get_usetex()


# Mistakes.


def edited(change):
    """A workdir whose results are changed."""

    def edit(workdir):
        make_run(workdir)
        results = json.loads((workdir / "results.json").read_text())
        change(results)
        (workdir / "results.json").write_text(json.dumps(results))

    return edit


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda _: None, "there is no workdir .*/run$"),
        (lambda workdir: workdir.mkdir(), ".*/run has no finished run"),
        (edited(lambda results: results.pop("config")), r"have no config\.loss\.name"),
        (edited(lambda results: results.pop("best_epoch")), "no test metrics or no best_epoch"),
        (
            edited(lambda results: results["config"]["loss"].update(name="mine")),
            ".*/run was trained with a loss that is not known here, 'mine'",
        ),
        (
            lambda workdir: make_run(workdir, dataset="cifar100"),
            "several data sets, cifar100, digits: .* --workdirs",
        ),
    ],
)
def test_what_is_no_finished_run_of_the_data_set_is_refused(tmp_path, make, message):
    make(tmp_path / "run")
    with pytest.raises(UserError, match=message):
        read(make_run(tmp_path / "other"), tmp_path / "run")


def without(name):
    lines = lines_of_run()
    del lines[1][name]
    return lines


@pytest.mark.parametrize(
    ("figure", "changes", "options", "message"),
    [
        ("metric_against_field", {}, {}, r"no run has a value of config\.loss\.alpha that it"),
        (
            "metric_against_field",
            {},
            {"field": "loss.epsilom"},
            r"config\.loss\.epsilom that it makes use of; did you mean 'loss\.epsilon'\?",
        ),
        ("metric_against_field", {}, {"field": "optimizer.clip_norm"}, "no run has a value of"),
        (
            "metric_against_field",
            {},
            {"field": "model.name"},
            r"config\.model\.name must be a number; it is 'small_cnn' in .*/run",
        ),
        (
            "metric_against_field",
            {"test": {"average_3_accuracy": 0.5}},
            {"field": "loss.epsilon", "split": "test"},
            "no test metric 'average_5_accuracy'; did you mean 'average_3_accuracy'",
        ),
        (
            "metric_against_field",
            {},
            {"field": "loss.epsilon", "metric": "average_3_accuracy"},
            r"metrics\.jsonl has no validation metric 'average_3_accuracy'; did you mean",
        ),
        (
            "metric_against_field",
            {"lines": [lines_of_run()[2] | {"average_5_accuracy": None}]},
            {"field": "loss.epsilon"},
            "the validation metric average_5_accuracy has no value in .*/run",
        ),
        (
            "metric_against_field",
            {},
            {"field": "loss.epsilon", "metric": "average_5_set_size"},
            "--metric must be an accuracy or the loss with --split=validation",
        ),
        (
            "metric_against_batch_size",
            {},
            {"split": "train"},
            "--split must be one of test, validation; got 'train'",
        ),
        (
            "metric_against_batch_size",
            {"learning_rate": 0},
            {},
            r"/run must have a config\.optimizer\.learning_rate and a config",
        ),
        ("lorenz_curves", {}, {}, r"classes\.json is missing"),
        ("networks_micro_and_macro", {}, {}, "needs test results of cross_entropy on plantnet300k"),
        (
            "metric_against_field",
            {"test": {"average_5_accuracy": None}},
            {"field": "loss.epsilon", "split": "test"},
            "the test metric average_5_accuracy has no value in .*/run",
        ),
        (
            "gradient_sparsity",
            {"lines": without("nonzero_gradients")},
            {},
            r"/run/metrics\.jsonl has no nonzero_gradients for all of the first epoch",
        ),
        ("epoch_time", {"seconds": (1.0,)}, {}, "two epochs or more.*/run has 1"),
        (
            "set_sizes",
            {},
            {},
            r"no .*/run/evaluation_test\.json: python -m train\.evaluate --workdir=.*/run",
        ),
        ("set_sizes", {"sizes": {}}, {}, "no counts of average_5 for all"),
        ("set_sizes_by_shot", {"sizes": {"few": [0, 1]}}, {}, "of average_5 for medium"),
        ("set_sizes", {"sizes": {}}, {"k": 3}, "no set sizes of average_3; it has average_5"),
        ("top_against_average", {}, {}, "no test metric 'average_5_accuracy'"),
        ("learning_curves", {}, {"metric": "top_9"}, "no validation metric 'top_9'"),
        (
            "learning_curves",
            {"lines": lines_of_run()[:2]},
            {},
            r"metrics\.jsonl in run has no finished epoch",
        ),
    ],
)
def test_runs_without_what_a_figure_needs_are_refused(tmp_path, figure, changes, options, message):
    workdir = make_run(tmp_path / "run", **changes)
    out = tmp_path / "figure.png"
    with pytest.raises(UserError, match=message) as raised:
        drawing.draw(figure, str(out), workdirs=[str(workdir)], folder=None, options=options)
    assert "\n" not in str(raised.value)
    assert not out.exists()


def test_a_value_that_only_some_runs_have_is_refused(tmp_path):
    runs = read(make_run(tmp_path / "a"), make_run(tmp_path / "b", epsilon=None))
    with pytest.raises(UserError, match=r".*/b has no value of config\.loss\.epsilon; others"):
        curves.gradient_sparsity(runs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": None}, "--figure is needed: it must be one of level_sets, "),
        ({"name": "level_set"}, "--figure must be one of .*did you mean 'level_sets'"),
        ({"out": None}, r"--out is needed: a file whose suffix is one of \.png, \.svg, \.pdf"),
        ({"out": "figure.jpeg"}, r"--out must be a file whose suffix is .*; got figure\.jpeg"),
        ({"out": "nowhere/figure.png"}, "there is no nowhere"),
        ({"options": {"k": 5}}, "--k cannot be given with --figure=epoch_time"),
        ({"name": "level_sets"}, "--workdirs cannot be given with --figure=level_sets"),
        ({"name": "surrogate_losses"}, "--workdirs cannot be given with --figure=surrogate_losses"),
        (
            {"name": "expert", "workdirs": None},
            r"--figure=expert needs --scores=A\.npz,B\.npz, the files of the networks that",
        ),
        ({"workdirs": None}, "--figure=epoch_time needs either --workdirs=A,B,C or --runs"),
        ({"folder": "."}, "and not both"),
        ({"workdirs": ["a", ""]}, "--workdirs must be .* one is empty"),
        ({"workdirs": []}, "--workdirs must be .* one is empty"),
        ({"workdirs": ["a", "./a"]}, "--workdirs names a twice"),
        ({"workdirs": None, "folder": "nowhere"}, "--runs must be .* there is no folder nowhere"),
        ({"workdirs": None, "folder": "empty"}, "--runs must be .* empty has none"),
    ],
)
def test_flags_that_make_no_figure_are_refused(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty" / "run").mkdir(parents=True)
    given = {"name": "epoch_time", "out": "figure.png", "workdirs": ["a"], "folder": None}
    with pytest.raises(UserError, match=message):
        drawing.draw(**{**given, "options": {}, **arguments})


def test_the_command_draws_the_finished_runs_of_a_folder(tmp_path):
    make_run(tmp_path / "runs" / "a")
    make_run(tmp_path / "runs" / "b", epsilon=0.1)
    (tmp_path / "runs" / "unfinished").mkdir()
    (tmp_path / "runs" / "notes.txt").touch()
    flags = ("--figure=gradient_sparsity", "--out=f.svg")
    done = start("train.figures", *flags, "--runs=runs", folder=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "wrote f.svg; runs drawn: 2\n"
    assert (tmp_path / "f.svg").read_text().startswith("<?xml")
    done = start("train.figures", *flags, "--runs=none", folder=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: --runs must be a folder of workdirs; there is no folder none\n"
