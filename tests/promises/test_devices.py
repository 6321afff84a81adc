"""Every loss on eight devices is the loss on one: by `pmap`, and with the classes split, too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

from tests.cases import losses as of_losses
from tests.cases.case import AXES, draw
from topk_jax import losses, sets

NUM_DEVICES, NUM_EXAMPLES, NUM_CLASSES = 8, 16, 24
# One case of each loss. Noise of one key depends on the place of an example, which a device does
# not know; the losses that others are compared with are dear to compile.
CASES = list(
    {
        case.public: case
        for case in reversed(of_losses.CASES)
        if not case.by_place and not getattr(case, "collection", False)
    }.values()
)
EPS = float(np.finfo(np.float32).eps)
# A selection, sums over the classes, a coupled batch with two heads.
SPLIT = ("losses.cross_entropy", "losses.top_k_hinge", "losses.average_k", "losses.ldam")


def results(case, arrays, parameters, **axes):
    return case.results(arrays, **parameters, **axes)


def names_of(case):
    return {"axis_name": "devices"} if case.takes("axis_name") else {}


@pytest.fixture(scope="module")
def arrays():
    drawn = draw((NUM_EXAMPLES,), NUM_CLASSES)
    # Ties, and a masked class. A label out of range would make the coupled losses NaN.
    drawn["logits"][1, [3, 5, 17]] = drawn["logits"][1].max() + 1
    drawn["logits"][2, drawn["labels"][2] - 1] = -np.inf
    return drawn


@pytest.fixture(scope="module")
def of_one_device(arrays):
    """The results of every case: one program, which compiles sooner than one for each."""

    def every(arrays):
        return [results(case, arrays, case.resolved(NUM_CLASSES)) for case in CASES]

    return jax.jit(every)(arrays)


def assert_close(case, found, wanted, rounding):
    scale = np.abs(np.where(np.isfinite(wanted), wanted, 0)).max(initial=1)
    np.testing.assert_allclose(
        found, wanted, rtol=0, atol=max(rounding, 4) * EPS * scale, err_msg=case.name
    )


def test_every_loss_on_the_devices_of_pmap(arrays, of_one_device):
    def of_a_device(arrays):
        return [
            results(case, arrays, case.resolved(NUM_CLASSES), **names_of(case)) for case in CASES
        ]

    places = {name: AXES[name].index("batch") for name in arrays if "batch" in AXES[name]}
    shares = {
        name: np.reshape(
            array,
            (
                *array.shape[: places[name]],
                NUM_DEVICES,
                NUM_EXAMPLES // NUM_DEVICES,
                *array.shape[places[name] + 1 :],
            ),
        )
        if name != "keys"
        else array.reshape(NUM_DEVICES, -1)
        for name, array in arrays.items()
        if name in places
    }
    mapped = jax.pmap(of_a_device, axis_name="devices", in_axes=(places,))
    found = mapped({name: shares[name] for name in places})
    for case, (values, slopes), (wanted, wanted_slopes) in zip(
        CASES, found, of_one_device, strict=True
    ):
        # A loss of the batch is the same on every device, and each has the gradient of the sum of
        # all devices' losses.
        times = NUM_DEVICES if case.couples else 1
        if case.of == "batch":
            for value in np.asarray(values):
                assert_close(case, value, wanted, case.rounding)
        else:
            assert_close(case, np.concatenate(values), wanted, case.rounding)
        for slope, whole in zip(slopes, wanted_slopes, strict=True):
            assert_close(case, np.concatenate(slope) / times, whole, case.rounding + times)


def test_losses_of_split_classes_in_shard_map(arrays):
    cases = [case for case in CASES if case.public in SPLIT]
    assert len(cases) == len(SPLIT)
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("devices", "classes"))
    axes = {"batch": "devices", "classes": "classes", None: None}
    specs = {name: PartitionSpec(*(axes[axis] for axis in AXES[name])) for name in arrays}
    by_class = [case.by_class(NUM_CLASSES) for case in cases]

    def of_a_device(arrays, by_class):
        return [
            results(
                case,
                arrays,
                case.resolved(NUM_CLASSES) | own,
                class_axis_name="classes",
                **names_of(case),
            )
            for case, own in zip(cases, by_class, strict=True)
        ]

    out_specs = [
        (
            PartitionSpec() if case.of == "batch" else PartitionSpec("devices"),
            [specs[name] for name in list(case.arrays.values())[: case.slopes]],
        )
        for case in cases
    ]
    split = jax.shard_map(
        of_a_device,
        mesh=mesh,
        in_specs=(specs, PartitionSpec("classes")),
        out_specs=out_specs,
    )
    for case, (values, slopes) in zip(cases, jax.jit(split)(arrays, by_class), strict=True):
        wanted, wanted_slopes = jax.jit(
            lambda arrays, case=case: results(case, arrays, case.resolved(NUM_CLASSES))
        )(arrays)
        assert_close(case, values, wanted, case.class_rounding + case.rounding)
        for slope, whole in zip(slopes, wanted_slopes, strict=True):
            assert_close(case, slope, whole, case.class_rounding + case.rounding + 8)


def test_a_batch_that_jit_splits_has_the_loss_and_the_sets_of_one_device(arrays):
    mesh = Mesh(np.array(jax.devices()), ("devices",))
    split = jax.sharding.NamedSharding(mesh, PartitionSpec("devices"))

    @jax.jit
    def computed(logits, labels):
        probabilities = jax.nn.softmax(logits)
        slopes = jax.grad(lambda logits: losses.top_k_hinge(logits, labels, k=3).sum())(logits)
        quantile = sets.conformal_threshold(probabilities, labels, error=0.2)
        return slopes, sets.threshold_set(probabilities, quantile), quantile

    given = arrays["logits"], arrays["labels"]
    found = computed(*(jax.device_put(array, split) for array in given))
    for one, other in zip(found, computed(*map(jnp.asarray, given)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_vmap_and_grad_of_grad_take_a_loss():
    logits, labels = jnp.linspace(-1, 1, 12).reshape(2, 2, 3), jnp.array([[0, 1], [2, 0]])

    def loss(logits, labels):
        return losses.smooth_top_k_hinge(logits, labels, k=2, tau=1.0)

    np.testing.assert_allclose(
        jax.vmap(loss)(logits, labels), loss(logits, labels), rtol=4 * EPS, atol=4 * EPS
    )
    # The second derivative, beside the difference of first ones.
    of_one = jax.grad(lambda scores: loss(scores, labels[0, 0]))
    step = jnp.array([1e-2, 0.0, 0.0])
    curvature = jax.jacfwd(of_one)(logits[0, 0])
    difference = (of_one(logits[0, 0] + step) - of_one(logits[0, 0] - step)) / 2e-2
    np.testing.assert_allclose(curvature[:, 0], difference, rtol=0, atol=1e-3)
