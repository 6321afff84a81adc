"""Workdirs with what is read of a finished run, made without training."""

import json

import numpy as np

from train.papers.figures import selection
from train.reports.outcomes import Outcomes

STEPS_PER_EPOCH = 10


def lines_of_run(nonzero=(8.0, 4.0)):
    """Two epochs of ten steps: training logged after 5 and 10 of them, for the last 2 steps."""
    lines = []
    for epoch in (1, 2):
        for at, value in zip((8, 10), nonzero, strict=True):
            step = (epoch - 1) * STEPS_PER_EPOCH + at
            line = {"step": step, "epoch": epoch, "split": "train", "loss": 1 / step}
            lines.append(line | {"accuracy": 0.5, "nonzero_gradients": value / epoch})
        lines.append(
            {
                "step": epoch * STEPS_PER_EPOCH,
                "epoch": epoch,
                "split": "validation",
                "loss": 0.5 / epoch,
                "top_1_accuracy": 0.4 * epoch,
                "top_3_accuracy": 0.45 * epoch,
                "average_5_accuracy": 0.8 - 0.2 * epoch,
                "macro_top_3_accuracy": 0.3 * epoch,
            }
        )
    return lines


def make_run(
    workdir,
    loss="noised_balanced",
    *,
    seed=0,
    test=None,
    seconds=(9.0, 1.0, 2.0),
    lines=None,
    sizes=None,
    dataset="digits",
    model="small_cnn",
    learning_rate=0.1,
    batch_size=64,
    counts=None,
    **parameters,
):
    """A workdir with what a figure reads of a finished run."""
    parameters = {"k": 3, "epsilon": 1.0, "num_samples": 10, "alpha": 0.3, **parameters}
    config = {
        "seed": seed,
        "select_by": "macro_top_3_accuracy",
        "dataset": {"name": dataset, "batch_size": batch_size, "data_dir": f"data/{seed}"},
        "model": {"name": model},
        "loss": {"name": loss, **parameters},
        "optimizer": {"learning_rate": learning_rate, "clip_norm": None},
        "eval": {"ks": [1, 3]},
    }
    results = {
        "config": config,
        "num_classes": 10,
        "best_epoch": 2,
        "best_step": 2,
        "epoch_seconds": list(seconds),
        "test": test or {},
    }
    workdir.mkdir(parents=True)
    (workdir / "config.json").write_text(json.dumps(config))
    (workdir / "results.json").write_text(json.dumps(results))
    written = "".join(json.dumps(line) + "\n" for line in lines or lines_of_run())
    (workdir / "metrics.jsonl").write_text(written)
    if counts is not None:
        classes = [{"name": f"c{i}", "training_images": n} for i, n in enumerate(counts)]
        (workdir / "classes.json").write_text(json.dumps(classes))
    if sizes is not None:
        write_outcomes(workdir, np.repeat(np.arange(len(sizes)), [*map(len, sizes)]), sizes)
    return workdir


def write_outcomes(workdir, labels, sizes=None, *, ranks=None):
    """The outcomes of test examples of some classes, with the sizes of average-5 sets."""
    nothing, sizes = np.zeros(len(labels), np.int32), np.concatenate(sizes or [labels])
    sets = np.array([5], np.int32), np.zeros((1, len(labels)), bool), sizes[None].astype(np.int32)
    ranks = nothing if ranks is None else np.asarray(ranks, np.int32)
    Outcomes(labels.astype(np.int32), ranks, *sets).write(workdir / "outcomes_test.npz")


def read(*workdirs):
    return selection.read([str(workdir) for workdir in workdirs])


def finish(folder, name, config, *, bayes=None, **splits):
    """Leaves what a finished run leaves, with these metrics."""
    workdir = folder / name
    workdir.mkdir(parents=True, exist_ok=True)
    (workdir / "config.json").write_text(json.dumps(config))
    results = {"config": config, "num_classes": 10, "best_epoch": 1, "best_step": 1}
    results |= {"validation": {}, "test": {}, **splits}
    results |= {} if bayes is None else {"bayes": bayes}
    (workdir / "results.json").write_text(json.dumps(results))
    return workdir
