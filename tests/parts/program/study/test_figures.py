"""What the four figures read of runs, average and draw."""

import jax
import numpy as np
import pytest

from tests.parts.program.study.finished_runs import lines_of_run, make_run
from tests.reference import _losses as reference
from train.foundation.errors import UserError
from train.reports.metric import Metric
from train.run.runs import StoredRun
from train.study import figures

ACCURACY = Metric.accuracy("average", 5)


def run(workdir, loss="average_k", **what):
    """A finished run of two epochs of ten steps."""
    return StoredRun.read(make_run(workdir, loss, **what))


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def points(bars):
    return bars.lines[0].get_xydata()


def half_widths(bars):
    ends = np.array([segment[:, 1] for segment in bars.lines[2][0].get_segments()])
    return (ends[:, 1] - ends[:, 0]) / 2


def over_alpha(folder, accuracies):
    """A run of each value of alpha and each seed, with these accuracies."""
    return [
        run(folder / f"{alpha}-{seed}", alpha=alpha, seed=seed, test={ACCURACY.name: value})
        for alpha, values in accuracies.items()
        for seed, value in enumerate(values)
    ]


def test_a_metric_is_drawn_over_a_field_with_a_line_for_each_loss(tmp_path):
    runs = over_alpha(tmp_path, {10.0: (0.2, 0.4), 0.01: (0.5, 0.7), 0.1: (0.6, 0.6)})
    # Its loss takes no alpha.
    runs += [
        run(tmp_path / f"{seed}", "cross_entropy", seed=seed, test={ACCURACY.name: value})
        for seed, value in enumerate((0.6, 0.7))
    ]
    figure = figures.field(runs, "loss.alpha", ACCURACY, "test")
    [axes] = figure.axes
    [bars] = axes.containers
    np.testing.assert_allclose(points(bars), [[0.01, 0.6], [0.1, 0.6], [10.0, 0.3]])
    # With two seeds Student's interval is 12.7062 times half their distance.
    expected = 12.7062 * np.array([0.1, 0, 0.1])
    np.testing.assert_allclose(half_widths(bars), expected, rtol=1e-5, atol=1e-12)
    [level] = [line for line in axes.lines if line.get_label() == "loss=cross_entropy"]
    np.testing.assert_allclose(level.get_ydata(), 0.65)
    [band] = axes.patches
    np.testing.assert_allclose([band.get_y(), band.get_height()], [0.01469, 1.27062], rtol=1e-4)
    assert sorted(legend(figure)) == ["loss=average_k", "loss=cross_entropy"]
    assert axes.get_xscale() == "log"
    assert axes.get_xlabel() == "config.loss.alpha"
    assert axes.get_ylabel() == "test average-5 accuracy"


@pytest.mark.parametrize(
    ("over", "metric", "split", "message"),
    [
        ("loss.alpah", ACCURACY, "test", "--over must be .*, loss.alpha; got 'loss.alpah'"),
        ("loss.name", ACCURACY, "test", r"a field of numbers; loss\.name is average_k"),
        ("loss.alpha", Metric.accuracy("average", 4), "test", "has no test average_4_accuracy"),
        ("loss.alpha", ACCURACY, "balanced_test", "has no balanced_test average_5_accuracy"),
    ],
)
def test_what_runs_do_not_have_is_refused(tmp_path, over, metric, split, message):
    runs = over_alpha(tmp_path, {0.1: (0.5,), 0.2: (0.5,)})
    runs.append(run(tmp_path / "focal", "focal", test={ACCURACY.name: 0.5}))
    with pytest.raises(UserError, match=message):
        figures.field(runs, over, metric, split)


# Of top-K and average-K sets, over examples and over classes.
METRICS = {
    **{"average_1_set_size": 1.25, "average_3_set_size": 3.25, "macro_top_3_accuracy": 0.375},
    **{"average_1_accuracy": 0.625, "average_3_accuracy": 0.875, "top_1_accuracy": 0.5},
    **{"top_3_accuracy": 0.75, "macro_average_1_accuracy": 0.25, "macro_top_1_accuracy": 0.125},
    "macro_average_3_accuracy": 0.5,
}


