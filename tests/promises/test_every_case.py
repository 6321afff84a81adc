"""Every public function that no battery has, and every class, beside the reference of its name.

Both are called alike: with numbers of the normal law, with equal numbers that are also thresholds,
with a NaN, with labels out of range, and with examples that do not count. So a new function needs
a case and a reference, and no test.
"""

import functools
import inspect
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import topk_jax
from tests import reference
from tests.cases import CASES_WITH_HEADS, losses, operators
from tests.cases.case import draw
from topk_jax import drift, heads, metrics, sets, taxonomy

NUM_EXAMPLES, NUM_CLASSES, BROKEN = 12, 8, 5
IN_BATTERIES = {case.name for case in (*losses.BATTERY, *operators.BATTERY)}
# Networks take long to compile; a battery has one, and `relaxed_ranks` has two ways without.
NETWORKS = ("bitonic", "odd_even")
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
    heads.CosineHead,
    heads.LinearHead,
    metrics.Tally,
    sets.AverageKCalibrator,
    taxonomy.Taxonomy,
]
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def drawn(case):
    return draw((NUM_EXAMPLES,), NUM_CLASSES)


def tied(case):
    """Multiples of 1/64, many of them equal."""
    rng, arrays = np.random.default_rng(3), drawn(case)
    counts = rng.multinomial(64, np.full(NUM_CLASSES, 1 / NUM_CLASSES), NUM_EXAMPLES)
    shares = counts.astype(np.float32) / 64
    logits = rng.integers(-2, 3, (2, *shares.shape)).astype(np.float32)
    return arrays | {
        "logits": logits[0],
        "others": logits[1],
        "probabilities": shares,
        "log_probabilities": np.log(np.maximum(shares, 1 / 64)),
        "outliers": rng.integers(0, 5, NUM_EXAMPLES).astype(np.float32) / 4,
    }


def with_nan(case):
    """One number of one example of the first array."""
    arrays = tied(case)
    array = arrays[next(iter(case.arrays.values()))]
    array[(BROKEN, 1)[: array.ndim]] = np.nan
    return arrays


def out_of_range(case):
    arrays = tied(case)
    for name in ("labels", "groups"):
        arrays[name][[1, 7]] = -1, NUM_CLASSES
    return arrays


def left_out(case):
    """Some examples do not count, whatever they are: NaN, with a label of padding."""
    arrays = tied(case)
    counts = arrays["counts"] = np.arange(NUM_EXAMPLES) % 3 != 1
    first = arrays[next(iter(case.arrays.values()))]
    if first.dtype.kind == "f":
        first[~counts] = np.nan
    arrays["labels"][~counts] = -100
    return arrays


def variations(case):
    yield from (drawn, tied)
    names = [*case.arrays.values()]
    if names and drawn(case)[names[0]].dtype.kind == "f":
        yield with_nan
    if {"labels", "groups"} & {*names}:
        yield out_of_range
    if case.takes("where") and "where" not in case.arrays:
        yield left_out


def arguments(case, arrays):
    where = {"where": "counts"} if "counts" in arrays else {}
    return {argument: arrays[name] for argument, name in (case.arrays | where).items()}


def referred(case):
    """The reference of the case's name. It gets no function of ours, but its own of that name."""
    room = reference.heads if case.public.startswith("heads.") else reference
    parameters = {name: _own(value) for name, value in case.resolved(NUM_CLASSES).items()}
    return functools.partial(getattr(room, case.public.partition(".")[2]), **parameters)


def _own(value):
    if isinstance(value, functools.partial):
        return functools.partial(_own(value.func), **value.keywords)
    return getattr(reference, value.__name__) if inspect.isfunction(value) else value


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


def readings(tree):
    """The numbers of a result, also those that its methods say."""
    leaves = jax.tree.leaves(tree)
    if hasattr(tree, "macro_mean"):
        leaves.append(tree.mean())
        if np.ndim(tree.count):
            groups = tree.shot_means(class_counts=np.geomspace(500, 5, NUM_CLASSES).astype(int))
            leaves.extend([tree.macro_mean(), *(groups[name] for name in sorted(groups))])
    return [np.asarray(leaf, np.float64) for leaf in leaves]


def assert_equal(ours, theirs, tolerance=1e-5):
    for one, other in zip(readings(ours), readings(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance / 5)


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
    wrong = [{name: "four"} for name in case.arrays]
    for name, allowed in case.ranges.items():
        # Without arrays, any number of classes is right.
        if name in case.parameters and case.arrays:
            wrong.extend(one for one, _, _ in allowed.refusals(name, NUM_CLASSES))
    for changed in wrong:
        with pytest.raises((TypeError, ValueError)) as raised:
            case.function(**given | changed)
        assert all(name in str(raised.value) for name in changed)
        assert "\n" not in str(raised.value)


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
    rooms = (getattr(topk_jax, name) for name in topk_jax.__all__)
    public = [
        f"{room.__name__.partition('.')[2]}.{name}"
        for room in rooms
        if isinstance(room, ModuleType)
        for name in room.__all__
    ]
    classes = [f"{one.__module__.split('.')[1]}.{one.__name__}" for one in CLASSES]
    cases = {case.public for case in CASES_WITH_HEADS}
    # `Tally` is in the package's floor: topk_jax.metrics exports it.
    assert sorted(public) == sorted([*cases, *classes])
