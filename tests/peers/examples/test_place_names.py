"""The example of names of places: its names, its splits and the features of its network."""

import unicodedata

import jax
import numpy as np

from examples import place_names

NAMES = ("a", "ab", "ñandú", "x" * place_names.LENGTH)


def test_ways_to_write_a_name_are_one():
    for name in ("São  Tomé", "SÃO TOMÉ\n", unicodedata.normalize("NFD", "são tomé")):
        assert place_names.normalized(name) == "são tomé"
    # Accents are kept: they are a sign of a language.
    assert place_names.normalized("Sao Tome") == "sao tome"
    assert place_names.normalized("Ｔｏｋｙｏ STRAẞE") == "tokyo strasse"
    assert place_names.normalized("x" * 39 + " y") == "x" * 39
    (row,) = place_names.to_rows(["ñ𐍈"])
    assert row.tolist() == [0xF1, 0x10348] + [0] * 38


def test_each_name_of_a_country_is_in_one_split():
    places = [(f"{country} {index}", country) for country in "BA" for index in range(400)]
    small = [("tiny", "C"), ("Victoria", "C"), (" ", "C")]
    again = [("a 0", "A"), ("Victoria", "A"), ("VICTORIA", "A"), ("Victoria", "B")]
    codes, *splits = place_names.split([*places, *small, *again])
    # The other country has two names.
    assert codes == ["A", "B"]
    found = [
        ("".join(map(chr, row[row > 0])), codes[label])
        for split in splits
        for row, label in zip(split.names, split.labels, strict=True)
    ]
    expected = {(name.lower(), country) for name, country in [*places, *again]}
    assert len(found) == len(expected)
    assert set(found) == expected
    # Within five deviations of a tenth of the names.
    for split in splits[1:]:
        assert abs(len(split.labels) - 80.2) < 5 * np.sqrt(802 * 0.1 * 0.9)
    # The splits of all machines follow from this number.
    assert place_names.draw("vitré", "FR") == 0.7639911811775839


def row_of(ngram):
    """The row of the table for an n-gram, in Python's integers."""
    value = len(ngram)
    for character in ngram:
        value = (value ^ ord(character)) * 0x9E3779B1 % 2**32
        value ^= value >> 15
    return value % place_names.TABLE_SIZE


def test_features_are_those_of_the_n_grams_of_a_name():
    model = place_names.init(jax.random.key(0), 3)
    table = np.asarray(model["table"], np.float64)
    found = place_names.features(model, place_names.to_rows(NAMES))
    for name, features in zip(NAMES, found, strict=True):
        marked = f"\1{name}\2"
        rows = [
            row_of(marked[start : start + length])
            for length in (1, 2, 3, 4)
            for start in range(len(marked) - length + 1)
        ]
        # Float32 rounding of sums of at most 162 vectors.
        expected = table[rows].sum(axis=0) / np.sqrt(len(rows))
        np.testing.assert_allclose(features, expected, rtol=1e-4, atol=1e-5)
