"""What the figures of runs read, average and draw."""

import json

import numpy as np
import pytest

from tests.parts.program.papers.finished_runs import lines_of_run, make_run, read
from train.foundation.errors import UserError
from train.papers.figures import (
    accuracies,
    curves,
    learning,
    lorenz,
    networks,
    selection,
    set_sizes,
    tested,
)


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


# Labels and seeds.


def test_runs_are_told_apart_by_what_their_loss_takes_and_by_the_model(tmp_path):
    runs = read(
        make_run(tmp_path / "a"),
        make_run(tmp_path / "b", num_samples=30),
        # The loss of these two takes neither epsilon nor K: they are seeds of one experiment.
        make_run(tmp_path / "c", "cross_entropy", epsilon=2.0),
        make_run(tmp_path / "d", "cross_entropy", k=1, seed=1),
        make_run(tmp_path / "e", "calibrated_top_k_hinge"),
    )
    assert selection.labels(runs) == [
        "noised balanced, M = 10",
        "noised balanced, M = 30",
        "cross-entropy",
        "cross-entropy",
        "calibrated top-K hinge",
    ]
    assert selection.labels(runs, without="loss.num_samples")[0] == "noised balanced"
    assert [len(seeds) for seeds in selection.by_label(runs).values()] == [1, 1, 2, 1]
    other = read(make_run(tmp_path / "f", "ldam", model="mlp", max_margin=0.2, scale=20.0))
    assert selection.labels([runs[0], *other]) == ["noised balanced, small_cnn", "LDAM, mlp"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1, "learning_rate": 0.2}, r"differ in optimizer\.learning_rate: 0\.1 -> 0\.2"),
        ({}, "the same experiment with the same seed, 0"),
    ],
)
def test_what_are_no_seeds_of_one_experiment_are_not_averaged(tmp_path, change, message):
    runs = read(make_run(tmp_path / "a"), make_run(tmp_path / "b", **change))
    for draw in (
        lambda: curves.gradient_sparsity(runs),
        lambda: selection.by_label(runs),
    ):
        with pytest.raises(UserError, match=message):
            draw()


# Curves over a field.


def test_a_metric_is_drawn_over_a_field_with_a_line_for_each_loss(tmp_path):
    accuracy = {0.01: (0.5, 0.7), 0.1: (0.6, 0.6), 10.0: (0.2, 0.4)}
    runs = [
        make_run(
            tmp_path / f"{alpha}-{seed}",
            "average_k",
            alpha=alpha,
            seed=seed,
            test={"average_5_accuracy": value},
        )
        for alpha, values in reversed(accuracy.items())
        for seed, value in enumerate(values)
    ]
    level = make_run(tmp_path / "ce", "cross_entropy", test={"average_5_accuracy": 0.65})
    figure = curves.metric_against_field(
        read(*runs, level), metric="average_5_accuracy", field="loss.alpha", split="test"
    )
    [axes] = figure.axes
    [bars] = axes.containers
    line = bars.lines[0]
    np.testing.assert_array_equal(line.get_xdata(orig=False), [0.01, 0.1, 10.0])
    np.testing.assert_allclose(line.get_ydata(orig=False), [0.6, 0.6, 0.3])
    # The ends of the bars are the interval's: with two seeds 12.7062 times half their distance.
    ends = np.array([segment[:, 1] for segment in bars.lines[2][0].get_segments()])
    np.testing.assert_allclose(
        ends[:, 1] - ends[:, 0], 2 * 12.7062 * np.array([0.1, 0, 0.1]), rtol=1e-5, atol=1e-12
    )
    [horizontal] = [other for other in axes.lines if other.get_label() == "cross-entropy"]
    assert set(horizontal.get_ydata()) == {0.65}
    assert legend(figure) == ["cross-entropy", "average-K"]
    assert axes.get_xscale() == "log"
    assert axes.get_xlabel() == "α (config.loss.alpha)"
    assert axes.get_ylabel() == "test average-5 accuracy"
    assert axes.get_title() == "digits: mean over the seeds and its 95 % interval"
    assert [axes.xaxis.get_major_formatter()(x) for x in axes.xaxis.get_majorticklocs()] == [
        "0.01",
        "0.1",
        "10",
    ]
    assert axes.yaxis.get_major_formatter()(0.975) == "97.5%"
    low, high = axes.get_ylim()
    assert low >= 0
    assert high <= 1.005


