"""Rows of the same name in tests/parts that take long."""

import pytest

from tests.cases import CASES
from tests.parts import lowered
from tests.parts.library.test_lowering import NUM_EXAMPLES, OF_A_KNOWN_SIZE, lower


# The other functions are lowered for any number above.
@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.public not in OF_A_KNOWN_SIZE],
    ids=lambda case: case.name,
)
def test_a_function_of_a_known_size_has_static_shapes_alone(case):
    assert lowered.faults(lower(case, NUM_EXAMPLES)) == []
