"""Functions of classes that are split over devices, by each way that JAX has to split them."""

import dataclasses

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from tests.topk_jax import class_axis_cases
from tests.topk_jax.class_axis_cases import AXES, CASES

EPS = float(np.finfo(np.float32).eps)
RESULT_AXES = {"examples": ("batch",), "entries": ("batch", "classes"), "batch": ()}


def mesh_of(num_batch, num_classes, kind):
    devices = jax.devices()[: num_batch * num_classes]
    return jax.make_mesh(
        (num_batch, num_classes), ("batch", "classes"), axis_types=(kind, kind), devices=devices
    )


def spec_of(name):
    return PartitionSpec(*AXES[name])


def assert_equal(case, results, expected):
    leaves = (map(np.asarray, jax.tree.leaves(tree)) for tree in (results, expected))
    for actual, wanted in zip(*leaves, strict=True):
        finite = np.where(np.isfinite(wanted), wanted, 0)
        tolerance = case.rounding * EPS * np.abs(finite).max(initial=0)
        np.testing.assert_allclose(actual, wanted, rtol=0, atol=tolerance, err_msg=case.name)


def gathered(name, array):
    """The examples of all devices, the same on each."""
    if "batch" not in AXES[name] or name == "keys":
        return array
    axis = AXES[name].index("batch")
    return jax.lax.all_gather(array, "batch", axis=axis, tiled=True, to="invarying")


def on_one_device(cases, arrays):
    return jax.jit(lambda arrays: [case.results(arrays) for case in cases])(arrays)


def check_in_shard_map(cases, mesh, checked):
    arrays = class_axis_cases.draw()

    def results(arrays):
        whole = {name: gathered(name, array) for name, array in arrays.items()}
        return [
            case.results(
                whole if case.is_statistic else arrays,
                class_axis_name="classes",
                **({"axis_name": "batch"} if case.couples else {}),
            )
            for case in cases
        ]

    mapped = jax.shard_map(
        results,
        mesh=mesh,
        in_specs=({name: spec_of(name) for name in arrays},),
        out_specs=[
            (
                PartitionSpec(*RESULT_AXES[case.of]),
                [spec_of(name) for name in list(case.arrays.values())[: case.slopes]],
            )
            for case in cases
        ],
        check_vma=checked,
    )
    results = jax.jit(mapped)(arrays)
    for case, (values, slopes), wanted in zip(
        cases, results, on_one_device(cases, arrays), strict=True
    ):
        if checked:
            assert_equal(case, (values, slopes), wanted)
            continue
        # Each device has the gradient of the sum of the results of all devices. Such a sum of
        # equal numbers is rounded, too.
        times = mesh.size if case.couples else mesh.shape["classes"]
        assert_equal(case, values, wanted[0])
        coarser = dataclasses.replace(case, rounding=case.rounding + times)
        assert_equal(coarser, [slope / times for slope in slopes], wanted[1])


def check_by_sharding(cases, mesh):
    arrays = class_axis_cases.draw()
    placed = {
        name: jax.device_put(array, NamedSharding(mesh, spec_of(name)))
        for name, array in arrays.items()
    }
    with jax.set_mesh(mesh):
        results = on_one_device(cases, placed)
    for case, found, wanted in zip(cases, results, on_one_device(cases, arrays), strict=True):
        assert_equal(case, found, wanted)


@pytest.mark.long
@pytest.mark.parametrize(
    ("num_batch", "num_classes", "checked"),
    [(1, 1, True), (1, 2, True), (2, 4, True), (1, 8, True), (2, 4, False), (1, 8, False)],
)
def test_every_function_in_shard_map(num_batch, num_classes, checked):
    cases = [case for case in CASES if num_batch == 1 or not case.by_place]
    check_in_shard_map(cases, mesh_of(num_batch, num_classes, AxisType.Auto), checked)


@pytest.mark.long
@pytest.mark.parametrize("kind", [AxisType.Explicit, AxisType.Auto], ids=str)
@pytest.mark.parametrize(("num_batch", "num_classes"), [(1, 8), (2, 4)])
def test_every_function_by_sharding(num_batch, num_classes, kind):
    check_by_sharding(CASES, mesh_of(num_batch, num_classes, kind))