def with_validation(**values):
    """The lines of a run with other validation metrics, a value for each epoch."""
    lines = lines_of_run()
    for name, of_epochs in values.items():
        for epoch, value in enumerate(of_epochs, start=1):
            lines[3 * epoch - 1][name] = value
    return lines


def drawn_points(figure):
    """The points of each line with bars, by its label."""
    [axes] = figure.axes
    return {
        bars.get_label(): [
            tuple(point)
            for point in np.transpose(
                [bars.lines[0].get_xdata(orig=False), bars.lines[0].get_ydata(orig=False)]
            ).tolist()
        ]
        for bars in axes.containers
    }


def test_the_best_validation_value_is_that_of_any_epoch(tmp_path):
    # The first epoch has the best accuracy, the second the best loss; the second was selected.
    runs = [
        make_run(
            tmp_path / str(alpha),
            "average_k",
            alpha=alpha,
            lines=with_validation(average_5_accuracy=(best, best / 2), loss=(2.0, best)),
        )
        for alpha, best in ((0.1, 0.75), (0.2, 0.5))
    ]
    of_field = {"field": "loss.alpha", "split": "validation"}
    figure = curves.metric_against_field(read(*runs), metric="average_5_accuracy", **of_field)
    assert drawn_points(figure) == {"average-K": [(0.1, 0.75), (0.2, 0.5)]}
    assert figure.axes[0].get_ylabel() == "best validation average-5 accuracy"
    figure = curves.metric_against_field(read(*runs), metric="loss", **of_field)
    assert drawn_points(figure) == {"average-K": [(0.1, 0.75), (0.2, 0.5)]}
    # An epoch without a value is left out; a run without any is refused.
    some = make_run(
        tmp_path / "a", epsilon=1.0, lines=with_validation(macro_top_3_accuracy=(None, 0.25))
    )
    of_field = {"field": "loss.epsilon", "split": "validation"}
    figure = curves.metric_against_field(read(some), metric="macro_top_3_accuracy", **of_field)
    assert drawn_points(figure) == {"noised balanced": [(1.0, 0.25)]}


def test_the_batch_size_is_drawn_where_the_rate_follows_it(tmp_path):
    def make(loss, size, rate, seed=0):
        workdir = tmp_path / f"{loss}-{size}-{seed}"
        return make_run(workdir, loss, batch_size=size, learning_rate=rate, seed=seed)

    # Each line has its own ratio; people round the rates that they type.
    rates = {16: 0.0251, 32: 0.05, 64: 0.1}
    workdirs = [make("focal", size, rate) for size, rate in rates.items()]
    workdirs += [make("sparsemax", size, 2 * rate) for size, rate in rates.items()]
    options = {"metric": "average_5_accuracy", "split": "validation"}
    figure = curves.metric_against_batch_size(read(*workdirs), **options)
    assert drawn_points(figure) == {
        label: [(16.0, 0.6000000000000001), (32.0, 0.6000000000000001), (64.0, 0.6000000000000001)]
        for label in ("focal", "sparsemax")
    }
    assert figure.axes[0].get_xlabel() == "batch size (config.dataset.batch_size)"
    other = make("focal", 128, 0.1)
    message = (
        r"the runs of focal must have one ratio of config\.optimizer\.learning_rate and "
        r"config\.dataset\.batch_size: it is 0\.00156875 in .*focal-16-0 and 0\.00078125 in "
        r".*focal-128-0; --figure=metric_against_field"
    )
    with pytest.raises(UserError, match=message):
        curves.metric_against_batch_size(read(*workdirs, other), **options)
    curves.metric_against_field(read(*workdirs, other), field="dataset.batch_size", **options)


