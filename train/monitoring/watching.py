"""Counts the outcomes that were added to a file, and keeps the state after each part of them."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from train.data import grouping
from train.foundation.console import show_line
from train.foundation.errors import UserError
from train.foundation.spelling import flags_for_fields
from train.monitoring import promise, state_file
from train.monitoring.monitor import Monitor
from train.monitoring.outcome_lines import BEGIN, Outcome, opened
from train.monitoring.stream_tests import StreamTests
from train.workdir import run_files, runs

# The seconds between two looks at a file that grows.
_PAUSE = 1.0


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the flags ask.

    Attributes:
        workdir: the folder of the finished run.
        outcomes: the file of the outcomes; None for standard input.
        state: the file of the state.
        coverage: the coverage that sets without a promise are held to.
        calibrated_on: the number of examples, or of groups of these, that the sets are calibrated
            on; None for the validation examples.
        delta: the probability of a false alarm.
        follow: whether to wait for more outcomes, until an alarm.
    """

    workdir: Path
    outcomes: Path | None
    state: Path
    coverage: float | None
    calibrated_on: int | None
    delta: float
    follow: bool

    def promise(self, results: Mapping[str, Any], rule: str) -> promise.Promise:
        """The promise of the sets of a rule of the run with these results."""
        return promise.of_rule(
            results,
            run_files.read_calibration(self.workdir),
            rule,
            coverage=self.coverage,
            calibrated_on=self.calibrated_on,
            delta=self.delta,
        )


def watch(asked: Asked) -> Monitor:
    """The monitor after all outcomes that are there.

    Raises:
        UserError: the state is of something else, or a line is not an outcome of the run. What was
            counted before that line is kept.
    """
    _, results = runs.read_finished(asked.workdir)
    classes = run_files.read_classes(asked.workdir)
    kept = state_file.read(asked.state)
    monitor, place = (None, BEGIN) if kept is None else kept
    if monitor is not None:
        _check(asked, asked.promise(results, monitor.promise.rule), monitor.promise)
    rule = None if monitor is None else monitor.promise.rule
    with opened(asked.outcomes, place, classes.names, rule) as outcomes:
        # What is there at first; later lines may be few.
        named: list[Outcome] | None = []
        while True:
            for part in outcomes.read():
                if named is not None:
                    named += [one for one in part if one.name is not None]
                if not part and monitor is None:
                    continue
                if monitor is None:
                    promised = asked.promise(results, part[0].rule)
                    monitor = Monitor(promised, StreamTests.start(promised.allowed_error()))
                monitor = monitor.add(part)
                # The reading of standard input cannot be resumed at a place.
                state_file.write(
                    asked.state, monitor, place if asked.outcomes is None else outcomes.place
                )
                if asked.follow and part:
                    show_line(monitor.in_words()[1])
            if named is not None:
                _warn_of_groups(asked, named)
                named = None
            if not asked.follow or (monitor is not None and monitor.is_alarmed):
                break
            time.sleep(_PAUSE)
    if monitor is None:
        raise UserError(f"--outcomes {asked.outcomes or '-'} has no outcomes yet")
    return monitor


def _warn_of_groups(asked: Asked, outcomes: Sequence[Outcome]) -> None:
    """Warns of likely groups in the names of the examples of outcomes."""
    _, labels = np.unique([one.label for one in outcomes], return_inverse=True)
    names = [one.name or "" for one in outcomes]
    with flags_for_fields({"config.dataset.group": "--group"}):
        where, named_by = f"--outcomes {asked.outcomes or '-'}", "train.predict {flag}"
        grouping.warn_of_likely(where, names, labels, named_by)


def _check(asked: Asked, now: promise.Promise, kept: promise.Promise) -> None:
    """Refuses the state of another run, or of other flags."""
    if now.run != kept.run:
        raise UserError(f"--state {asked.state} is of another run than {asked.workdir}")
    for flag, before, after in (
        ("coverage", kept.coverage, now.coverage),
        ("calibrated_on", kept.independent, now.independent),
        ("delta", kept.delta, now.delta),
    ):
        if before != after:
            raise UserError(
                f"--state {asked.state} is of --{flag}={before}; for {after}, give another --state"
            )
