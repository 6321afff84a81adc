"""Damaged weights and images at the doors that read files of other people."""

import pytest

from tests.endurance.fuzz import blocks, fuzzed_views

NUMBERS = {"weights": 2000, "images": 2000}
NUM_VIEWS = 1000


@pytest.mark.parametrize("kind", NUMBERS)
def test_damaged_files_are_read_or_told(trials_of, kind):
    trials = trials_of(f"{kind} at their doors")
    tried = blocks.run(
        "tests.endurance.fuzz.fuzzed_doors", NUMBERS[kind], kind=kind, seed=trials.seed
    )
    for _, what, failure in tried:
        trials.add(what, failure)
    trials.check()
    assert trials.number == NUMBERS[kind]


def test_tensors_of_strangers_are_read_exactly_or_refused(trials_of):
    trials = trials_of(fuzzed_views.KIND)
    tried = blocks.run("tests.endurance.fuzz.fuzzed_views", NUM_VIEWS, seed=trials.seed)
    for _, what, failure in tried:
        trials.add(what, failure)
    trials.check()
    assert trials.number == NUM_VIEWS
