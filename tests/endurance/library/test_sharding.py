"""Rows of the same name in tests/parts that take long."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

from tests.cases import CASES
from tests.cases.case import draw, margins
from tests.parts.library.test_sharding import (
    EPS,
    NUM_CLASSES,
    NUM_EXAMPLES,
    _of_share,
    _on_one_device,
    assert_equal,
    check,
    mesh_of,
    placed,
    split_of,
)
from topk_jax import losses


@pytest.mark.parametrize(
    ("kind", "num_devices"),
    [
        (AxisType.Explicit, 1),
        (AxisType.Explicit, 4),
        (AxisType.Explicit, 8),
        (AxisType.Auto, 8),
    ],
)
def test_every_function(kind, num_devices):
    arrays = draw((NUM_EXAMPLES,), NUM_CLASSES)
    expected = _on_one_device((NUM_EXAMPLES,))
    check(CASES, mesh_of(num_devices, kind), PartitionSpec("data"), arrays, expected)


@pytest.mark.parametrize("kind", [AxisType.Explicit, AxisType.Auto], ids=str)
def test_every_function_with_two_axes_of_the_batch(kind):
    shape = (4, NUM_EXAMPLES // 4)
    mesh = jax.make_mesh((4, 2), ("rows", "columns"), axis_types=(kind, kind))
    check(
        CASES,
        mesh,
        PartitionSpec("rows", "columns"),
        draw(shape, NUM_CLASSES),
        _on_one_device(shape),
    )


@pytest.mark.parametrize(("num_devices", "checked"), [(1, True), (4, False), (8, True)])
def test_every_function_in_shard_map(num_devices, checked):
    arrays = draw((NUM_EXAMPLES,), NUM_CLASSES)
    axes = PartitionSpec("data")
    mapped = jax.shard_map(
        _of_share(CASES),
        mesh=mesh_of(num_devices, AxisType.Auto),
        in_specs=({name: split_of(name, axes) for name in arrays},),
        out_specs=axes,
        check_vma=checked,
    )
    results = jax.jit(mapped)(arrays)
    expected = _on_one_device((NUM_EXAMPLES,))
    for case in CASES:
        if case.by_place:
            continue
        (values, slopes), (wanted, wanted_slopes) = results[case.name], expected[case.name]
        rows = (
            [values]
            if case.of != "batch" and not case.is_statistic
            else [
                jax.tree.map(lambda leaf, row=row: leaf[row], values) for row in range(num_devices)
            ]
        )
        for row in rows:
            assert_equal(case, row, wanted)
        # Each device has the gradient of the sum of all devices' results: see `average_k`.
        times = 1 if checked or not case.couples else num_devices
        assert_equal(case, [slope / times for slope in slopes], wanted_slopes)


def test_slopes_of_what_examples_share():
    """The gradients in margins of classes and in epsilon, which add up over devices."""
    arrays = draw((NUM_EXAMPLES,), NUM_CLASSES)
    mesh = mesh_of(8, AxisType.Explicit)

    def total(shared, logits, labels, keys):
        margins, epsilon = shared
        noised = losses.noised_top_k_hinge(
            logits, labels, k=2, epsilon=epsilon, num_samples=3, key=keys, margins=margins
        )
        expected = losses.expected_top_k_hinge(
            logits, labels, k=2, epsilon=epsilon, margins=margins
        )
        smooth = losses.smooth_top_k_hinge(logits, labels, k=2, tau=epsilon)
        relaxed = losses.relaxed_top_k_cross_entropy(
            logits, labels, top_k_weights=[0.5, 0.5], method="odd_even", tau=epsilon
        )
        return (noised + expected + smooth + relaxed).sum()

    slopes = jax.jit(jax.grad(total))
    shared = (jnp.asarray(margins(NUM_CLASSES)), jnp.float32(0.5))
    given = {name: arrays[name] for name in ("logits", "labels", "keys")}
    expected = slopes(shared, **given)
    with jax.set_mesh(mesh):
        actual = slopes(shared, **placed(given, mesh, PartitionSpec("data")))
    for one, other in zip(actual, expected, strict=True):
        # Sums over 16 examples in another order.
        np.testing.assert_allclose(one, other, rtol=16 * EPS, atol=16 * EPS)
