"""A study on digits, and runs of it that are made without training."""

import json

import numpy as np

from tests.parts.program.series.made_up_arms import diverge
from train.comparison import study_file
from train.reports.outcomes import Outcomes
from train.run import run_folder
from train.series.planner import Planner
from train.series.runs_folder import RunsFolder

STUDY = """
select_by = "macro_top_3_accuracy"
split = "test"
candidates = 6
finalists = 2
tuning_seeds = [0, 1]
seeds = [10, 11, 12]
search_seed = 0

[fields]
num_epochs = 2

[[arms]]
name = "hinge"
config = "digits:noised_balanced"
[arms.space]
optimizer.learning_rate = {from = 1e-3, to = 0.1, scale = "log"}
"loss.epsilon" = {from = 0.2, to = 1.2, scale = "linear", least = 0.1, most = 1.4}

[[arms]]
name = "cosine"
config = "digits:cross_entropy"
fields = {"model.head" = "cosine", "model.scale" = 20.0}
[arms.space]
optimizer.learning_rate = {from = 1e-3, to = 0.1, scale = "log"}

[[arms]]
name = "untuned"
config = "digits:cross_entropy"

[[contrasts]]
name = "loss"
first = "hinge"
second = "cosine"
metric = "macro_top_3_accuracy"
primary = true
equivalence = 0.5

[[contrasts]]
name = "head"
first = "cosine"
second = "untuned"
metric = "top_1_accuracy"
primary = true
"""
# As classes are not equally large, means over them are not those over examples.
LABELS = np.repeat(np.arange(10, dtype=np.int32), np.arange(5, 55, 5))


def read(folder, text=STUDY):
    path = folder / "study.toml"
    path.write_text(text)
    return study_file.read(path)


def look(study, folder):
    return Planner(RunsFolder(folder), study.arms.values(), study.seeds, split=study.split)


def make(study, folder, score, *, hit_rate=lambda _run: 0.5, diverges=lambda _run: False):
    """Makes the runs as far as they become known; returns them in order.

    Args:
        study: the study.
        folder: the folder of the runs.
        score: the validation score of a run.
        hit_rate: the share of the examples whose label is first, of a run.
        diverges: whether a run diverges.
    """
    made = []
    while True:
        planner = look(study, folder)
        # Known in advance, so that a search that is extended forever fails.
        to_make = planner.to_make
        if not to_make:
            return made
        for run in to_make:
            if diverges(run):
                diverge(folder, run)
            else:
                _finish(folder, run, score(run), hit_rate(run))
        made.extend(to_make)


def _finish(folder, run, score, hit_rate):
    generator = np.random.default_rng([run.seed, 1])
    ranks = np.where(generator.uniform(size=len(LABELS)) < hit_rate, 0, 5).astype(np.int32)
    hits = (ranks == 0).mean()
    workdir = folder / run.name
    workdir.mkdir(parents=True)
    (workdir / run_folder.CONFIG).write_text(json.dumps(run.config))
    results = {
        "config": run.config,
        "versions": {"jax": "1.2.3"},
        "num_classes": 10,
        "best_epoch": 2,
        "best_step": 2,
        "epoch_seconds": [2.0, 0.5],
        "validation": {"macro_top_3_accuracy": score},
        "test": {"macro_top_3_accuracy": hits, "top_1_accuracy": hits},
    }
    (workdir / run_folder.RESULTS).write_text(json.dumps(results))
    lines = [
        {"step": 1, "epoch": 1, "split": "train", "loss": 1.0},
        {"step": 1, "epoch": 1, "split": "validation", "macro_top_3_accuracy": 0.25},
        {"step": 2, "epoch": 2, "split": "validation", "macro_top_3_accuracy": score},
    ]
    (workdir / run_folder.METRICS).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    sets = np.array([3], np.int32), (ranks == 0)[None], np.full((1, len(ranks)), 3, np.int32)
    Outcomes(LABELS, ranks, *sets).write(run_folder.outcomes(workdir, "test"))
