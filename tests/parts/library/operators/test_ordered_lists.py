"""Selections as accelerators make them: passes of ordered lists, and gradients by comparison."""

import functools

import jax
import numpy as np
import pytest

from tests.cases import losses as losses_cases
from tests.cases import operators as operators_cases
from tests.cases.case import draw
from tests.rows import rows
from topk_jax._classes import take_along
from topk_jax.operators._top_k import select_in_lists

SELECTING = [
    case for case in [*losses_cases.CASES, *operators_cases.CASES] if "k" in case.parameters
]
# What is compared in every run of the tests: a rank alone, noise, quadrature, two heads.
SOME = ("operators.top_k_sum", "losses.calibrated_top_k_hinge", "losses.noised_top_k_hinge-keys")


@pytest.mark.parametrize(
    ("shape", "k"),
    [
        ((7, 100), 5),
        ((64,), 16),
        ((2, 3, 70), 17),
        ((2, 70), 64),
        ((4,), 1),
        ((0, 9), 3),
    ],
)
def test_passes_select_what_a_sort_does(rng, shape, k):
    scores = rng.normal(size=shape).astype(np.float32).round(1)
    scores[scores > 1.9] = -np.inf
    # Some of these are -0.
    scores[np.abs(scores) < 0.15] *= 0
    found = jax.jit(functools.partial(select_in_lists, k=k))(scores)
    for array, expected in zip(found, jax.lax.top_k(scores, k), strict=True):
        assert np.asarray(array).tobytes() == np.asarray(expected).tobytes()


@pytest.mark.parametrize(
    "case",
    rows(
        [case for case in SELECTING if case.name in SOME],
        [case for case in SELECTING if case.name not in SOME],
    ),
    ids=lambda case: case.name,
)
def test_a_program_for_accelerators_has_the_results_of_one_for_the_cpu(case, monkeypatch):
    arrays = draw((4,), 40)

    def results(arrays):
        return case.results(arrays, **case.resolved(40))

    on_cpu = jax.jit(results)(arrays)
    monkeypatch.setattr(
        jax.lax, "platform_dependent", lambda *arrays, default, **_: default(*arrays)
    )
    # Another function, or the program for the CPU would be taken.
    elsewhere = jax.jit(functools.partial(results))(arrays)
    # What is selected is equal, so that sums in another order alone make a difference.
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=2e-5, atol=2e-6), elsewhere, on_cpu
    )


@pytest.mark.parametrize("on_accelerator", [False, True])
def test_an_entry_and_its_gradient_ignore_the_others(rng, monkeypatch, on_accelerator):
    rows = rng.normal(size=(4, 6)).astype(np.float32)
    rows[:, 5] = np.nan, np.inf, -np.inf, np.nan
    index = np.array([0, 3, 5, 5])
    if on_accelerator:
        monkeypatch.setattr(
            jax.lax, "platform_dependent", lambda *arrays, default, **_: default(*arrays)
        )
    value, vjp = jax.vjp(lambda rows: take_along(rows, index[:, None])[:, 0], rows)
    np.testing.assert_array_equal(value, rows[range(4), index])
    (gradient,) = vjp(np.arange(1, 5, dtype=np.float32))
    expected = np.zeros_like(rows)
    expected[range(4), index] = range(1, 5)
    np.testing.assert_array_equal(gradient, expected)
