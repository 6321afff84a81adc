"""The network of names: its n-grams depend only on the names, on every device and machine."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.parts.program.models import tiny
from train.data import characters
from train.models.networks.ngram_bag import NgramBag

NAMES = ("a", "ab", "ñandú", "x" * characters.LENGTH)


def row_of(ngram, rows):
    """The row of the table for an n-gram, in Python's integers."""
    value = len(ngram)
    for character in ngram:
        value = (value ^ ord(character)) * 0x9E3779B1 % 2**32
        value ^= value >> 15
    return value % rows


def reference(table, name, lengths):
    """The features of a name, from its n-grams as texts."""
    marked = f"\1{name}\2"
    ngrams = [
        marked[start : start + length]
        for length in lengths
        for start in range(len(marked) - length + 1)
    ]
    rows = [row_of(ngram, len(table)) for ngram in ngrams]
    return table[rows].sum(axis=0) / np.sqrt(len(ngrams))


@pytest.fixture(scope="module")
def model():
    return NgramBag(axis_name=None, width=5, rows=64)


@pytest.fixture
def variables(model, rng):
    return tiny.in_float32({"params": {"Embed_0": {"embedding": rng.normal(size=(64, 5))}}})


def test_features_are_those_of_the_n_grams_of_a_name(model, variables):
    table = np.asarray(variables["params"]["Embed_0"]["embedding"], np.float64)
    found = model.apply(variables, characters.to_rows(NAMES), train=True)
    expected = [reference(table, name, (1, 2, 3, 4)) for name in NAMES]
    # Float32 rounding of sums of at most 162 embeddings.
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_the_row_of_an_n_gram_is_a_constant():
    # Saved parameters are of these rows.
    assert [row_of(ngram, 2**15) for ngram in ("\1", "on\2", "ville")] == [0, 21129, 18546]


def test_what_follows_the_end_of_a_name_does_not_matter(model, variables):
    rows = characters.to_rows(NAMES[:3])
    found = model.apply(variables, jnp.pad(rows, ((0, 0), (0, 7))), train=False)
    expected = model.apply(variables, rows, train=False)
    # The same sums, which may be taken in another order.
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_an_empty_name_has_finite_features_and_gradients(model, variables):
    def total(variables):
        return model.apply(variables, characters.to_rows([""]), train=False).sum()

    value, gradient = jax.value_and_grad(total)(variables)
    for array in jax.tree.leaves((value, gradient)):
        assert np.isfinite(array).all()


def test_half_precision_adds_in_32_bits(variables):
    model = NgramBag(axis_name=None, width=5, rows=64, dtype=jnp.bfloat16)
    rows = characters.to_rows(NAMES)
    found = model.apply(variables, rows, train=False)
    assert found.dtype == jnp.float32
    rounded = jax.tree.map(lambda array: array.astype(jnp.bfloat16).astype(jnp.float32), variables)
    expected = NgramBag(axis_name=None, width=5, rows=64).apply(rounded, rows, train=False)
    # The same numbers; their sums may be taken in another order.
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
