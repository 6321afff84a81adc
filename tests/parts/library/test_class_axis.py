"""Functions of classes that are split over devices, by each way that JAX has to split them."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from tests import cases as library
from tests.cases.case import AXES, draw, softmax
from topk_jax import heads, losses, metrics, sets

NUM_EXAMPLES, NUM_CLASSES = 8, 64
EPS = float(np.finfo(np.float32).eps)
RESULT_AXES = {"examples": ("batch",), "entries": ("batch", "classes"), "batch": ()}


def mesh_of(num_batch, num_classes, kind):
    devices = jax.devices()[: num_batch * num_classes]
    return jax.make_mesh(
        (num_batch, num_classes), ("batch", "classes"), axis_types=(kind, kind), devices=devices
    )


def of_size(case, k):
    """The case for another k."""
    return dataclasses.replace(
        case, parameters={**case.parameters, "k": k}, variant=f"{case.variant} k={k}".strip()
    )


# With 8 devices of 8 classes, one device does not have 9, and 40 are more than half of all.
CASES = [
    variant
    for case in library.CASES
    if case.takes("class_axis_name")
    for variant in (
        case,
        *(of_size(case, k) for k in (9, 40) if isinstance(case.parameters.get("k"), int)),
    )
]


def drawn():
    arrays = draw((NUM_EXAMPLES,), NUM_CLASSES)
    # Ties between devices, and masked classes.
    logits = arrays["logits"]
    logits[1, [3, 17, 40]] = logits[1].max() + 1
    logits[2, 5:9] = -np.inf
    return arrays | {"probabilities": softmax(logits)}


def spec_of(name):
    return PartitionSpec(*AXES[name])


def result_specs(case):
    slopes = [spec_of(name) for name in list(case.arrays.values())[: case.slopes]]
    return PartitionSpec(*RESULT_AXES[case.of]), slopes


def of_classes(cases):
    """The parameters of each case that are split like the classes."""
    return [case.by_class(NUM_CLASSES) for case in cases]


def every(cases, arrays, of_classes, whole=None, *, mapped=False):
    """The results of all cases, in `shard_map` from a device's share."""
    return [
        case.results(
            whole if mapped and case.is_statistic else arrays,
            **case.resolved(NUM_CLASSES) | own,
            **({"class_axis_name": "classes"} if mapped else {}),
            **({"axis_name": "batch"} if mapped and case.takes("axis_name") else {}),
        )
        for case, own in zip(cases, of_classes, strict=True)
    ]


def assert_equal(case, results, expected):
    leaves = (map(np.asarray, jax.tree.leaves(tree)) for tree in (results, expected))
    for actual, wanted in zip(*leaves, strict=True):
        finite = np.where(np.isfinite(wanted), wanted, 0)
        tolerance = case.class_rounding * EPS * np.abs(finite).max(initial=0)
        np.testing.assert_allclose(actual, wanted, rtol=0, atol=tolerance, err_msg=case.name)


def gathered(name, array):
    """The examples of all devices, the same on each."""
    if "batch" not in AXES[name] or name == "keys":
        return array
    axis = AXES[name].index("batch")
    return jax.lax.all_gather(array, "batch", axis=axis, tiled=True, to="invarying")


def of_split(cases, num_devices, arrays):
    """The results of all cases, with the classes over so many devices."""
    return jax.shard_map(
        functools.partial(every, cases, mapped=True),
        mesh=mesh_of(1, num_devices, AxisType.Auto),
        in_specs=({name: spec_of(name) for name in arrays}, PartitionSpec("classes")),
        out_specs=[result_specs(case) for case in cases],
    )


def on_one_device(cases, arrays, of_classes):
    return jax.jit(functools.partial(every, cases))(arrays, of_classes)


def check_in_shard_map(cases, mesh, checked):
    arrays, own = drawn(), of_classes(cases)

    def mapped(arrays, own):
        whole = {name: gathered(name, array) for name, array in arrays.items()}
        return every(cases, arrays, own, whole, mapped=True)

    results = jax.jit(
        jax.shard_map(
            mapped,
            mesh=mesh,
            in_specs=({name: spec_of(name) for name in arrays}, PartitionSpec("classes")),
            out_specs=[result_specs(case) for case in cases],
            check_vma=checked,
        )
    )(arrays, own)
    for case, (values, slopes), wanted in zip(
        cases, results, on_one_device(cases, arrays, own), strict=True
    ):
        if checked:
            assert_equal(case, (values, slopes), wanted)
            continue
        # Each device has the gradient of the sum of the results of all devices. Such a sum of
        # equal numbers is rounded, too.
        times = mesh.size if case.couples else mesh.shape["classes"]
        assert_equal(case, values, wanted[0])
        coarser = dataclasses.replace(case, class_rounding=case.class_rounding + times)
        assert_equal(coarser, [slope / times for slope in slopes], wanted[1])


