"""The tables of the study, in Markdown, from the files that are committed.

A question has no table before all runs of all its settings have finished.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from markdown_tables import markdown_table
from texts import POINTS, number_text, p_value_text, with_interval

from pretrained import answers, collecting, committed, design
from pretrained.design import Range

_OPEN = "\nNo question is complete.\n\n"
_LEADS = Path(__file__).parent / "leads.json"
# The part of a range at each end whose values are reported.
_EDGE = 0.1


def progress(folder: Path = collecting.FOLDER) -> str:
    """How many runs of each setting have finished."""
    plain: dict[str, Any] = json.loads((folder / collecting.PROGRESS).read_text())
    rows = [
        [
            f"`{one['setting']}`",
            f"{one['done']:,}",
            f"{one['to_go']:,}",
            f"{one['cpu_seconds'] / one['done']:.1f}" if one["done"] else "–",
            f"{one['flops'] / one['cpu_seconds'] / 1e9:.0f}" if one["done"] else "–",
        ]
        for one in plain["settings"]
    ]
    head = [
        "setting",
        "runs done",
        "runs to go, at most",
        "seconds of a core for each",
        "GFLOP/s of a core",
    ]
    return markdown_table(head, rows)


def contrasts(folder: Path = collecting.FOLDER) -> str:
    """The primary contrasts of the complete questions."""
    rows = [
        [
            f"`{one.difference.setting.name}`",
            one.difference.contrast.name,
            with_interval(one.difference.found),
            one.verdict,
            ", ".join(effect.text for effect in one.difference.published),
            f"{POINTS * one.detectable:.2f}",
            p_value_text(one.adjusted),
            f"{POINTS * one.difference.of_seeds:.2f}, {POINTS * one.difference.of_searches:.2f}",
        ]
        for one in committed.answered(folder)
    ]
    head = [
        "setting",
        "difference",
        "points",
        "answer",
        "published",
        "detectable",
        "corrected p",
        "standard errors: seeds and images, search",
    ]
    return markdown_table(head, rows) if rows else _OPEN


def secondary(folder: Path = collecting.FOLDER) -> str:
    """Each loss with each head beside cross-entropy, of the complete questions."""
    study = design.study()
    rows = [
        [
            f"`{one.setting.name}`",
            f"{one.loss}, {one.head}",
            *(
                "–" if found is None else with_interval(found)
                for found in (one.same_head, one.better_head, one.top_1, one.wrong_labels)
            ),
        ]
        for finished in committed.complete(study, folder)
        for one in answers.secondary(study, finished)
    ]
    head = [
        "setting",
        "loss and head",
        "to cross-entropy, same head",
        "to cross-entropy, better head",
        "top-1, same head",
        "selected by wrong labels",
    ]
    return markdown_table(head, rows) if rows else _OPEN


def accuracies(folder: Path = collecting.FOLDER) -> str:
    """What was selected in each arm of the complete questions, with its accuracy."""
    study = design.study()
    rows = []
    for one in committed.complete(study, folder):
        losses = {loss.name: loss for loss in study.losses}
        for chosen in one.chosen:
            space = losses[chosen.loss].spaces[chosen.head]
            (hits,) = chosen.hits.values()
            rows.append(
                [
                    f"`{one.setting.name}`",
                    f"{chosen.loss}, {chosen.head}",
                    f"{chosen.search}, {chosen.rule}",
                    f"{POINTS * hits.mean():.2f}",
                    ", ".join(
                        f"{name} {number_text(value)}{_edge(space[name], value)}"
                        for name, value in chosen.parameters.items()
                    ),
                ]
            )
    head = ["setting", "loss and head", "search, validation labels", "test accuracy", "selected"]
    return markdown_table(head, rows) if rows else _OPEN


def leads(path: Path = _LEADS) -> str:
    """The losses of `leads.py` beside cross-entropy and the best baseline."""
    plain: list[dict[str, Any]] = json.loads(path.read_text())
    rows = []
    for setting in dict.fromkeys(one["setting"] for one in plain):
        of_setting = [one for one in plain if one["setting"] == setting]
        # By arm, [searches, seeds].
        found = {
            arm: np.array([one["top_5"] for one in of_setting if one["arm"] == arm])
            for arm in dict.fromkeys(one["arm"] for one in of_setting)
        }
        baselines = {one["loss"] for one in of_setting}
        best = max(baselines, key=lambda arm: float(found[arm].mean()))
        luck = np.mean([one.mean(axis=1).var(ddof=1) for one in found.values()])
        rows += [
            [
                setting,
                arm,
                f"{POINTS * of_arm.mean():.2f}",
                *(
                    "–" if arm == other else _with_error(of_arm - found[other], float(luck))
                    for other in ("cross-entropy", best)
                ),
            ]
            for arm, of_arm in found.items()
        ]
    head = ["setting", "loss", "top-5", "minus cross-entropy", "minus the best baseline"]
    return markdown_table(head, rows)


def _with_error(differences: np.ndarray, luck: float) -> str:
    """A mean difference in points, with its standard error.

    Args:
        differences: of two arms, [searches, seeds].
        luck: the variance of one search of one arm.
    """
    by_seed = differences.mean(axis=0)
    variance = by_seed.var(ddof=1) / len(by_seed) + 2 * luck / len(differences)
    return f"{POINTS * by_seed.mean():+.2f} ± {POINTS * math.sqrt(variance):.2f}"


def _edge(space: Range | float, value: float) -> str:
    if not isinstance(space, Range):
        return ""
    share = space.share_of(value)
    return " (edge)" if min(share, 1 - share) < _EDGE else ""
