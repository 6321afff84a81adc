"""Rows of the same name in tests/parts that take long."""

import pytest

from tests.parts.program.data.test_preparation import (
    READERS,
    check_same_pixels,
    large_photographs,
)


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_the_steps_give_the_same_pixels_of_large_photographs(reader, tmp_path):
    check_same_pixels(reader, large_photographs(), tmp_path)
