"""The command that draws figures: its files, and what it refuses to draw."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

from tests.parts.program.forked import start
from tests.parts.program.papers.finished_runs import lines_of_run, make_run, read
from train.foundation.console import printable, printable_lines
from train.foundation.errors import UserError
from train.papers.figures import curves, drawing, learning
from train.reports import figure_style

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


# Mistakes.


def without(name):
    lines = lines_of_run()
    del lines[1][name]
    return lines


@pytest.mark.parametrize(
    ("figure", "changes", "options", "message"),
    [
        ("metric_against_field", {}, {"field": "loss.epsilom"}, r"config\.loss\.epsilom"),
        (
            "metric_against_field",
            {"test": {"average_5_accuracy": None}},
            {"field": "loss.epsilon", "split": "test"},
            "average_5_accuracy has no value in .*/run",
        ),
        (
            "gradient_sparsity",
            {"lines": without("nonzero_gradients")},
            {},
            r"/run/metrics\.jsonl has no nonzero_gradients",
        ),
        ("epoch_time", {"seconds": (1.0,)}, {}, "two epochs or more.*/run has 1"),
        ("set_sizes", {}, {}, r"no .*/run/outcomes_test\.npz"),
        ("set_sizes", {"sizes": [np.array([1])]}, {"k": 3}, "average_3 needs 3 in config.eval.ks"),
    ],
)
def test_runs_without_what_a_figure_needs_are_refused(tmp_path, figure, changes, options, message):
    workdir = make_run(tmp_path / "run", **changes)
    out = tmp_path / "figure.png"
    with pytest.raises(UserError, match=message) as raised:
        drawing.draw(figure, str(out), workdirs=[str(workdir)], folder=None, options=options)
    assert "\n" not in str(raised.value)
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"options": {"k": 5}}, "--k"),
        ({"folder": "."}, "--runs"),
        ({"workdirs": ["a", "./a"]}, "--workdirs names a twice"),
    ],
)
def test_flags_that_make_no_figure_are_refused(tmp_path, monkeypatch, arguments, name):
    monkeypatch.chdir(tmp_path)
    given = {"out": "figure.png", "workdirs": ["a"], "folder": None, "options": {}, **arguments}
    with pytest.raises(UserError, match=name):
        drawing.draw("epoch_time", **given)


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
