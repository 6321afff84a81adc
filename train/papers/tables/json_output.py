"""The numbers of a table for other programs."""

from typing import Any

from train.papers.tables.collecting import Number, TableNumbers
from train.series.planner import Search, Tuned


def to_json(numbers: TableNumbers) -> dict[str, Any]:
    """The table, its numbers and its searches as plain JSON types."""
    table, collected = numbers.table, numbers.collected
    return {
        "table": table.number,
        "on": table.on,
        "title": table.title,
        "unit": "per cent" if table.is_in_per_cent else "as it is",
        "interval": "95 %, Student's t over seeds",
        "seeds": list(numbers.seeds),
        "changed_in_all_runs": list(numbers.overrides),
        "cells": [
            {"row": row, "column": column, **_number_to_json(number)}
            for (row, column), number in numbers.numbers.items()
        ],
        "best": {
            column: {"value": value, "shots": list(shots)}
            for column, (value, shots) in numbers.best.items()
        },
        "tuning": [_search_to_json(*found) for found in collected.searches.items()],
        "runs_to_go": collected.to_go,
    }


def _number_to_json(number: Number) -> dict[str, Any]:
    cell, published, finals = number.cell, number.cell.published, number.finals
    recipe = finals.planned[0].recipe if finals.planned else cell.recipe
    return {
        "config": recipe.file,
        "overrides": dict(recipe.overrides),
        "metric": cell.metric.to_json(),
        **number.values.to_plain(),
        "shots": {shot: values.to_plain() for shot, values in number.shots.items()},
        "published": None
        if published is None
        else {
            "value": published.value,
            "half_width": published.half_width,
            "shots": list(published.shots),
        },
        "differs": number.differs,
        "runs_to_go": finals.to_go if finals.tuned.has_ended else None,
        "diverged": list(number.diverged),
    }


def _search_to_json(search: Search, tuned: Tuned) -> dict[str, Any]:
    return {
        "config": search.recipe.file,
        "overrides": dict(search.recipe.overrides),
        "metric": search.metric.name,
        "split": "validation",
        "seeds": list(search.seeds),
        "candidates": [
            {
                "overrides": dict(fields),
                "values": [trials[seed].score if seed in trials else None for seed in search.seeds],
            }
            for fields, trials in zip(tuned.drawn.candidates, tuned.trials, strict=True)
        ],
        "selected": None if tuned.fields is None else dict(tuned.fields),
        "runs_to_go": tuned.to_go,
    }
