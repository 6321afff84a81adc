"""The page of the fine-tuning study has the numbers of its results."""

import json
from pathlib import Path
from statistics import fmean

PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "fine_tuned.md"


def test_the_page_has_the_contrasts_of_the_results():
    results = json.loads((PAGE.parent / "fine_tuned" / "noise.json").read_text())
    assert results["runs_to_go"] == 0
    text = PAGE.read_text()
    for contrast in results["contrasts"]:
        numbers = contrast["numbers"]
        difference, half_width, detectable = (
            f"{100 * numbers[name]:.2f}"
            for name in ("estimate", "half_width", "minimal_detectable")
        )
        metric = {"top_5_accuracy": "top-5", "top_1_accuracy": "top-1"}[contrast["metric"]]
        arms = f"{contrast['first']} - {contrast['second']}"
        assert f"| {arms} | {metric} | {difference} ± {half_width} | {detectable} |" in text


def test_the_differences_are_those_of_the_runs():
    results = json.loads((PAGE.parent / "fine_tuned" / "noise.json").read_text())
    for contrast in results["contrasts"]:
        first, second = (
            fmean(run["metrics"][contrast["metric"]] for run in arm["runs"])
            for name in (contrast["first"], contrast["second"])
            for arm in results["arms"]
            if arm["name"] == name
        )
        # Accuracies of the runs are rounded to float32.
        assert abs(contrast["numbers"]["estimate"] - (first - second)) < 1e-6
