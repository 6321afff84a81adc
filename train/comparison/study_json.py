"""A study for other programs: its file, every run of it, the hits, and the contrasts."""

import base64
import dataclasses
from typing import Any

import numpy as np

from train.comparison.study_results import ArmNumbers, ContrastNumbers, StudyNumbers
from train.evaluation.metric import Metric
from train.series.candidates import Drawn
from train.series.parameters import Choice, Parameter
from train.series.planner import Tuned
from train.workdir.runs import Run, identity_without_seed

# What is taken from results.json as it is, where a run has it: not every data set has a best
# classifier that is known, for one.
_OF_RESULTS = (
    "best_epoch",
    "epoch_seconds",
    "num_parameters",
    "temperature",
    "bayes",
    "bayes_balanced_test",
)


def to_plain(numbers: StudyNumbers) -> dict[str, Any]:
    """All numbers as plain JSON types, as `results.json` has them: accuracies are in [0, 1]."""
    study = numbers.study
    return {
        "study": {"file": study.file, "sha256": study.sha256, "content": study.content},
        "select_by": study.select_by.name,
        "split": study.split,
        "versions": _versions(numbers),
        "labels": None if numbers.labels is None else _labels(numbers.labels),
        "arms": [_arm(numbers, name, arm) for name, arm in numbers.arms.items()],
        "contrasts": [_contrast(contrast) for contrast in numbers.contrasts],
        "runs_to_go": numbers.to_go,
    }


def _versions(numbers: StudyNumbers) -> dict[str, list[str]]:
    """The versions that the runs of the selected candidates were made with."""
    found: dict[str, dict[str, None]] = {}
    for arm in numbers.arms.values():
        for run in arm.finals.finished.values():
            for name, version in run.results.get("versions", {}).items():
                found.setdefault(name, {})[version] = None
    return {name: list(versions) for name, versions in found.items()}


def _arm(numbers: StudyNumbers, name: str, arm: ArmNumbers) -> dict[str, Any]:
    study, finals, search = numbers.study, arm.finals, arm.arm.search
    tuned = finals.tuned
    wanted = [
        contrast.metric for contrast in study.contrasts if name in (contrast.first, contrast.second)
    ]
    return {
        "name": name,
        "config": arm.arm.recipe.argument,
        "fields": dict(arm.arm.recipe.overrides),
        "space": {one.name: _parameter(one) for one in (search.space if search else ())},
        "candidates": _candidates(tuned),
        "extensions": _extensions(tuned.drawn),
        "finalists": list(tuned.finalists),
        "selected": None if tuned.fields is None else dict(tuned.fields),
        "configuration": next(
            (identity_without_seed(run.config) for run in finals.finished.values()), None
        ),
        "runs": [
            _run(seed, run, study.split, study.select_by) for seed, run in finals.ended.items()
        ],
        "hits": {
            metric.name: _hits(arm.hits(metric, len(numbers.labels)))
            for metric in dict.fromkeys(wanted)
            if numbers.labels is not None and finals.ended
        },
    }


def _candidates(tuned: Tuned) -> list[dict[str, Any]]:
    return [
        {
            "fields": dict(fields),
            "scores": {str(seed): trial.score for seed, trial in trials.items()},
            "training_seconds": {
                str(seed): None if trial.run is None else sum(trial.run.results["epoch_seconds"])
                for seed, trial in trials.items()
            },
        }
        for fields, trials in zip(tuned.drawn.candidates, tuned.trials, strict=True)
    ]


def _extensions(drawn: Drawn) -> list[dict[str, Any]]:
    return [
        {
            "first_candidate": one.first,
            "ranges": {
                name: {"side": one.sides[name], **_parameter(parameter)}
                for name, parameter in one.ranges.items()
            },
        }
        for one in drawn.extensions
    ]


def _parameter(parameter: Parameter) -> dict[str, Any]:
    if isinstance(parameter, Choice):
        return {"values": list(parameter.values)}
    limits = {"least": parameter.least, "most": parameter.most}
    return {
        "from": parameter.start,
        "to": parameter.end,
        "scale": parameter.scale,
        **{name: limit for name, limit in limits.items() if limit is not None},
    }


def _run(seed: int, run: Run | None, split: str, select_by: Metric) -> dict[str, Any]:
    if run is None:
        return {"seed": seed, "diverged": True}
    return {
        "seed": seed,
        "diverged": False,
        "folder": run.workdir.name,
        "metrics": dict(run.results[split]),
        **{name: run.results[name] for name in _OF_RESULTS if name in run.results},
        # For the time to an accuracy.
        "validation_by_epoch": _by_epoch(run, select_by),
    }


def _by_epoch(run: Run, metric: Metric) -> list[float | None]:
    return [line.get(metric.name) for line in run.metrics() if line.get("split") == "validation"]


def _hits(hits: np.ndarray) -> dict[str, Any]:
    return {
        "shape": list(hits.shape),
        "packed_bits": _base64(np.packbits(hits, axis=None)),
    }


def _labels(labels: np.ndarray) -> dict[str, Any]:
    return {"shape": list(labels.shape), "little_endian_int32": _base64(labels.astype("<i4"))}


def _base64(array: np.ndarray) -> str:
    return base64.b64encode(array.tobytes()).decode()


def _contrast(contrast: ContrastNumbers) -> dict[str, Any]:
    planned = contrast.planned
    numbers = None if contrast.numbers is None else dataclasses.asdict(contrast.numbers)
    return {
        "name": planned.name,
        "first": planned.first,
        "second": planned.second,
        "metric": planned.metric.name,
        "primary": planned.primary,
        "equivalence_margin": planned.equivalence,
        "numbers": numbers,
        "p_value_holm": contrast.adjusted,
        "p_value_equivalence": contrast.equivalence,
    }
