"""Two arms, one with a search, and what their runs leave in a folder, without training."""

import json

from train.reports.metric import Metric
from train.series.parameters import Choice
from train.series.planner import Arm, Planner
from train.series.recipe import Recipe
from train.series.runs_folder import RunsFolder
from train.series.search import Search

BASE = Recipe("digits", "focal")
SEARCH = Search(BASE, (Choice("loss.gamma", (0.5, 1.0, 2.0)),), Metric.accuracy("top", 3), count=3)
ARMS = (Arm(BASE, SEARCH), Arm(Recipe("digits", "cross_entropy")))
# The first is the search's, too.
SEEDS = (0, 2)


def look(folder, arms=ARMS, seeds=SEEDS):
    return Planner(RunsFolder(folder), arms, seeds)


def gammas(runs):
    return [(run.config["loss"]["gamma"], run.seed) for run in runs]


def diverge(folder, run):
    """What a run leaves that came to numbers that are not finite."""
    (folder / run.name).mkdir(parents=True)
    (folder / run.name / "config.json").write_text(json.dumps(run.config))
    (folder / f"{run.name}.log").write_text("epoch 1/2\nerror: training diverged: at step 3\n\n")
