"""Every public function on several devices, by each way that JAX has to split a batch."""

import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from tests.cases import CASES
from tests.cases.case import AXES, Case, draw
from topk_jax import sets
from topk_jax.operators import _perturbed_selection

# What is compiled in every run of the tests: a selection, a loop over rows, a coupled batch, and a
# statistic.
SOME = (
    "losses.top_k_hinge",
    "losses.noised_top_k_hinge-keys",
    "losses.average_k",
    "metrics.tally_by_class",
)
NUM_EXAMPLES, NUM_CLASSES = 16, 24
EPS = float(np.finfo(np.float32).eps)
COLLECTIVE = re.compile(
    r"= (\([^)]*\)|\S+) (all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)"
    r'(?:-start)?\(.*?(?:op_name="([^"]*)")?[^"]*$'
)
SHAPE = re.compile(r"([a-z]+\d*)\[([\d,]*)\]")


@pytest.fixture(autouse=True)
def small_groups(monkeypatch):
    """Loops over groups of rows, which take a device's own rows."""
    monkeypatch.setattr(_perturbed_selection, "_BLOCK_SIZE_ON_CPU", 2 * NUM_CLASSES)


def every(cases):
    """The results of all cases: one program, which compiles sooner than one for each."""

    def results(arrays):
        return {case.name: _named(index, case, arrays) for index, case in enumerate(cases)}

    return results


def _named(index: int, case: Case, arrays, **names):
    with jax.named_scope(f"case{index:03d}"):
        return case.results(arrays, **case.resolved(NUM_CLASSES), **names)


def split_of(name, axes):
    if "batch" not in AXES[name]:
        return PartitionSpec()
    return PartitionSpec(*[None] * AXES[name].index("batch"), *axes)


def placed(arrays, mesh, axes):
    return {
        name: jax.device_put(array, NamedSharding(mesh, split_of(name, axes)))
        for name, array in arrays.items()
    }


def mesh_of(num_devices, kind):
    devices = jax.devices()[:num_devices]
    return jax.make_mesh((num_devices,), ("data",), axis_types=(kind,), devices=devices)


def assert_equal(case, results, expected):
    leaves = (map(np.asarray, jax.tree.leaves(tree)) for tree in (results, expected))
    for actual, wanted in zip(*leaves, strict=True):
        if case.rounding:
            tolerance = case.rounding * EPS * np.abs(wanted).max()
            np.testing.assert_allclose(actual, wanted, rtol=0, atol=tolerance, err_msg=case.name)
        else:
            np.testing.assert_array_equal(actual, wanted, err_msg=case.name)


def assert_split_like_batch(case, results, axes):
    values, slopes = results
    for leaf in (*(jax.tree.leaves(values) if case.of != "batch" else ()), *slopes):
        spec = leaf.sharding.spec
        assert (*spec[: len(axes)],) == (*axes,), (case.name, spec)
        assert {*spec[len(axes) :]} <= {None}, (case.name, spec)


def sizes_of(shapes):
    return [
        (kind, math.prod(int(size) for size in sizes.split(",") if size))
        for kind, sizes in SHAPE.findall(shapes)
    ]


def assert_no_batch_is_sent(cases, program, num_devices):
    """Reads the collectives of a compiled program of `every`."""
    candidates = math.floor(1.5 * NUM_EXAMPLES)
    for line in program.splitlines():
        if (found := COLLECTIVE.search(line)) is None:
            continue
        shapes, operation, names = found.groups()
        users = [cases[int(index)] for index in re.findall(r"case(\d{3})", names or "")]
        assert users, line
        coupled = all(case.couples for case in users)
        for kind, size in sizes_of(shapes):
            if operation == "all-reduce":
                # Alone, examples only wait for the slowest one of a loop.
                allowed = (kind, size) == ("pred", 1) or (
                    any(case.couples and size <= NUM_CLASSES * case.sums for case in users)
                )
            elif any(case.public.startswith("losses.average_k") for case in users):
                # The most likely candidates of each device.
                allowed = operation == "all-gather" and size <= num_devices * candidates
            else:
                # A score of each example; of each sample of a label, for votes.
                drawn = max(case.parameters.get("num_samples") or 1 for case in users)
                sent = drawn * max(case.sends for case in users)
                allowed = operation == "all-gather" and size <= sent * NUM_EXAMPLES
                allowed = allowed and coupled
            assert allowed, line


