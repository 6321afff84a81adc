"""The numbers that commands report, computed a second time, by NumPy from the scores."""

import json
import re

import numpy as np
import pytest

from tests import reference

# What differs between two runs that are the same: times, and checksums of files that have them.
_TIMES = ("epoch_seconds", "examples_per_second", "data_wait_share", "seconds")
_SUMS = ("sha256", "digests")


def read(path):
    """The arrays of a file of scores."""
    with np.load(path) as written:
        return dict(written)


def error_of(coverage):
    """1 minus a coverage that was asked for, as a decimal number."""
    return round(1 - float(coverage), 12)


def means(hits, labels, class_counts):
    """The mean over the examples, over the classes, and over those of each shot."""
    by_shot = reference.shot_accuracy(hits, labels, class_counts=class_counts)
    macro = reference.macro_accuracy(hits, labels, num_classes=len(class_counts))
    return {"": hits.mean(), "macro_": macro, **{f"{shot}_": by_shot[shot] for shot in by_shot}}


def metrics(scores, labels, class_counts, thresholds):
    """The accuracies and set sizes of a report, with the thresholds of average-K by their K."""
    found = {}
    for k, threshold in thresholds.items():
        for rule, hits in (
            ("top", reference.top_k_hits(scores, labels, k=k)),
            ("average", reference.threshold_hits(scores, labels, threshold)),
        ):
            for prefix, mean in means(hits, labels, class_counts).items():
                found[f"{prefix}{rule}_{k}_accuracy"] = mean
        chosen = reference.threshold_set(scores, threshold)
        found[f"average_{k}_set_size"] = chosen.sum(axis=-1).mean()
    return found


def of_sets(chosen, labels, class_counts):
    """What a report has of sets [n, L]."""
    found = {
        f"{prefix}coverage": mean
        for prefix, mean in means(hits_of(chosen, labels), labels, class_counts).items()
    }
    sizes = chosen.sum(axis=-1)
    return {**found, "set_size": sizes.mean(), "empty_share": (sizes == 0).mean()}


def hits_of(chosen, labels):
    """Which sets have their label."""
    return chosen[np.arange(len(labels)), labels]


def check(reported, expected, *, names=None, slack=0.0):
    """Each expected number is reported; `slack` is how far rounding may move one of them."""
    for name in expected if names is None else names:
        value = reported[name]
        if value is None:
            assert np.isnan(expected[name]), name
        else:
            assert value == pytest.approx(expected[name], rel=2e-6, abs=slack + 1e-9), name


def numbers(line):
    """The numbers of a printed line."""
    return [float(one.replace(",", "")) for one in re.findall(r"\d[\d,]*\.?\d*", line)]


def lines_of(workdir):
    """The lines of the metrics of a run, without the times."""
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    return [_without_times(json.loads(line)) for line in lines]


def _without_times(values):
    return {name: value for name, value in values.items() if name not in (*_TIMES, *_SUMS)}


def check_ended_alike(digits, workdir):
    """A run is to the last bit the one that was not broken off."""
    found = json.loads((workdir / "results.json").read_text())
    expected = digits.results()
    assert json.dumps(_without_times(found)) == json.dumps(_without_times(expected))
    assert lines_of(workdir) == lines_of(digits.workdir)
    outcomes, unbroken = (read(path / "outcomes_test.npz") for path in (workdir, digits.workdir))
    for name, array in unbroken.items():
        np.testing.assert_array_equal(outcomes[name], array)