def check_by_sharding(cases, mesh):
    arrays, own = drawn(), of_classes(cases)
    placed = {
        name: jax.device_put(array, NamedSharding(mesh, spec_of(name)))
        for name, array in arrays.items()
    }
    placed_own = jax.device_put(own, NamedSharding(mesh, PartitionSpec("classes")))
    with jax.set_mesh(mesh):
        results = on_one_device(cases, placed, placed_own)
    for case, found, wanted in zip(cases, results, on_one_device(cases, arrays, own), strict=True):
        assert_equal(case, found, wanted)


@pytest.mark.parametrize(
    "case",
    [
        case
        for case in CASES
        if not (case.is_statistic or case.couples)
        # Its program grows with k, and takes ten seconds to trace.
        and case.name not in {f"losses.expected_top_k_hinge-convex k={k}" for k in (9, 40)}
    ],
    ids=lambda case: case.name,
)
def test_no_examples(case):
    """A batch of 0: JAX treats some of its operations as constants, equal on all devices."""
    arrays = {name: of_no_examples(name, array) for name, array in drawn().items()}
    own = of_classes([case])
    (shapes,) = jax.eval_shape(of_split([case], 2, arrays), arrays, own)
    (wanted,) = jax.eval_shape(functools.partial(every, [case]), arrays, own)
    assert shapes == wanted
    assert 0 in shapes[0].shape


def of_no_examples(name, array):
    return array[tuple(slice(0) if axis == "batch" else slice(None) for axis in AXES[name])]


def in_shard_map(function, specs):
    """The function on two devices, with the same result on both."""
    mesh = mesh_of(1, 2, AxisType.Auto)
    return jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=PartitionSpec())


SPLIT = (PartitionSpec(None, "classes"), PartitionSpec())
LOGITS, LABELS = jnp.arange(24.0).reshape(3, 8), jnp.array([0, 3, 7])


@pytest.mark.parametrize(
    "loss",
    [
        losses.cross_entropy,
        lambda logits, labels: losses.sigmoid_top_k_loss(logits, labels, k=2, tau=1.0),
        lambda scores, labels: metrics.top_k_hits(scores, labels, k=2),
        sets.temperature,
        lambda weights, labels: heads.cross_entropy(jnp.eye(3), heads.LinearHead(weights), labels),
    ],
)
def test_split_classes_without_the_name_are_refused(loss):
    with pytest.raises(ValueError, match="vary along 'classes' and labels that do not"):
        jax.eval_shape(in_shard_map(loss, SPLIT), LOGITS, LABELS)


def test_labels_that_are_marked_are_not_refused():
    def loss(logits, labels):
        labels = jax.lax.pcast(labels, "classes", to="varying")
        return jax.lax.pmean(losses.cross_entropy(logits, labels), "classes")

    assert jax.eval_shape(in_shard_map(loss, SPLIT), LOGITS, LABELS).shape == LABELS.shape


SAME = (PartitionSpec(), PartitionSpec())
ALL_SPLIT = (PartitionSpec(None, "classes"), PartitionSpec("classes"))


@pytest.mark.parametrize(
    ("name", "labels", "specs"),
    [
        ("models", LABELS, SPLIT),
        (["classes"], LABELS, SPLIT),
        ("classes", LABELS, SAME),
        ("classes", jnp.tile(LABELS, 2), ALL_SPLIT),
    ],
)
def test_wrong_names_are_refused(name, labels, specs):
    loss = functools.partial(losses.cross_entropy, class_axis_name=name)
    with pytest.raises(ValueError, match="class_axis_name must be"):
        jax.eval_shape(in_shard_map(loss, specs), LOGITS, labels)


