"""Rows of the same name in tests/parts that take long."""

import pytest
from jax.sharding import AxisType

from tests.parts.library.test_class_axis import (
    CASES,
    WITH_SLOPES,
    check_by_sharding,
    check_in_shard_map,
    check_slopes_of_invalid_examples,
    mesh_of,
)


@pytest.mark.parametrize(
    ("num_batch", "num_classes", "checked"),
    [(1, 1, True), (1, 2, True), (2, 4, True), (1, 8, True), (2, 4, False), (1, 8, False)],
)
def test_every_function_in_shard_map(num_batch, num_classes, checked):
    cases = [case for case in CASES if num_batch == 1 or not case.by_place]
    check_in_shard_map(cases, mesh_of(num_batch, num_classes, AxisType.Auto), checked)


@pytest.mark.parametrize("kind", [AxisType.Explicit, AxisType.Auto], ids=str)
@pytest.mark.parametrize(("num_batch", "num_classes"), [(1, 8), (2, 4)])
def test_every_function_by_sharding(num_batch, num_classes, kind):
    check_by_sharding(CASES, mesh_of(num_batch, num_classes, kind))


def test_slopes_of_invalid_examples_of_every_loss():
    check_slopes_of_invalid_examples(WITH_SLOPES)
