"""The numbers of a table for other programs."""

from typing import Any

from train.papers.tables.collecting import Collected, Number, Values
from train.papers.tables.planning import Tuned


def to_json(collected: Collected) -> dict[str, Any]:
    """The table, its numbers and its tunings as plain JSON types."""
    table = collected.table
    return {
        "table": table.number,
        "on": table.on,
        "title": table.title,
        "unit": "per cent" if table.is_in_per_cent else "as it is",
        "interval": "95 %, Student's t over seeds",
        "seeds": list(collected.seeds),
        "changed_in_all_runs": list(collected.overrides),
        "cells": [
            {"row": row, "column": column, **_number_to_json(number)}
            for (row, column), number in collected.numbers.items()
        ],
        "best": {
            column: {"value": value, "shots": list(shots)}
            for column, (value, shots) in collected.best.items()
        },
        "tuning": [_tuned_to_json(tuned) for tuned in collected.tuned],
        "runs_to_go": collected.to_go,
    }


def _number_to_json(number: Number) -> dict[str, Any]:
    cell, published = number.cell, number.cell.published
    recipe = number.recipe or cell.recipe
    return {
        "config": recipe.file,
        "overrides": dict(recipe.overrides),
        "metric": cell.metric.to_json(),
        **_values_to_json(number.values),
        "shots": {shot: _values_to_json(values) for shot, values in number.shots.items()},
        "published": None
        if published is None
        else {
            "value": published.value,
            "half_width": published.half_width,
            "shots": list(published.shots),
        },
        "differs": number.differs,
        "runs_to_go": number.to_go if number.is_tuned else None,
        "diverged": list(number.diverged),
    }


def _values_to_json(values: Values) -> dict[str, Any]:
    summary = values.summary
    return {
        "values": {str(seed): value for seed, value in values.by_seed.items()},
        "mean": None if summary is None else summary.mean,
        "half_width": None if summary is None else summary.half_width,
    }


def _tuned_to_json(tuned: Tuned) -> dict[str, Any]:
    tuning = tuned.tuning
    return {
        "config": tuning.recipe.file,
        "overrides": dict(tuning.recipe.overrides),
        "metric": tuning.metric.name,
        "split": "validation",
        "seeds": list(tuning.seeds),
        "candidates": [
            {"overrides": dict(candidate), "values": list(scores)}
            for candidate, scores in zip(tuning.candidates, tuned.scores, strict=True)
        ],
        "selected": None if tuned.selected is None else dict(tuning.candidates[tuned.selected]),
        "runs_to_go": tuned.to_go,
    }
