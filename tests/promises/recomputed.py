"""The numbers that commands report, computed a second time, by NumPy from the scores."""

import json
import re

import numpy as np
import pytest

from tests import reference

# What differs between two runs that are the same.
_TIMES = ("epoch_seconds", "examples_per_second", "data_wait_share", "seconds")


def read(path):
    """The arrays of a file of scores."""
    with np.load(path) as written:
        return dict(written)


def error_of(coverage):
    """1 minus a coverage that was asked for, as a decimal number."""
    return round(1 - float(coverage), 12)


def row(chosen, labels, class_counts):
    """What a report has of sets [n, L]."""
    hits, sizes = hits_of(chosen, labels), chosen.sum(axis=-1)
    by_class = reference.tally_by_class(hits, labels, num_classes=len(class_counts))
    groups = reference.shot_groups(class_counts)
    by_shot = {shot: by_class.macro_mean(classes) for shot, classes in groups.items()}
    return {
        "coverage": hits.mean(),
        "macro": by_class.macro_mean(),
        # A report is without the shots that have no example.
        **{shot: mean for shot, mean in by_shot.items() if not np.isnan(mean)},
        "set_size": sizes.mean(),
        "empty": (sizes == 0).mean(),
    }


def sets_of(text, scores, limit=None):
    """The sets of scores by a rule without limits, or from a smallest score on."""
    name, _, value = text.partition("=")
    if limit is not None:
        return scores >= np.float32(limit)
    if name == "top_k":
        return reference.top_k_set(scores, k=int(value))
    assert name == "adaptive"
    return reference.adaptive_set(scores, error=error_of(value))


def hits_of(chosen, labels):
    """Which sets have their label."""
    return chosen[np.arange(len(labels)), labels]


def check(reported, expected, *, names=None, slack=0.0):
    """Each expected number is reported; `slack` is how far rounding may move one of them."""
    for name in expected if names is None else names:
        close = pytest.approx(expected[name], rel=2e-6, abs=slack + 1e-9)
        assert reported[name] == close, name


def numbers(line):
    """The numbers of a printed line."""
    return [float(one.replace(",", "")) for one in re.findall(r"\d[\d,]*\.?\d*", line)]


def lines_of(workdir):
    """The lines of the metrics of a run, without the times."""
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    return [_without_times(json.loads(line)) for line in lines]


def _without_times(values):
    return {name: value for name, value in values.items() if name not in _TIMES}


def check_ended_alike(digits, workdir):
    """A run is to the last bit the one that was not broken off."""
    found = json.loads((workdir / "results.json").read_text())
    expected = digits.results()
    assert json.dumps(_without_times(found)) == json.dumps(_without_times(expected))
    assert lines_of(workdir) == lines_of(digits.workdir)
    outcomes, unbroken = (read(path / "outcomes_test.npz") for path in (workdir, digits.workdir))
    for name, array in unbroken.items():
        np.testing.assert_array_equal(outcomes[name], array)
