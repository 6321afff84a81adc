"""Outside of `jit`, no public function compiles anything twice."""

import contextlib
import functools
import inspect

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
import pytest

from tests.cases import CASES_WITH_HEADS
from tests.cases.case import draw
from topk_jax import drift, metrics

NUM_EXAMPLES = NUM_CLASSES = 8
# Static numbers that determine the shapes of a program: how many candidates there are, which rank
# a quantile has.
OF_SHAPES = {
    ("losses.average_k", "k"),
    ("losses.average_k_candidates", "k"),
    ("losses.conformal_training", "error"),
}


@contextlib.contextmanager
def compilations():
    """The stages of compilation that run meanwhile, also of what the persistent cache has."""
    stages = []

    def listen(event, _, **details):
        if event.startswith("/jax/core/compile/"):
            stages.append((event, details.get("fun_name")))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield stages
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def drawn():
    return jax.tree.map(jnp.asarray, draw((NUM_EXAMPLES,), NUM_CLASSES))


def numbers(case):
    """The parameters of the case that are real numbers, with those that it has by default."""
    signature = inspect.signature(case.function).parameters
    parameters = {name: one.default for name, one in signature.items()}
    parameters |= case.resolved(NUM_CLASSES)
    return {
        name: value
        for name, value in parameters.items()
        if (case.public, name) not in OF_SHAPES
        and (isinstance(value, float) or getattr(value, "dtype", None) == np.float32)
    }


def others(value):
    """Other values of a parameter, of which one is allowed."""
    yield value / 8
    yield value * 1.25
    if np.ndim(value):
        yield np.flip(value)


@pytest.mark.parametrize(
    "case",
    # A function of a user's function is compiled in the user's `jit`.
    [case for case in CASES_WITH_HEADS if case.public != "heads.in_blocks"],
    ids=lambda case: case.name,
)
def test_a_function_compiles_only_once(case):
    arrays = drawn()
    given = {argument: arrays[name] for argument, name in case.arrays.items()}
    call = functools.partial(case.function, **given, **case.resolved(NUM_CLASSES))
    jax.block_until_ready(call())
    with compilations() as stages:
        call()
        for name, value in numbers(case).items():
            assert any(accepts(call, name, other) for other in others(value)), name
    assert not stages


def observed():
    """What the classes of the library make of two outcomes."""
    hits = jnp.array([True, False])
    counts = metrics.tally_by_class(hits, jnp.array([0, 1]), num_classes=2)
    counts = sum([counts, counts])
    yield counts.mean(), counts.macro_mean(), counts.macro_mean(jnp.array([True, False]))
    quantile = drift.AdaptiveQuantile.start(jnp.array([0.25, 0.5]), error=0.1)
    coverage, ranks = drift.CoverageTest.start(error=0.1), drift.OnlineRanks.start(edges=[0.5])
    martingale = drift.JumperMartingale.start()
    for score, missed in ((0.25, True), (0.75, False)):
        quantile, coverage = quantile.update(score), coverage.update(missed)
        ranks, p_value = ranks.update(score, uniform=0.5)
        martingale = martingale.update(p_value)
        yield quantile.quantile(), quantile.current_error()
        yield coverage.rejects(delta=0.01), martingale.rejects(delta=0.01)


def test_states_and_tallies_compile_only_once():
    jax.block_until_ready([*observed()])
    with compilations() as stages:
        assert [*observed()]
    assert not stages


def accepts(call, name, value):
    try:
        call(**{name: value})
    except ValueError:
        return False
    return True
