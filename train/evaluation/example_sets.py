"""The sets that a page of errors is about: the sets of one rule of a report."""

from collections.abc import Mapping
from typing import Any

from train.evaluation import set_rules, summaries
from train.evaluation.predictions import Predictions
from train.evaluation.summaries import Sets

_USUAL = "0.9"


def of_report(report: Mapping[str, Any], examples: Predictions, k: int) -> tuple[Sets, str]:
    """The sets of examples, and the rule in words.

    They are conformal sets with a coverage of 0.9, or else the least coverage of the report. If the
    report has no coverages, they are the sets of its largest mean size, or the top-K sets.

    Args:
        report: the report; see `set_report` and `train.prediction.evaluating.new_data_report`.
        examples: the predictions.
        k: the K of the last.
    """
    coverages, thresholds = report["coverages"], report["thresholds"]
    if coverages:
        asked = _USUAL if _USUAL in coverages else min(coverages, key=float)
        threshold = coverages[asked]["conformal"]["threshold"]
        what = f"conformal sets with a coverage of {asked}"
    elif thresholds:
        name, threshold = list(thresholds.items())[-1]
        what = f"sets of {name.partition('_')[2]} classes on average"
    else:
        return summaries.top_k_sets(examples, k), f"Each set has the {k} likeliest classes."
    found = summaries.find_sets(examples, set_rules.at_threshold(threshold))
    words = f"Each set has the classes whose probability reaches {threshold:.4g}: {what}"
    return found, f"{words}, calibrated on {report['calibrated_on']}."
