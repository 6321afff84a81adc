"""What every argument of every public function refuses: one list for each name of an argument."""

import inspect
from typing import Any

import numpy as np
import pytest

from tests.cases.case import Case

TEXT = ("four",)
# A number of things is a static integer, at least 1.
NUMBER: tuple[Any, ...] = (0, 1.5, "2", np.full(3, 2))
CHOICE = ("nothing", 3)
# None are arrays of a batch, or numbers with a range: those are in the cases.
WRONG: dict[str, tuple[Any, ...]] = {
    "authors": (*TEXT, np.zeros(99, int)),
    "axis": (9, 0.5),
    "block_size": NUMBER,
    "bound": (0, "1"),
    "by": CHOICE,
    "calibration_log_weights": (*TEXT, np.zeros(99)),
    "calibration_outlier_scores": (*TEXT, np.zeros((2, 2))),
    "calibration_scores": (*TEXT, np.zeros((2, 2)), np.zeros(2, int)),
    "conformity": CHOICE,
    "counted": CHOICE,
    "delta": (0, 1, "0.5"),
    "depth": (99, *NUMBER),
    "error": (1, -0.1, "0.1"),
    "few": (1.5,),
    "head": TEXT,
    "hinge": CHOICE,
    "k": (-1, 10**6, "2"),
    "key": (3,),
    "kind": CHOICE,
    "known_features": (*TEXT, np.zeros((2, 99))),
    "known_to": (*TEXT, np.zeros(2)),
    "level": (0, 1, "0.5"),
    "loss_matrix": (*TEXT, np.zeros((2, 2))),
    "many": (1.5,),
    "means": (*TEXT, np.zeros((2, 99))),
    "method": CHOICE,
    "names": NUMBER,
    "new_from": (*TEXT, np.zeros(2)),
    "noise": (*TEXT, np.zeros(3)),
    "num_candidates": NUMBER,
    "num_classes": NUMBER,
    "num_clusters": NUMBER,
    "num_examples": NUMBER,
    "num_groups": NUMBER,
    "num_labels": NUMBER,
    "num_nodes": NUMBER,
    "num_rounds": NUMBER,
    "num_samples": NUMBER,
    "num_steps": (-1, 1.5),
    "num_voters": NUMBER,
    "quantiles": (*TEXT, np.zeros(99)),
    "seen_once": (*TEXT, np.zeros(99, bool)),
    "sizes": (*TEXT, (0,), ()),
    "softmax_top_1": (1,),
    "swap": CHOICE,
    "taxonomy": TEXT,
    "threshold": (*TEXT, np.zeros(99)),
    "unpenalized_ranks": (-1, 0.5),
    "where": (np.ones(99, bool), np.ones(3)),
    "whitening": (*TEXT, np.zeros((2, 99))),
}
# What no value of its own is wrong for: an axis of a map, and a function.
ANYTHING = frozenset({"axis_name", "class_axis_name", "loss"})


def refusals(case: Case, given: dict[str, Any], num_classes: int) -> list[dict[str, Any]]:
    """Arguments of which each is refused, beside those that are given."""
    wrong = []
    for name in inspect.signature(case.function).parameters:
        values = list(WRONG.get(name, ()))
        if name in case.arrays:
            # A number for one function may be many for another.
            values = [] if WRONG.get(name) is NUMBER else values
            values += [*TEXT, *([np.asarray(given[name])[1:]] if _is_second(case, name) else [])]
        wrong += [{name: value} for value in values]
        # Without arrays any number of classes is right.
        if name in case.ranges and name in case.parameters and case.arrays:
            wrong += [{name: value} for value in case.ranges[name].refused(num_classes)]
    return [*wrong, *getattr(case, "refused", ())]


def _is_second(case: Case, name: str) -> bool:
    return name in [*case.arrays][1:] and case.arrays[name] not in ("key", "keys")


def assert_refuses(case: Case, given: dict[str, Any], num_classes: int) -> None:
    """Each in one line that names the argument."""
    for changed in refusals(case, given, num_classes):
        with pytest.raises((TypeError, ValueError)) as raised:
            case.function(**given | changed)
        message = str(raised.value)
        assert all(name in message for name in changed), (changed, message)
        assert "\n" not in message
