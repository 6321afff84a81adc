"""The perturbed operators are the same whichever way their shapes choose to compute them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from topk_jax import _selection, operators
from topk_jax.operators import _perturbed_selection, _top_k

BLOCK_SIZE = {"all at once": 2**30, "one row at a time": 1, "four rows at a time": 250}
# The longest row that descent searches and its highest rank, the highest rank that is selected, the
# length for each rank from which it always is, and from which it is selected in chunks.
SELECTION = {
    "descent": (2**30, 2**30, 0, 2**30, 2**30),
    "selection": (0, 0, 2**30, 2**30, 2**30),
    # There must be at least one chunk for each rank.
    "selection in chunks": (0, 0, 2**30, 2**30, _top_k._CHUNK),
    "bisection": (0, 0, 0, 2**30, 2**30),
}


@pytest.fixture(params=BLOCK_SIZE)
def samples(request, monkeypatch):
    monkeypatch.setattr(_perturbed_selection, "_BLOCK_SIZE_ON_CPU", BLOCK_SIZE[request.param])


@pytest.fixture(params=SELECTION)
def ranks(request, monkeypatch):
    _select_by(monkeypatch, request.param)


def _select_by(monkeypatch, name):
    longest_row, highest_descent, highest_rank, selected_length, chunked_length = SELECTION[name]
    monkeypatch.setattr(_top_k, "_LONGEST_SHORT_ROW", longest_row)
    monkeypatch.setattr(_top_k, "_HIGHEST_DESCENT", highest_descent)
    monkeypatch.setattr(_top_k, "_HIGHEST_SELECTED_RANK", highest_rank)
    monkeypatch.setattr(_top_k, "_SELECTED_LENGTH_PER_RANK", selected_length)
    monkeypatch.setattr(_top_k, "_CHUNKED_LENGTH_PER_RANK", chunked_length)


OPERATORS = pytest.mark.parametrize("name", ["perturbed_top_k_sum", "perturbed_top_k_value"])


@OPERATORS
def test_given_noise(rng, samples, ranks, name):
    check_given_noise(rng, name, 4)


@OPERATORS
@pytest.mark.parametrize("k", [1, 37, 60])
def test_given_noise_at_other_ranks(rng, ranks, name, k):
    check_given_noise(rng, name, k)


def check_given_noise(rng, name, k):
    scores = rng.normal(size=(3, 60)).astype(np.float32)
    noise = rng.normal(size=(5, 3, 60)).astype(np.float32)
    settings = {"epsilon": 0.7, "num_samples": 5, "noise": noise}

    def total(scores):
        values = getattr(operators, name)(None, scores, k, **settings)
        return values.sum(), values

    gradient, values = jax.jit(jax.grad(total, has_aux=True))(scores)
    # Sums of up to 60 float32 numbers of order one.
    np.testing.assert_allclose(
        values, getattr(reference, name)(None, scores, k, **settings), rtol=1e-5, atol=1e-5
    )
    # Counts divided by 5.
    np.testing.assert_allclose(
        gradient,
        getattr(reference, f"{name}_gradient")(scores, k, epsilon=0.7, noise=noise),
        rtol=1e-6,
    )


@pytest.mark.parametrize("per_example", [False, True])
def test_a_key_draws_the_same_noise_on_every_path(key, rng, monkeypatch, per_example):
    scores = rng.normal(size=(3, 60)).astype(np.float32)
    keys = jax.random.split(key, 3) if per_example else key
    values = []
    for at_once in BLOCK_SIZE.values():
        for selection in SELECTION:
            monkeypatch.setattr(_perturbed_selection, "_BLOCK_SIZE_ON_CPU", at_once)
            _select_by(monkeypatch, selection)

            # A new function each time, or what was compiled for the path before would be taken.
            def value(keys, scores):
                return operators.perturbed_top_k_value(keys, scores, 7, epsilon=0.7, num_samples=4)

            values.append(jax.jit(value)(keys, scores))
    for value in values[1:]:
        # The mean of the same four numbers, perhaps added up in another order.
        np.testing.assert_allclose(value, values[0], rtol=1e-6)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 6])
def test_equal_scores_rank_by_index(ranks, k):
    scores = jnp.array(
        [
            [1.0, 2.0, 1.0, 2.0, 1.0, -jnp.inf],
            [0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
            [-jnp.inf, 1.0, -jnp.inf, 2.0, 1.0, 3.0],
        ]
    )
    value, index = _top_k.select_kth(scores, k)
    order = np.argsort(-np.asarray(scores), axis=-1, kind="stable")
    np.testing.assert_array_equal(index[:, 0], order[:, k - 1])
    np.testing.assert_array_equal(value, np.take_along_axis(np.asarray(scores), index, axis=-1))


@pytest.mark.parametrize("length", [1, 2, 7, 64, 65])
@pytest.mark.parametrize("distinct", [1, 3, 1000])
def test_the_nth_true_entry(rng, length, distinct):
    values = rng.integers(0, distinct, (5, length))
    mask = values == values[:, :1]
    count = mask.sum(axis=-1, keepdims=True)
    n = rng.integers(1, count + 1).astype(np.int32)
    expected = [np.flatnonzero(row)[rank - 1] for row, (rank,) in zip(mask, n, strict=True)]

    def nth_true(mask, n):
        columns = _selection._columns(mask.astype(jnp.float32))
        number = jnp.ones_like(n, jnp.float32)
        return _selection._nth_index(_selection._is_equal, columns, number, n=n, length=length)

    for function in (nth_true, jax.vmap(nth_true)):
        np.testing.assert_array_equal(jax.jit(function)(mask, n)[:, 0], expected)