def test_the_sparsity_is_the_mean_over_the_steps_of_the_first_epoch(tmp_path):
    small = make_run(tmp_path / "a", epsilon=0.1, lines=lines_of_run((2.0, 1.0)))
    [run] = read(small)
    # Eight steps with 2 and two steps with 1.
    assert curves.nonzero_gradients(run) == pytest.approx(1.8)
    figure = curves.gradient_sparsity(read(small, make_run(tmp_path / "b", epsilon=1.0)))
    [axes] = figure.axes
    np.testing.assert_allclose(axes.containers[0].lines[0].get_xdata(orig=False), [0.1, 1.0])
    np.testing.assert_allclose(axes.containers[0].lines[0].get_ydata(orig=False), [1.8, 7.2])
    [bound] = [line for line in axes.lines if line.get_label() == "all 10 classes"]
    assert set(bound.get_ydata()) == {10}
    assert axes.get_xlabel() == "noise ε (units of the logits)"


def test_the_time_of_an_epoch_leaves_the_first_out(tmp_path):
    workdirs = [
        make_run(tmp_path / f"{k}-{samples}", k=k, num_samples=samples, seconds=(9, k, samples))
        for samples in (3, 10)
        for k in (5, 1)
    ]
    level = make_run(tmp_path / "ce", "cross_entropy")
    figure = curves.epoch_time(read(*workdirs, level))
    [axes] = figure.axes
    assert [bars.get_label() for bars in axes.containers] == [
        "noised balanced, M = 3",
        "noised balanced, M = 10",
    ]
    np.testing.assert_allclose(axes.containers[0].lines[0].get_xdata(orig=False), [1, 5])
    np.testing.assert_allclose(axes.containers[0].lines[0].get_ydata(orig=False), [2.0, 4.0])
    np.testing.assert_allclose(axes.containers[1].lines[0].get_ydata(orig=False), [5.5, 7.5])
    [horizontal] = [line for line in axes.lines if line.get_label() == "cross-entropy"]
    assert set(horizontal.get_ydata()) == {1.5}
    assert axes.get_ylabel() == "mean time of an epoch (s)"


# Set sizes.


def sizes(*counts_of_shots):
    """The sizes of the sets of a class of each shot, from their numbers by size."""
    return [np.repeat(np.arange(len(one)), one) for one in counts_of_shots]


def heights(axes):
    return [bar.get_height() for bar in axes.patches if hasattr(bar, "get_height")]


def test_set_sizes_are_shares_by_loss_with_seeds_together(tmp_path):
    # 1,000 and 1,000 images; one in 1,000 has a set of four, which is too few to be shown.
    one = sizes([0, 0, 0, 0, 0], [0, 100, 399, 0, 1], [0, 400, 100, 0, 0])
    # The counts of a run end with its largest set.
    two = sizes([0, 0, 0], [0, 0, 500], [0, 500, 0])
    runs = read(
        make_run(tmp_path / "a", sizes=one),
        make_run(tmp_path / "b", seed=1, sizes=two),
        make_run(tmp_path / "c", "cross_entropy", sizes=two),
    )
    figure = set_sizes.by_loss(runs, k=5)
    ours, other = figure.axes
    assert [axes.get_title() for axes in figure.axes] == ["noised balanced", "cross-entropy"]
    np.testing.assert_allclose(heights(ours), [0, 0.5, 0.4995, 0, 0.0005])
    np.testing.assert_allclose(heights(other), [0, 0.5, 0.5])
    # Each stands over its number of classes.
    centers = [bar.get_x() + bar.get_width() / 2 for bar in ours.patches]
    np.testing.assert_allclose(centers, range(5), atol=1e-12)
    # 1,000 * 1 + 999 * 2 + 1 * 4 over 2,000.
    assert [text.get_text() for text in ours.texts] == ["mean 1.50\n1,000 images, 2 seeds"]
    assert ours.get_xlim()[1] < 3
    assert (
        figure.get_supxlabel() == "classes in the set of average size 5\nlarger sets, not shown: 1"
    )
    # The first is outlined in the others.
    outlines = [patch for patch in other.patches if not hasattr(patch, "get_height")]
    np.testing.assert_allclose(outlines[0].get_data().values, heights(ours))
    np.testing.assert_allclose(outlines[0].get_data().edges, np.arange(6) - 0.5)
    assert figure.get_suptitle() == "dashed: noised balanced"


