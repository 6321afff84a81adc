"""Finished runs to compare, made without training."""

from tests.parts.program.papers.finished_runs import finish
from train.comparison import comparing, finding
from train.reports.metric import Metric

TOP_1 = Metric.accuracy("top", 1)
TOP_3 = Metric.accuracy("top", 3)


def config(loss="cross_entropy", seed=0, *, dataset="digits", **changed):
    """A configuration; parameters of the loss are among the changed fields, with its prefix."""
    settings = {
        "seed": seed,
        "num_epochs": 5,
        "dataset": {"name": dataset, "batch_size": 64, "data_dir": f"data/{seed}"},
        "model": {"name": "small_cnn"},
        "loss": {"name": loss, "k": 3, "epsilon": 1.0, "num_samples": 10, "gamma": 1.0},
        "optimizer": {"learning_rate": 0.05, "decay_epochs": [15, 25]},
        "select_by": "top_3_accuracy",
        "eval": {"ks": [1, 3]},
    }
    for name, value in changed.items():
        group, _, field = name.partition("__")
        if field:
            settings[group] = {**settings[group], field: value}
        else:
            settings[group] = value
    return settings


def make(folder, *seeds_and_values, name="run", split="test", **fields):
    """A finished run for each (seed, top-1 accuracy)."""
    for seed, value in seeds_and_values:
        metrics = {"loss": 0.5, "top_1_accuracy": value, "top_3_accuracy": None}
        if value is not None:
            metrics["top_3_accuracy"] = (1 + value) / 2
        finish(folder, f"{name}-{seed}", config(seed=seed, **fields), **{split: metrics})


def compare(*folders, split="test", **options):
    return comparing.compare(finding.find([str(one) for one in folders]), split=split, **options)


def labels(comparison):
    return [table.groups.label(row.group) for table in comparison.tables for row in table.rows]
