"""The random trials: their seed, which a failure names."""

import random
from collections.abc import Callable

import pytest

from tests.endurance.fuzz.trials import Trials


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--trial-seed",
        type=int,
        default=None,
        help="The seed of the random trials; by default drawn anew.",
    )


@pytest.fixture(scope="session")
def trial_seed(pytestconfig: pytest.Config) -> int:
    """The seed of the random trials."""
    seed: int | None = pytestconfig.getoption("--trial-seed")
    return random.SystemRandom().randrange(2**32) if seed is None else seed


@pytest.fixture
def trials_of(trial_seed: int) -> Callable[[str], Trials]:
    """A kind to its trials; the test calls `check` when it has made them."""
    return lambda kind: Trials(kind, trial_seed)
