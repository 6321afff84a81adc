"""Which rows of a parametrized test run: some in every run, all of them nightly.

`make test-endurance` sets the variable. A product of parameters repeats one proof many times; a
few of its rows notice what breaks it.
"""

import os
from collections.abc import Iterable, Sequence
from typing import TypeVar

_EVERY_ROW = "TOPK_JAX_EVERY_ROW"
Row = TypeVar("Row")


def rows(usual: Iterable[Row], others: Iterable[Row] = ()) -> Sequence[Row]:
    """The rows of a test: the usual ones, and the others too where every row is wanted."""
    return [*usual, *(others if os.environ.get(_EVERY_ROW) else ())]
