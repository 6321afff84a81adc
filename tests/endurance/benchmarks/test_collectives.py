"""Rows of the same name in tests/parts that take long."""

import pytest

from benchmarks import collectives


@pytest.mark.parametrize("name", collectives.functions())
def test_nothing_that_is_sent_grows_with_the_number_of_classes(name):
    function = collectives.functions()[name]
    few, many = (collectives.account(function, size) for size in (2_048, 32_768))
    assert many.gathered == few.gathered
    assert many.others == few.others == 0
    # The grid of `expected_top_k_hinge` has some more points, and from 4,096 classes of a device on
    # `entmax_loss` has another loop.
    assert many.reduced <= max(1.15 * few.reduced, few.reduced + 2)