def test_accuracies_are_drawn_over_the_mean_size_of_sets(tmp_path):
    runs = [
        run(tmp_path / "a", test=METRICS),
        run(tmp_path / "b", seed=1, test={name: one + 0.05 for name, one in METRICS.items()}),
        run(tmp_path / "c", "cross_entropy", test=METRICS),
    ]
    figure = figures.set_sizes(runs, "test")
    micro, macro = figure.axes
    of_average, of_top, other, _ = micro.containers
    np.testing.assert_allclose(points(of_average), [[1.275, 0.65], [3.275, 0.9]])
    np.testing.assert_allclose(points(of_top), [[1, 0.525], [3, 0.775]])
    np.testing.assert_allclose(points(other), [[1.25, 0.625], [3.25, 0.875]])
    np.testing.assert_allclose(points(macro.containers[0]), [[1.275, 0.275], [3.275, 0.525]])
    np.testing.assert_allclose(half_widths(of_average), 12.7062 * 0.025, rtol=1e-5)
    assert legend(figure) == ["loss=average_k", "loss=cross_entropy"]
    assert macro.get_ylabel() == "test macro accuracy"


def test_curves_are_a_line_for_each_run_with_a_marker_at_the_selected_epoch(tmp_path):
    worse = [{**line, "loss": 2 * line["loss"]} for line in lines_of_run()]
    runs = [
        run(tmp_path / "a", "focal"),
        run(tmp_path / "b", "focal", seed=1, lines=worse),
        run(tmp_path / "c", "sparsemax_loss"),
    ]
    figure = figures.curves(runs, Metric.parse("macro_top_3_accuracy"))
    loss, metric = figure.axes
    assert legend(figure) == ["loss=focal", "loss=sparsemax_loss"]
    np.testing.assert_allclose(loss.lines[1].get_xdata(), [0.8, 1.0, 1.8, 2.0])
    np.testing.assert_allclose(loss.lines[1].get_ydata(), [2 / 8, 2 / 10, 2 / 18, 2 / 20])
    np.testing.assert_allclose(metric.lines[2].get_xydata(), [[1.0, 0.3], [2.0, 0.6]])
    assert [line.get_markevery() for line in (*loss.lines, *metric.lines)] == [[3]] * 3 + [[1]] * 3
    assert metric.lines[0].get_color() == metric.lines[1].get_color() != metric.lines[2].get_color()
    assert figure.get_suptitle() == "marked: the epoch selected by macro top-3 accuracy"
    with pytest.raises(UserError, match="a did not log validation average_3_accuracy"):
        figures.curves(runs, Metric.accuracy("average", 3))


@pytest.mark.parametrize("k", [1, 2])
def test_panels_of_level_sets_have_the_values_of_their_references(k):
    # Without ties.
    scores = [[2, 0, 0], [0, 2, 0], [0, 0, 2], [1.2, 0.5, 0.3], [0.3, 0.8, 0.9]]
    given, panels = (np.array(scores, np.float32), np.full(5, 2)), figures.panels(k)
    for title, values in {
        "top-K error": reference.top_k_error(*given, k=k),
        "cross-entropy": reference.cross_entropy(*given),
        "top-K hinge": reference.top_k_hinge(*given, k=k),
        "convex\ntop-K hinge": reference.convex_top_k_hinge(*given, k=k),
        "smooth top-K hinge\nτ = 0.1": reference.smooth_top_k_hinge(*given, k=k, tau=0.1),
        "noised balanced\nε = 0.3": reference.expected_top_k_hinge(
            *given, k=k, epsilon=0.3, margins=1.0
        ),
        "noised imbalanced\nε = 1, m = 0.5": reference.expected_top_k_hinge(
            *given, k=k, epsilon=1.0, margins=0.5
        ),
    }.items():
        # Values of up to 3 in float32, and the expectation's nodes, which have 1e-5 epsilon.
        ours = jax.jit(panels[title])(*given)
        np.testing.assert_allclose(ours, values, atol=3e-5, err_msg=title)


def test_level_sets_have_the_label_above(monkeypatch):
    monkeypatch.setattr(figures, "panels", lambda _: dict.fromkeys(range(10), lambda s, _: s[:, 2]))
    # The line of the level 0.25.
    line = figures.level_sets().axes[0].collections[1].get_paths()[3].vertices
    np.testing.assert_allclose(line[:, 1], 0.25 * np.sqrt(0.75), atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "more"), [("field", {"over": "loss.alpha"}), ("curves", {}), ("set_sizes", {})]
)
def test_a_figure_is_written_the_same_each_time(tmp_path, kind, more):
    # Without --metric it is the one that selected.
    runs = [run(tmp_path / f"{alpha}", alpha=alpha, test=METRICS) for alpha in (0.1, 0.2)]
    for name in ("a.png", "b.png"):
        figures.draw(kind, runs, tmp_path / name, **more)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes() != b""