def test_some_functions_on_eight_devices():
    """A loss with a key, and a score of the largest logit, with their gradients.

    Selection and noise are the same as on one device.
    """
    names = ("losses.noised_top_k_hinge-keys", "sets.outlier_scores-probability")
    cases = [case for case in CASES if case.name in names]
    check_in_shard_map(cases, mesh_of(2, 4, AxisType.Auto), checked=True)


def check_slopes_of_invalid_examples(cases):
    """The slopes of the examples of a broken network are NaN for all classes, on every device."""
    arrays, own = drawn(), of_classes(cases)
    for name in ("logits", "probabilities"):
        arrays[name][0, 5], arrays[name][3, 60] = np.nan, np.inf
    arrays["labels"][[4, 5]] = -1, NUM_CLASSES
    split = jax.jit(of_split(cases, 4, arrays))
    results = split(arrays, own), on_one_device(cases, arrays, own)
    for case, *both in zip(cases, *results, strict=True):
        found, wanted = ([np.isnan(slope) for slope in slopes] for _, slopes in both)
        assert any(slope.all(axis=-1).any() for slope in wanted), case.name
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=case.name)


# The top-k error is constant almost everywhere.
WITH_SLOPES = [
    case
    for case in library.CASES
    if case.takes("class_axis_name") and case.name.startswith("losses.") and not case.couples
    if case.slopes and case.public != "losses.top_k_error"
]


def test_slopes_of_invalid_examples_of_some_losses():
    names = (
        "losses.noised_top_k_hinge-keys",
        "losses.smooth_top_k_hinge-5",
        "losses.top_k_hinge",
    )
    check_slopes_of_invalid_examples([case for case in WITH_SLOPES if case.name in names])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "uint32"])
def test_ties_over_devices_are_decided_for_labels_of_any_type(dtype):
    ranks = functools.partial(metrics.label_ranks, class_axis_name="classes")
    labels = jnp.array([0, 3, 7, 8], dtype)
    found = jax.jit(in_shard_map(ranks, SPLIT))(jnp.zeros((4, 8)), labels)
    np.testing.assert_array_equal(found, [0, 3, 7, 8])


@pytest.mark.parametrize("counts", [[2**32 + 10, 10, 10, 10], np.array([1, 1, 1, 10**10])])
def test_counts_of_any_size_along_explicit_axes(counts):
    mesh = jax.make_mesh((2,), ("classes",), devices=jax.devices()[:2])
    logits, labels = np.zeros((2, 4), np.float32), np.array([0, 3])
    expected = losses.logit_adjusted_cross_entropy(logits, labels, class_counts=counts)
    with jax.set_mesh(mesh):
        split = jax.device_put(logits, NamedSharding(mesh, PartitionSpec(None, "classes")))
        actual = losses.logit_adjusted_cross_entropy(split, labels, class_counts=counts)
    # Sums of four classes in another order.
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "loss",
    [
        losses.sparsemax_loss,
        functools.partial(losses.cross_entropy, class_axis_name=None),
        functools.partial(
            losses.conformal_training,
            error=0.1,
            temperature=0.5,
            smoothing=0.1,
            loss_matrix=np.eye(8),
        ),
    ],
)
def test_no_name_is_needed_along_explicit_axes(loss):
    mesh = mesh_of(1, 2, AxisType.Explicit)
    with jax.set_mesh(mesh):
        split = jax.device_put(LOGITS, NamedSharding(mesh, PartitionSpec(None, "classes")))
        actual = loss(split, LABELS)
    # Sums of classes in another order.
    np.testing.assert_allclose(actual, loss(LOGITS, LABELS), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("checked", [True, False])
def test_a_wrong_margin_is_nan_on_all_devices(checked):
    mesh = jax.make_mesh((2,), ("classes",), axis_types=(AxisType.Auto,), devices=jax.devices()[:2])

    @functools.partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(PartitionSpec(None, "classes"), PartitionSpec(), PartitionSpec("classes")),
        out_specs=PartitionSpec(),
        check_vma=checked,
    )
    def of_devices(logits, labels, margins):
        same = losses.ldam(logits, labels, margins=jnp.full(2, 0.1), class_axis_name="classes")
        split = losses.ldam(logits, labels, margins=margins, class_axis_name="classes")
        return same, split

    margins = jnp.array([-1.0, 0.1, 0.1, 0.1])
    same, split = jax.jit(of_devices)(jnp.zeros((2, 4)), jnp.array([0, 3]), margins)
    assert np.isfinite(same).all()
    assert np.isnan(split).all()