def check(cases, mesh, axes, arrays, expected):
    """Values, gradients, shardings and collectives of the cases, with the batch split."""
    with jax.set_mesh(mesh):
        split = placed(arrays, mesh, axes)
        compiled = jax.jit(every(cases)).lower(split).compile()
        results = compiled(split)
    for case in cases:
        assert_equal(case, results[case.name], expected[case.name])
        if mesh.axis_types[0] == AxisType.Explicit:
            assert_split_like_batch(case, results[case.name], axes)
    assert_no_batch_is_sent(cases, compiled.as_text(), mesh.size)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_types_under_explicit_axes(case):
    """The type of an array contains how it is split."""
    mesh, axes = mesh_of(8, AxisType.Explicit), PartitionSpec("data")
    arrays = draw((NUM_EXAMPLES,), NUM_CLASSES)
    shapes = {
        name: jax.ShapeDtypeStruct(
            array.shape, array.dtype, sharding=NamedSharding(mesh, split_of(name, axes))
        )
        for name, array in arrays.items()
    }
    with jax.set_mesh(mesh):
        results = jax.eval_shape(every([case]), shapes)
    assert_split_like_batch(case, results[case.name], axes)


def test_some_functions_on_eight_devices():
    arrays = draw((NUM_EXAMPLES,), NUM_CLASSES)
    cases = [case for case in CASES if case.name in SOME]
    assert len(cases) == len(SOME)
    expected = jax.jit(every(cases))(arrays)
    for kind in (AxisType.Explicit, AxisType.Auto):
        check(cases, mesh_of(8, kind), PartitionSpec("data"), arrays, expected)


@functools.cache
def _on_one_device(batch_shape):
    return jax.jit(every(CASES))(draw(batch_shape, NUM_CLASSES))


def _of_share(cases):
    """The results of all cases on one device of `shard_map`, from its share of the arrays."""

    def results(arrays):
        whole = {
            name: array if name in ("keys", "key") else _gathered(name, array)
            for name, array in arrays.items()
        }
        found = {}
        for index, case in enumerate(cases):
            given = whole if case.is_statistic else arrays
            names = {"axis_name": "data"} if case.takes("axis_name") else {}
            values, slopes = _named(index, case, given, **names)
            if case.of == "batch" or case.is_statistic:
                # The same on all devices: a row of each.
                values = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], values)
            found[case.name] = (values, slopes)
        return found

    return results


def _gathered(name, array):
    return jax.lax.all_gather(array, "data", axis=AXES[name].index("batch"), tiled=True)


@pytest.mark.parametrize("checked", [False, True])
def test_an_invalid_example_is_in_the_gradients_of_all_devices(checked):
    """Of losses that couple the examples of the devices: those of one device would be finite."""
    arrays = draw((NUM_EXAMPLES,), NUM_CLASSES)
    arrays["labels"][5] = NUM_CLASSES
    cases = [case for case in CASES if case.takes("axis_name") and case.slopes]

    def slopes_of(case, arrays):
        given = {argument: arrays[name] for argument, name in case.arrays.items()}
        sloped = dict(list(given.items())[: case.slopes])
        parameters = case.resolved(NUM_CLASSES)

        def loss(sloped):
            return case.function(**given | sloped, **parameters, axis_name="data")

        return jax.grad(loss)(sloped)

    axes = PartitionSpec("data")
    mapped = jax.shard_map(
        lambda arrays: {case.name: slopes_of(case, arrays) for case in cases},
        mesh=mesh_of(4, AxisType.Auto),
        in_specs=({name: split_of(name, axes) for name in arrays},),
        out_specs=axes,
        check_vma=checked,
    )
    for name, slopes in jax.jit(mapped)(arrays).items():
        for slope in slopes.values():
            assert np.isnan(slope).all(), name


def test_calibrator_takes_split_batches():
    probabilities = draw((NUM_EXAMPLES,), NUM_CLASSES)["probabilities"]
    mesh = mesh_of(8, AxisType.Explicit)
    calibrator = sets.AverageKCalibrator(2.5, len(probabilities))
    calibrator.update(jax.device_put(probabilities, NamedSharding(mesh, PartitionSpec("data"))))
    assert calibrator.threshold() == sets.average_k_threshold(probabilities, k=2.5)
