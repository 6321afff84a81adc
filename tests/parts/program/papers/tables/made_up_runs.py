"""A table, and what its runs leave in a folder, made without training."""

from tests.parts.program.series import made_up_arms
from tests.parts.program.series.made_up_arms import BASE, SEARCH
from train.papers.tables import collecting
from train.papers.tables.readings import ResultMetric
from train.papers.tables.table import Cell, Table
from train.reports.metric import Metric
from train.series.recipe import Recipe

TOP_1 = ResultMetric(Metric.accuracy("top", 1))
TOP_3 = ResultMetric(Metric.accuracy("top", 3))
TUNED = Table(
    number="1.1",
    title="accuracy",
    rows={"focal": "focal", "cross_entropy": "cross-entropy"},
    columns={"K=1": "K = 1", "K=3": "K = 3"},
    cells={
        ("focal", "K=1"): Cell(BASE, TOP_1, search=SEARCH),
        ("focal", "K=3"): Cell(BASE, TOP_3, search=SEARCH),
        ("cross_entropy", "K=3"): Cell(Recipe("digits", "cross_entropy"), TOP_3),
    },
    seeds=(1, 2),
)


def look(folder, table=TUNED):
    return made_up_arms.look(folder, [cell.arm for cell in table.cells.values()], table.seeds)


def collect(folder, table=TUNED):
    return collecting.collect(table, look(folder, table))
