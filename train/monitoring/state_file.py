"""The file that a monitor keeps: what it holds sets to, what it counted, and how far it read."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from train.foundation import fields, files, json_files, shapes
from train.foundation.errors import UserError
from train.monitoring.monitor import Curve, Monitor
from train.monitoring.outcome_lines import Place
from train.monitoring.promise import Promise
from train.monitoring.stream_tests import StreamTests

_COUNT = fields.integer(0, 2**53)
_SHAPE = shapes.record(
    {
        "promise": shapes.record(
            {
                "run": shapes.string,
                "rule": fields.text(),
                "coverage": fields.Number(above=0, below=1),
                "calibrated_on": fields.optional(fields.integer(1)),
                "delta": fields.Number(above=0, below=1),
            },
            # A state of an earlier version does not have it.
            {"groups": fields.optional(fields.Number(at_least=1))},
        ),
        "place": shapes.record({"lines": _COUNT, "bytes": _COUNT, "digest": shapes.string}),
        "total_size": _COUNT,
        "broken_at": fields.optional(fields.integer(1)),
        "changed_at": fields.optional(fields.integer(1)),
        "curve": shapes.record(
            {
                "step": fields.integer(1),
                "points": shapes.list_of(shapes.list_of(shapes.NUMBER, at_least=4)),
            }
        ),
        "tests": shapes.list_of(shapes.anything),
    }
)
_WHAT = "the state of a monitor"


def read(path: Path) -> tuple[Monitor, Place] | None:
    """The monitor in a file, and what was counted; None if there is no such file.

    Raises:
        UserError: it is something else.
    """
    try:
        plain = json_files.read(path, _SHAPE, _WHAT)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"--state {path} cannot be read: {error.strerror}") from error
    except UserError as error:
        raise error.within("--state: ") from error
    try:
        tests = StreamTests.from_plain(plain["tests"])
    except ValueError as error:
        raise UserError(f"--state: {path} is not {_WHAT}: {error}") from error
    points = np.array(plain["curve"]["points"], float).reshape(-1, 4)
    monitor = Monitor(
        _made(Promise, plain["promise"]),
        tests,
        total_size=plain["total_size"],
        broken_at=plain["broken_at"],
        changed_at=plain["changed_at"],
        curve=Curve(plain["curve"]["step"], points),
    )
    return monitor, _made(Place, plain["place"])


def _made(kind: Any, plain: dict[str, Any]) -> Any:
    names = plain.keys() & {field.name for field in dataclasses.fields(kind)}
    return kind(**{name: plain[name] for name in names})


def write(path: Path, monitor: Monitor, place: Place) -> None:
    """Replaces the file: a process that is killed leaves the old content or the new one."""
    content = {
        "promise": dataclasses.asdict(monitor.promise),
        "place": dataclasses.asdict(place),
        "total_size": monitor.total_size,
        "broken_at": monitor.broken_at,
        "changed_at": monitor.changed_at,
        "curve": {"step": monitor.curve.step, "points": monitor.curve.points.tolist()},
        "tests": monitor.tests.to_plain(),
    }
    files.write_whole(path, json_files.sealed(content))
