"""Every public function that no battery has, and every class, beside the reference of its name.

Both are called alike: with numbers of the normal law, with equal numbers that are also thresholds,
with a NaN, with labels out of range, and with examples that do not count. So a new function needs
a case and a reference, and no test.
"""

import functools
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import topk_jax
from tests import reference
from tests.cases import CASES_WITH_HEADS, losses, operators
from tests.cases.calls import (
    NUM_CLASSES,
    NUM_EXAMPLES,
    arguments,
    assert_equal,
    drawn,
    referred,
    tied,
    variations,
)
from tests.cases.refusals import assert_refuses
from topk_jax import drift, heads, metrics, sets, taxonomy

IN_BATTERIES = {case.name for case in (*losses.BATTERY, *operators.BATTERY)}
# The network takes long to compile; a battery has one, and `relaxed_ranks` has a way without.
NETWORKS = ("odd_even",)
CASES = [
    case
    for case in CASES_WITH_HEADS
    if case.name not in IN_BATTERIES and case.variant not in NETWORKS
]
CLASSES = [
    drift.AdaptiveQuantile,
    drift.CoverageTest,
    drift.JumperMartingale,
    drift.OnlineRanks,
    heads.LinearHead,
    metrics.Tally,
    sets.AverageKCalibrator,
    taxonomy.Taxonomy,
]
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def compiled(case):
    """The values, and the gradient of their sum weighted by `shares`."""
    parameters, first = case.resolved(NUM_CLASSES), next(iter(case.arrays), None)
    function = functools.partial(case.function, **parameters)
    if not case.slopes:
        return lambda shares, given: (function(**given), None)

    @jax.jit
    def computed(shares, given):
        values, pull = jax.vjp(lambda array: function(**given | {first: array}), given[first])
        return values, pull(shares.astype(values.dtype))[0]

    return computed


@every_case
def test_a_function_is_its_reference(case):
    compute, refer = compiled(case), referred(case)
    with np.errstate(all="ignore"):
        for variation in variations(case):
            given = arguments(case, variation(case))
            theirs = refer(**given)
            shares = np.random.default_rng(4).normal(size=np.shape(theirs)) if case.slopes else 0
            ours, slope = compute(shares, given)
            assert_equal(ours, theirs)
            if variation is tied and "error" in case.parameters and not case.slopes:
                for error in (0.0, 0.1, 0.25):
                    ours = case.function(**given, **case.resolved(NUM_CLASSES) | {"error": error})
                    assert_equal(ours, refer(**given, error=error))
            if case.slopes and variation is drawn:
                first, array = next(iter(given.items()))
                direction = np.random.default_rng(5).normal(size=array.shape)
                above, below = (
                    (refer(**given | {first: array + step * direction}) * shares).sum()
                    for step in (1e-6, -1e-6)
                )
                along = (np.asarray(slope, np.float64) * direction).sum()
                np.testing.assert_allclose(along, (above - below) / 2e-6, rtol=1e-4, atol=1e-4)


@every_case
def test_a_wrong_argument_is_told_in_one_line(case):
    given = arguments(case, drawn(case)) | case.resolved(NUM_CLASSES)
    assert_refuses(case, given, NUM_CLASSES)


def test_sets_follow_a_drift_as_their_papers_write_it():
    rng = np.random.default_rng(0)
    # Quarters: scores of labels tie with those of the calibration.
    known, stream = (rng.integers(0, 9, size).astype(np.float32) / 4 for size in (15, 60))
    given = {"calibration_scores": known, "error": 0.125, "rates": (0.008, 0.064, 0.5)}
    ours, theirs = (room.AdaptiveQuantile.start(**given) for room in (drift, reference))

    @jax.jit
    def updated(state, score):
        state = state.update(score)
        return state, (state.errors, state.log_weights, state.current_error(), state.quantile())

    for score in (*stream, np.nan, np.inf, -np.inf):
        ours, found = updated(ours, score)
        theirs = theirs.update(score)
        wanted = theirs.errors, theirs.log_weights, theirs.current_error(), theirs.quantile()
        assert_equal(found, wanted, 1e-4)


@pytest.mark.parametrize(
    ("name", "given", "outcomes"),
    [
        ("CoverageTest", {"error": 0.25}, np.arange(40) % 9 > 4),
        ("JumperMartingale", {}, [*np.linspace(0.5, 0.01, 40), np.nan, 1.0, 0.0]),
    ],
)
def test_wealth_is_that_of_the_formula(name, given, outcomes):
    ours, theirs = (getattr(room, name).start(**given) for room in (drift, reference))
    update = jax.jit(lambda state, outcome: state.update(outcome))
    for outcome in outcomes:
        ours, theirs = update(ours, outcome), theirs.update(outcome)
    assert ours.wealth.count == theirs.wealth.count
    assert_equal(jnp.exp(ours.wealth.log_value()), theirs.wealth.values[-1], 1e-4)
    peak = max(theirs.wealth.values)
    assert peak > 2
    for delta in (1.01 / peak, 0.99 / peak):
        assert ours.rejects(delta=delta) == theirs.rejects(delta=delta) == (delta > 1 / peak)


def test_ranks_of_a_stream_are_counts():
    edges = np.array([0.25, 0.5, 1.0], np.float32)
    ours, theirs = (room.OnlineRanks.start(edges=edges) for room in (drift, reference))
    update = jax.jit(lambda state, score: state.update(score, uniform=0.25))
    for score in (0.5, 0.25, 0.75, np.nan, np.inf, 0.5, -1.0, 1.0):
        (ours, p_value), (theirs, expected) = (
            update(ours, score),
            theirs.update(score, uniform=0.25),
        )
        assert_equal((p_value, ours.counts), (expected, theirs.counts))


def test_a_stream_of_batches_has_the_threshold_of_all():
    batches = tied(None)["probabilities"].reshape(4, 3, NUM_CLASSES)
    both = [room.AverageKCalibrator(2.5, NUM_EXAMPLES) for room in (sets, reference)]
    for batch in batches:
        for one in both:
            one.update(batch)
    assert both[0].threshold() == both[1].threshold()


def test_a_taxonomy_is_its_paths():
    paths = ["ab", "acd", "ace", "f", "gh", "ijk"]
    ours, theirs = (room.Taxonomy.from_paths(paths_of(paths)) for room in (taxonomy, reference))
    for name in ("names", "parents", "num_nodes", "num_classes", "depth"):
        assert getattr(ours, name) == getattr(theirs, name)
    for name in ("ancestors", "heights", "sizes"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))


def paths_of(paths):
    return [tuple(path) for path in paths]


def test_no_public_function_is_left_out():
    # Rules have a battery of their own, over their registry.
    rooms = (getattr(topk_jax, name) for name in topk_jax.__all__ if name != "rules")
    public = [
        f"{room.__name__.partition('.')[2]}.{name}"
        for room in rooms
        if isinstance(room, ModuleType)
        for name in room.__all__
    ]
    classes = [f"{one.__module__.split('.')[1]}.{one.__name__}" for one in CLASSES]
    cases = {case.public for case in CASES_WITH_HEADS}
    assert sorted(public) == sorted([*cases, *classes])
