"""The trials of a test, counted in the summary."""

from collections.abc import Callable, Iterator

import pytest

from tests import chaos_report
from tests.train.chaos.trials import Trials


@pytest.fixture
def trials_of(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Trials]]:
    """A kind to its trials; the test calls `check` when it has made them."""
    made: list[Trials] = []

    def make(kind: str) -> Trials:
        made.append(Trials(kind, chaos_report.seed_of(request.config)))
        return made[-1]

    yield make
    for one in made:
        values = (one.kind, one.number, len(one.failures))
        request.node.user_properties.append((chaos_report.PROPERTY, values))