def test_set_sizes_by_shot_have_a_row_for_each_loss(tmp_path):
    workdirs = [
        make_run(
            tmp_path / loss,
            loss,
            sizes=sizes([0, 0, 0], [0, 1, 3], [0, 3, 1]),
            counts=(5, 50, 500),
        )
        for loss in ("average_k", "cross_entropy")
    ]
    figure = set_sizes.by_shot(read(*workdirs), k=5)
    assert [axes.get_title() for axes in figure.axes] == [
        f"{loss}: {shot} shot"
        for loss in ("average-K", "cross-entropy")
        for shot in ("few", "medium", "many")
    ]
    few, medium, many = figure.axes[:3]
    # There is nothing to show for a shot without images.
    assert heights(few) == []
    assert [text.get_text() for text in few.texts] == ["no images"]
    assert [text.get_text() for text in medium.texts] == ["mean 1.75\n4 images"]
    np.testing.assert_allclose(heights(medium), [0, 0.25, 0.75])
    np.testing.assert_allclose(heights(many), [0, 0.75, 0.25])
    assert len({bars.patches[0].get_hatch() for bars in (medium, many)}) == 2


# Accuracies and learning curves.


def test_top_k_is_drawn_against_average_k_by_run(tmp_path):
    def test_metrics(value):
        names = ("average_5", "top_5", "macro_average_5", "macro_top_5")
        return {f"{name}_accuracy": value + i / 10 for i, name in enumerate(names)}

    runs = read(
        make_run(tmp_path / "a", "focal", gamma=1.0, test=test_metrics(0.5)),
        make_run(tmp_path / "b", "focal", gamma=1.0, seed=1, test=test_metrics(0.6)),
        make_run(tmp_path / "c", "sparsemax", test=test_metrics(0.1)),
    )
    figure = accuracies.top_against_average(runs, k=5)
    micro, macro = figure.axes
    drawn = {line.get_label(): line for line in micro.lines}
    np.testing.assert_allclose(drawn["focal"].get_xydata(), [[0.5, 0.6], [0.6, 0.7]])
    np.testing.assert_allclose(drawn["sparsemax"].get_xydata(), [[0.1, 0.2]])
    np.testing.assert_allclose(macro.lines[0].get_xydata(), [[0.7, 0.8], [0.8, 0.9]])
    assert drawn["equal"].get_xdata().tolist() == drawn["equal"].get_ydata().tolist()
    assert legend(figure) == ["focal", "sparsemax", "equal"]
    assert micro.get_xlabel() == "test average-5 accuracy"
    assert micro.get_ylabel() == "test top-5 accuracy"


# Networks and data sets.

OF_TWO = {"metric": "macro_top_1_accuracy", "loss": "cross_entropy"}
OF_FIVE = {"k": 5, "loss": "cross_entropy"}


def make_result(folder, dataset, model, value, *, seed=0, loss="cross_entropy"):
    """A run of a network, whose metrics are this one and a little more."""
    names = ("macro_top_1", "macro_top_5", "macro_average_5", "top_1", "top_5")
    metrics = {f"{name}_accuracy": value + i / 10 for i, name in enumerate(names)}
    of_loss = "" if loss == "cross_entropy" else f"-{loss}"
    workdir = folder / f"{dataset}-{model}{of_loss}-{seed}"
    return make_run(workdir, loss, dataset=dataset, model=model, seed=seed, test=metrics)


