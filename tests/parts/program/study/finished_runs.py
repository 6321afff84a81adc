"""What finished runs leave, made without training."""

import json

import numpy as np

from train.reports.outcomes import Outcomes


def finish(folder, name, config, *, lines=(), **found):
    """Leaves what a finished run leaves, with metrics by split, or other results."""
    workdir = folder / name
    workdir.mkdir(parents=True, exist_ok=True)
    (workdir / "config.json").write_text(json.dumps(config))
    (workdir / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    results = {"config": config, "num_classes": 10, "best_epoch": 2, "best_step": 20}
    results |= {"validation": {}, "test": {}, **found}
    (workdir / "results.json").write_text(json.dumps(results))
    return workdir


def write_outcomes(workdir, labels, *, ranks=None):
    """The outcomes of test examples of some classes."""
    labels = labels.astype(np.int32)
    sets = np.array([5], np.int32), np.zeros((1, len(labels)), bool), labels[None]
    ranks = np.zeros_like(labels) if ranks is None else np.asarray(ranks, np.int32)
    Outcomes(labels, ranks, *sets).write(workdir / "outcomes_test.npz")


def lines_of_run():
    """Two epochs of ten steps: training logged after 8 and 10 of them, for the last 2 steps."""
    lines = []
    for epoch in (1, 2):
        for step in (10 * epoch - 2, 10 * epoch):
            line = {"step": step, "epoch": epoch, "split": "train", "loss": 1 / step}
            lines.append(line | {"accuracy": 0.5})
        metrics = {
            "loss": 0.5 / epoch,
            "top_1_accuracy": 0.4 * epoch,
            "top_3_accuracy": 0.45 * epoch,
            "average_5_accuracy": 0.8 - 0.2 * epoch,
            "macro_top_3_accuracy": 0.3 * epoch,
        }
        lines.append({"step": 10 * epoch, "epoch": epoch, "split": "validation", **metrics})
    return lines


def config(**changed):
    """A configuration; a changed field of a group is as loss__k, and loss is the group's name."""
    found = {
        "seed": 0,
        "num_epochs": 5,
        "dataset": {"name": "digits", "batch_size": 64, "data_dir": "data"},
        "model": {"name": "small_cnn"},
        "loss": {"name": "cross_entropy", "k": 3, "epsilon": 1.0, "num_samples": 10, "gamma": 1.0},
        "optimizer": {"learning_rate": 0.05, "decay_epochs": [15, 25]},
        "select_by": "top_3_accuracy",
        "eval": {"ks": [1, 3]},
    }
    for name, value in changed.items():
        group, _, field = name.partition("__")
        if isinstance(found.get(group), dict):
            found[group] |= {field or "name": value}
        else:
            found[group] = value
    return found


def make_run(workdir, loss="noised_top_k_hinge", *, seed=0, test=None, lines=None, alpha=0.3):
    """A workdir with what a figure reads of a finished run."""
    select_by = "macro_top_3_accuracy"
    given = config(seed=seed, loss=loss, loss__alpha=alpha, select_by=select_by)
    lines = lines_of_run() if lines is None else lines
    return finish(workdir.parent, workdir.name, given, lines=lines, test=test or {})
