"""The page of the fine-tuning study has the numbers of its results."""

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "fine_tuned.md"
METRICS = {
    "macro_top_5_accuracy": "macro top-5",
    "top_5_accuracy": "top-5",
    "top_1_accuracy": "top-1",
}


@pytest.fixture(params=["tail", "noise"])
def results(request) -> dict[str, Any]:
    return json.loads((PAGE.parent / "fine_tuned" / f"{request.param}.json").read_text())


def test_the_page_has_the_contrasts_of_the_results(results):
    assert results["runs_to_go"] == 0
    text = PAGE.read_text()
    for contrast in results["contrasts"]:
        numbers = contrast["numbers"]
        arms = f"{contrast['first']} - {contrast['second']}"
        difference = f"{100 * numbers['estimate']:+.2f} ± {100 * numbers['half_width']:.2f}"
        corrected = contrast["p_value_holm"]
        p_value = "–" if corrected is None else f"{corrected:.2g}"
        detectable = f"{100 * numbers['minimal_detectable']:.2f}"
        row = [arms, METRICS[contrast["metric"]], difference, p_value, detectable]
        assert f"| {' | '.join(row)} |" in text


def test_the_page_has_the_means_of_the_losses(results):
    text = PAGE.read_text()
    for arm in results["arms"]:
        top_5, top_1 = (
            100 * fmean(run["metrics"][f"macro_top_{k}_accuracy"] for run in arm["runs"])
            for k in (5, 1)
        )
        assert f"| {arm['name']} | {top_5:.1f} | {top_1:.1f} |" in text


def test_the_differences_are_those_of_the_runs(results):
    for contrast in results["contrasts"]:
        first, second = (
            fmean(run["metrics"][contrast["metric"]] for run in arm["runs"])
            for name in (contrast["first"], contrast["second"])
            for arm in results["arms"]
            if arm["name"] == name
        )
        # Accuracies of the runs are rounded to float32.
        assert abs(contrast["numbers"]["estimate"] - (first - second)) < 1e-6