def evaluate(folder, dataset, model, metrics, split="test"):
    """What `train.evaluate --out` writes of published weights, as far as it is read."""
    config = {
        "model": {"name": model},
        "dataset": {"name": dataset},
        "loss": {"name": "cross_entropy"},
    }
    rows = {"top_k=1": metrics, "coverage=0.9": {"coverage": 0.9}}
    content = {"split": split, "config": config, "sets": rows}
    (folder / f"{dataset}-{model}-{split}.json").write_text(json.dumps(content))


def test_networks_are_drawn_by_their_numbers_in_the_thesis(tmp_path, capsys):
    make_result(tmp_path, "plantnet300k", "resnet50", 0.2)
    make_result(tmp_path, "plantnet300k", "resnet50", 0.4, seed=1)
    make_result(tmp_path, "plantnet300k", "vgg11", 0.1)
    make_result(tmp_path, "plantnet300k", "small_cnn", 0.05)
    make_result(tmp_path, "imagenet", "small_cnn", 0.15)
    make_result(tmp_path, "imagenet", "alexnet", 0.5)
    make_result(tmp_path, "digits", "vgg11", 0.9)
    evaluate(tmp_path, "imagenet", "resnet50", {"coverage": 0.6, "macro": 0.7})
    # Not of the test split, or no evaluation at all: neither is taken.
    evaluate(tmp_path, "imagenet", "resnet50", {"macro": 0.8}, "validation")
    (tmp_path / "numbers.json").write_text("[]")
    # Of another loss: not taken.
    make_result(tmp_path, "plantnet300k", "resnet50", 0.9, loss="focal")
    results = tested.find(str(tmp_path))
    figure = networks.on_two_data_sets(results, **OF_TWO)
    # In the order of their numbers; what the thesis does not have comes after it.
    assert legend(figure) == ["21  resnet50", "28  small_cnn"]
    [axes] = figure.axes
    # The mean of the two seeds over the number of the evaluation.
    np.testing.assert_allclose(
        [line.get_xydata()[0] for line in axes.lines], [[0.7, 0.3], [0.15, 0.05]]
    )
    assert [text.get_text() for text in axes.texts] == ["21", "28"]
    # Each number stands on the side without the other point.
    assert [text.get_ha() for text in axes.texts] == ["left", "right"]
    assert axes.get_xlabel() == "ImageNet test macro top-1 accuracy"
    assert axes.get_ylabel() == "Pl@ntNet-300K test macro top-1 accuracy"
    assert capsys.readouterr().out == (
        "not drawn, because the other result is missing: alexnet only on imagenet; "
        "vgg11 only on plantnet300k\n"
    )
    figure = networks.average_against_top(results, **OF_FIVE)
    assert legend(figure) == ["21  resnet50", "24  vgg11", "28  small_cnn", "equal"]
    points = [line.get_xydata()[0] for line in figure.axes[0].lines[:3]]
    np.testing.assert_allclose(points, [[0.4, 0.5], [0.2, 0.3], [0.15, 0.25]])
    figure = networks.micro_and_macro(results, k=1, loss="cross_entropy")
    [axes] = figure.axes
    assert [text.get_text() for text in axes.get_yticklabels()] == [
        "resnet50  21",
        "vgg11  24",
        "small_cnn  28",
    ]
    micro, macro = (line.get_xydata() for line in axes.lines)
    np.testing.assert_allclose(micro, [[0.6, 0], [0.4, 1], [0.35, 2]])
    np.testing.assert_allclose(macro, [[0.3, 0], [0.1, 1], [0.05, 2]])
    assert legend(figure) == ["top-1 accuracy", "macro top-1 accuracy"]
    # The first network is the upper row.
    assert axes.yaxis_inverted()


