"""The seed of the random trials, and their numbers at the end of the tests.

The trials are in `tests/train/chaos`. Their numbers come from the workers of pytest-xdist as
properties of the reports.
"""

import random
from collections import Counter
from typing import Any, cast

import pytest

OPTION = "--chaos-seed"
_DESTINATION = "chaos_seed"
# The property of a report: kind, number of trials, number of failures.
PROPERTY = "chaos"


def add_option(parser: pytest.Parser) -> None:
    parser.addoption(
        OPTION,
        dest=_DESTINATION,
        type=int,
        default=None,
        help="The seed of the random trials of tests/train/chaos; by default drawn anew.",
    )


def seed_of(config: pytest.Config) -> int:
    """The seed, which is the same in all workers of pytest-xdist."""
    of_worker = getattr(config, "workerinput", None)
    chosen: int = config.getoption(_DESTINATION) if of_worker is None else of_worker[_DESTINATION]
    return chosen


class ChaosReport:
    """Draws the seed if none is given, and prints it with the number of trials of each kind."""

    def __init__(self, config: pytest.Config) -> None:
        if config.getoption(_DESTINATION) is None:
            setattr(config.option, _DESTINATION, random.SystemRandom().randrange(2**32))
        self._seed = seed_of(config)
        self._trials: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        # A worker reads the command line again, which may have no seed.
        node.workerinput[_DESTINATION] = self._seed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            for name, value in report.user_properties:
                if name == PROPERTY:
                    kind, trials, failures = cast(tuple[str, int, int], value)
                    self._trials[kind] += trials
                    self._failures[kind] += failures

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._trials:
            return
        terminalreporter.section("random trials")
        for kind, number in sorted(self._trials.items()):
            terminalreporter.line(f"{number:6}  {self._failures[kind]} failures  {kind}")
        total, failed = self._trials.total(), self._failures.total()
        terminalreporter.line(f"{total:6}  {failed} failures  in all")
        terminalreporter.line(
            f"to repeat them: PYTEST_ADDOPTS={OPTION}={self._seed} make test-long"
        )
