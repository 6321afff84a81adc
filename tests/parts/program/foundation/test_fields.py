"""Every kind of field takes what it should, and reports what a wrong value must be."""

import pytest

from train.foundation import fields

ACCEPTED = [
    (fields.integer(1), 1),
    (fields.integer(0, 3), 3),
    (fields.Number(at_least=0), 0),
    (fields.Number(above=0), 1e-3),
    (fields.Number(at_least=0, below=1), 0.999),
    # Rounded to 32 bits, it is a little more or less.
    (fields.Number(at_most=0.1), 0.1),
    (fields.Number(at_least=0.7), 0.7),
    (fields.Number(), -3.4e38),
    (fields.boolean(), False),
    (fields.text(), "a"),
    (fields.optional(fields.text()), None),
    (fields.one_of(["a", "b"]), "b"),
    (fields.several(fields.integer(1)), [1, 1]),
    (fields.several(fields.integer(1), empty=True), ()),
    (fields.several(fields.integer(1), increasing=True), (1, 2)),
]

REFUSED = [
    (fields.integer(1), 0, "an integer of at least 1"),
    (fields.integer(1), True, "an integer of at least 1"),
    (fields.integer(1, 3, "the classes"), 4, "an integer from 1 to 3 (the classes)"),
    (fields.Number(), float("nan"), "a finite number"),
    (fields.Number(above=0), 0, "a finite number greater than 0"),
    (fields.Number(at_least=0), -1, "a finite number at least 0"),
    (fields.Number(at_least=0, below=1), 1, "a finite number at least 0 and less than 1"),
    (fields.Number(), 1e39, "a finite number, also after rounding to 32 bits"),
    (fields.Number(above=0), 1e-46, "greater than 0, also after rounding to 32 bits"),
    (fields.Number(at_least=0, below=1), 0.99999999999, "less than 1, also after rounding"),
    (fields.boolean(), 1, "True or False"),
    (fields.text(), "", "a non-empty text"),
    (fields.optional(fields.text()), 3, "a non-empty text, or None"),
    (fields.one_of(["digits", "flowers"]), "digit", "flowers (did you mean 'digits'?)"),
    (fields.one_of(["a", "b"]), "zzz", "one of a, b"),
    (fields.several(fields.integer(1)), (), "a tuple with at least one element"),
    (fields.several(fields.integer(1)), (1, 0), "each element an integer of at least 1"),
    (fields.several(fields.integer(1), increasing=True), (1, 1), "increasing"),
]


@pytest.mark.parametrize(("field", "value"), ACCEPTED)
def test_accepts(field, value):
    assert field(value) is None


@pytest.mark.parametrize(("field", "value", "message"), REFUSED)
def test_refuses(field, value, message):
    assert message in field(value)
