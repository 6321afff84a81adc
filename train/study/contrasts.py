"""The contrasts of a study: differences of arms over the seeds and the test examples."""

from collections.abc import Mapping

from rich.console import Console

from train.foundation.console import show_line
from train.reports.metric import Metric
from train.run.runs import StoredRun
from train.study.plan import Known, Study
from train.study.statistics import Estimate, holm
from train.study.tables import ABSENT, paired, print_table, with_interval

_HEADS = ("difference", "p", "p (Holm)", "p (equivalence)", "detectable")


def estimate(
    study: Study, arms: Mapping[str, Known], runs: Mapping[str, StoredRun | None]
) -> dict[str, Estimate | None]:
    """The differences by the names of the contrasts; None until all runs of one have ended.

    Args:
        study: the study.
        arms: what is known of each arm.
        runs: by their keys the runs that have ended; None for one that diverged, none of whose
            sets has the label. If all of a contrast diverged, there is no difference.

    Raises:
        UserError: the test examples of two runs differ.
    """
    found: dict[str, Estimate | None] = {}
    for one in study.contrasts:
        # An arm has no runs before its values are selected.
        finals = [*zip(arms[one.first].finals, arms[one.second].finals, strict=False)]
        have_ended = all(run.key in runs for pair in finals for run in pair)
        pairs = [(runs.get(first.key), runs.get(second.key)) for first, second in finals]
        found[one.name] = None
        if have_ended and any(map(any, pairs)):
            found[one.name] = paired(pairs, Metric.parse(one.metric), study.split)
    return found


def show(console: Console, study: Study, estimates: Mapping[str, Estimate | None]) -> None:
    """Prints the contrasts with their p-values."""
    primary = [one.name for one in study.contrasts if one.primary]
    p_values = [found.p_value for name in primary if (found := estimates[name]) is not None]
    # With fewer p-values than there will be, the adjustment would be too small.
    is_complete = len(p_values) == len(primary)
    adjusted = dict(zip(primary, holm(p_values), strict=True)) if is_complete else {}
    body = []
    for one in study.contrasts:
        metric, found, cells = Metric.parse(one.metric), estimates[one.name], [ABSENT] * 5
        if found is not None:
            cells[:2] = with_interval(found, metric, "+"), f"{found.p_value:.2g}"
            cells[4] = f"{100 * found.detectable:.2f}"
            if one.name in adjusted:
                cells[2] = f"{adjusted[one.name]:.2g}"
            if one.equivalence is not None:
                p_value = found.equivalence(one.equivalence / 100)
                cells[3] = f"{p_value:.2g} (±{one.equivalence:g})"
        body.append([one.name, metric.in_few_words, *cells])
    show_line(f"contrasts in points on {study.split}, the first arm minus the second", console)
    print_table(console, ["contrast", "metric", *_HEADS], body, 2)
    for noise in dict.fromkeys(found.noise for found in estimates.values() if found is not None):
        show_line(f"± 95 % interval; its noise: {noise}", console)
    show_line("detectable: the difference that is found with a probability of 80 %", console)