def test_networks_are_drawn_with_a_loss_against_the_cross_entropy(tmp_path, capsys):
    for model, value in (("resnet50", 0.2), ("vgg11", 0.1), ("alexnet", 0.05)):
        make_result(tmp_path, "plantnet300k", model, value)
    make_result(tmp_path, "plantnet300k", "resnet50", 0.25, loss="smooth_top_k_hinge")
    make_result(tmp_path, "plantnet300k", "vgg11", 0.05, loss="smooth_top_k_hinge")
    results = tested.find(str(tmp_path))
    figure = networks.against_cross_entropy(results, k=5, loss="smooth_top_k_hinge")
    assert legend(figure) == ["21  resnet50", "24  vgg11", "equal"]
    [axes] = figure.axes
    points = [line.get_xydata()[0] for line in axes.lines[:2]]
    np.testing.assert_allclose(points, [[0.6, 0.65], [0.5, 0.45]])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("cross-entropy", "smooth top-K hinge")
    assert capsys.readouterr().out == (
        "not drawn, because the other result is missing: alexnet only of cross_entropy\n"
    )
    with pytest.raises(UserError, match="needs test results of focal on plantnet300k, and there"):
        networks.against_cross_entropy(results, k=5, loss="focal")
    with pytest.raises(UserError, match="--loss must be another loss; got 'cross_entropy'"):
        networks.against_cross_entropy(results, k=5, loss="cross_entropy")


def test_data_sets_are_drawn_by_how_many_images_the_rarest_classes_have(tmp_path):
    workdirs = [
        make_run(tmp_path / "a", counts=(5, 0, 10, 85, 0), dataset="plantnet300k"),
        # The same data set once more.
        make_run(tmp_path / "b", "focal", counts=(5, 0, 10, 85, 0), dataset="plantnet300k"),
        make_run(tmp_path / "c", counts=(7, 7), dataset="folder"),
        make_run(tmp_path / "d", counts=(1, 3), dataset="folder"),
    ]
    figure = lorenz.by_data_set(selection.read_any(map(str, workdirs)))
    assert legend(figure) == [
        "plantnet300k: 5 classes,\n80% of them have 15.0%",
        "folder (c): 2 classes,\n80% of them have 80.0%",
        "folder (d): 2 classes,\n80% of them have 70.0%",
        "equal",
    ]
    first, _, last, _ = figure.axes[0].lines
    np.testing.assert_allclose(
        first.get_xydata(), [[0, 0], [0.2, 0], [0.4, 0], [0.6, 0.05], [0.8, 0.15], [1, 1]]
    )
    np.testing.assert_allclose(last.get_xydata(), [[0, 0], [0.5, 0.25], [1, 1]])
    with pytest.raises(UserError, match=r"classes\.json has no training image of any class"):
        lorenz.by_data_set(read(make_run(tmp_path / "e", counts=(0, 0))))
    with pytest.raises(UserError, match=r"classes\.json is missing"):
        lorenz.by_data_set(read(make_run(tmp_path / "f")))


def test_the_curves_of_several_runs_are_a_line_each(tmp_path):
    runs = read(
        make_run(tmp_path / "first"),
        make_run(tmp_path / "x" / "same", "focal", gamma=1.0),
        make_run(tmp_path / "y" / "same", "sparsemax"),
    )
    figure = learning.learning_curves(runs, metric=None)
    loss, metric = figure.axes
    assert legend(figure) == ["first", str(tmp_path / "x/same"), str(tmp_path / "y/same")]
    np.testing.assert_allclose(loss.lines[1].get_xdata(), [0.8, 1.0, 1.8, 2.0])
    np.testing.assert_allclose(loss.lines[1].get_ydata(), [1 / 8, 1 / 10, 1 / 18, 1 / 20])
    np.testing.assert_allclose(metric.lines[2].get_xdata(), [1.0, 2.0])
    np.testing.assert_allclose(metric.lines[2].get_ydata(), [0.3, 0.6])
    assert loss.get_ylabel() == "training loss"
    assert metric.get_ylabel() == "validation macro top-3 accuracy"
    # The epoch that each run selected has a ring.
    rings = [tuple(line.get_xydata()[0]) for line in metric.lines[3:]]
    assert rings == [(2.0, 0.6)] * 3
    assert figure.get_suptitle() == "ring: the epoch selected by macro top-3 accuracy"
    assert loss.get_xlabel() == metric.get_xlabel() == "epoch"
