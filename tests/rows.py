"""Which rows of a parametrized test run: some in every run, all of them nightly.

`make test-endurance` sets the variable. A product of parameters repeats one proof many times; a
few of its rows notice what breaks it.
"""

import os
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import pytest

_EVERY_ROW = "TOPK_JAX_EVERY_ROW"
Row = TypeVar("Row")


def rows(usual: Iterable[Row], others: Iterable[Row] = ()) -> Sequence[Row]:
    """The rows of a test: the usual ones, and the others too where every row is wanted."""
    return [*usual, *(others if os.environ.get(_EVERY_ROW) else ())]


def some_cases(cases: Iterable[Any], names: Sequence[str]) -> pytest.MarkDecorator:
    """The parameter `case`: the cases of these names, and the others where every row is wanted."""
    usual = [case for case in cases if case.name in names]
    chosen = rows(usual, [case for case in cases if case.name not in names])
    return pytest.mark.parametrize("case", chosen, ids=lambda case: case.name)
