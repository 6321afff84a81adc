"""Steps are pure, give each example its own randomness, and fit any number of devices."""

import dataclasses
import functools

import jax
import numpy as np
import optax
import pytest

from tests.parts.program.roundings import check_with_some_seed
from tests.rows import rows
from topk_jax import losses
from train.data.augmentation import normalize
from train.devices.devices import AXIS, PmapDevices
from train.models import HEADS
from train.models.classifier import Classifier
from train.models.networks.small import SmallCNN
from train.training import label_estimates, randomness, steps
from train.training.losses import LOSSES
from train.training.optimizer import Optimizer
from train.training.state import initial_state, initializer, num_parameters

LOSS = {
    "label_smoothing": 0.0,
    "k": 3,
    "epsilon": 1.0,
    "num_samples": 4,
    "alpha": 0.5,
    "beta": 0.01,
    "weight": 0.01,
    "label_learning_rate": 3.0,
    "method": "odd_even",
    "num_candidates": 5,
}
CLASS_COUNTS = np.arange(1, 11)
normalize_images = functools.partial(normalize, mean=(0.3,), std=(0.35,))


def augment(key, image):
    return image + jax.random.randint(key, (), 0, 3).astype(np.uint8)


def build(
    loss_name,
    *,
    estimates=None,
    average_decay=None,
    freeze=False,
    mixup_alpha=None,
    sync_batch_norm=True,
    **settings,
):
    """A state, and the training step with its hyperparameters."""
    # Narrow, to compile and run fast; otherwise the model of the digits.
    spec = LOSSES[loss_name]
    axis_name = AXIS if sync_batch_norm else None
    model = Classifier(
        SmallCNN(axis_name=axis_name, widths=(4, 4, 8)), HEADS[spec.head](10), freeze
    )
    frozen = ("features",) if freeze else ()
    optimizer = Optimizer(optax.sgd(0.05, momentum=0.9), optax.constant_schedule(0.05))
    state = initial_state(
        initializer(model, (8, 8, 1)),
        optimizer.transformation,
        randomness.initialization_key(0),
        averaged=average_decay is not None,
        frozen=frozen,
    )
    hyperparameters = {
        "seed": np.uint32(0),
        "loss": spec.hyperparameters(LOSS, CLASS_COUNTS),
        "optimizer": {"learning_rate": np.float32(0.05)},
        "label_rate_ratio": np.float32(LOSS["label_learning_rate"] / 0.05),
    }
    if average_decay is not None:
        hyperparameters["optimizer"]["average_decay"] = np.float32(average_decay)
    if mixup_alpha is not None:
        hyperparameters["mixup_alpha"] = np.float32(mixup_alpha)
    train_step = steps.make_train_step(
        model,
        functools.partial(spec.objective, LOSS, axis_name=AXIS),
        lambda _values: optimizer,
        augment=augment,
        normalize=normalize_images,
        devices=PmapDevices(),
        frozen=frozen,
        **settings,
    )
    state = dataclasses.replace(state, label_logits=estimates)
    return state, lambda state, batch: train_step(state, hyperparameters, batch)


def make_batch(rng, size):
    return {
        "images": rng.integers(0, 200, (size, 8, 8, 1)).astype(np.uint8),
        "labels": rng.integers(0, 10, size).astype(np.int32),
        "positions": np.arange(size, dtype=np.int32),
        "examples": rng.permutation(2 * size)[:size].astype(np.int32),
    }


def split(tree, devices):
    return jax.tree.map(lambda array: array.reshape(devices, -1, *array.shape[1:]), tree)


def run(state, train_step, batches, devices):
    """The state on the first device, and the metrics, after a step on each batch."""
    compiled = jax.pmap(train_step, axis_name=AXIS, devices=jax.devices()[:devices])
    # In NumPy, which compiles nothing for every shape.
    copies = jax.tree.map(lambda leaf: np.stack([leaf] * devices), state)
    for batch in batches:
        copies, metrics = compiled(copies, split(batch, devices))
    copies, metrics = jax.device_get((copies, metrics))
    for leaf in jax.tree.leaves(copies):
        np.testing.assert_array_equal(leaf, np.stack([leaf[0]] * devices))
    return jax.tree.map(lambda leaf: leaf[0], (copies, metrics))


def check_equal(found, expected, rtol=1e-3, atol=2e-5):
    # Sums over the batch in another order, through three steps: float32 rounding grown a little.
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=rtol, atol=atol), found, expected
    )


@pytest.mark.parametrize(
    ("loss_name", "settings"),
    rows(
        [("noised_top_k_hinge", {"mixup_alpha": 0.4}), ("average_k", {})],
        [
            ("noised_top_k_hinge", {"parts": 2, "average_decay": 0.9}),
            ("expected_positive_regularization", {}),
        ],
    ),
)
def test_eight_devices_equal_one(loss_name, settings):
    state, train_step = build(loss_name, **settings)

    def check(seed):
        batches = [make_batch(np.random.default_rng(seed), 16)] * 3
        check_equal(run(state, train_step, batches, 8), run(state, train_step, batches, 1))

    check_with_some_seed(check)


def test_a_batch_in_parts_has_the_mean_gradient_of_the_parts():
    state, step_on_half = build("noised_top_k_hinge")
    _, step_in_parts = build("noised_top_k_hinge", parts=2)

    def check(seed):
        half = make_batch(np.random.default_rng(seed), 8)
        # A part has every second example: here both are the half.
        batch = {name: np.repeat(array, 2, axis=0) for name, array in half.items()}
        expected, expected_metrics = run(state, step_on_half, [half], 1)
        found, found_metrics = run(state, step_in_parts, [batch], 1)
        check_equal((found.params, found_metrics), (expected.params, expected_metrics))
        # The statistics have moved twice towards the statistics of the half.
        twice = jax.tree.map(
            lambda start, once: once + 0.9 * (once - start),
            jax.device_get(state.batch_stats),
            expected.batch_stats,
        )
        check_equal(found.batch_stats, twice, rtol=1e-4, atol=1e-6)

    check_with_some_seed(check)


def test_averages_move_fast_at_first(rng):
    batch = make_batch(rng, 8)
    state, train_step = build("cross_entropy", average_decay=0.15)
    expected = jax.device_get({"params": state.params, "batch_stats": state.batch_stats})
    for decay in (0.1, 0.15, 0.15):  # The least of 0.15 and (1 + t) / (10 + t).
        state, _ = run(state, train_step, [batch], 1)
        new = {"params": state.params, "batch_stats": state.batch_stats}
        expected = jax.tree.map(
            lambda old, new, decay=decay: decay * old + (1 - decay) * new, expected, new
        )
        check_equal(state.averages, expected, rtol=1e-5, atol=1e-6)
    assert state.evaluated == (state.averages["params"], state.averages["batch_stats"])


def test_batch_norm_of_each_device_alone_leaves_the_mean_of_their_statistics(rng):
    batch = make_batch(rng, 16)
    state, train_step = build("cross_entropy", sync_batch_norm=False)
    found, _ = run(state, train_step, [batch], 2)
    halves = [{name: array[half] for name, array in batch.items()} for half in np.s_[:8, 8:]]
    alone = [run(state, train_step, [half], 1)[0] for half in halves]
    # After SGD's first step the parameters are linear in the gradient.
    mean = jax.tree.map(
        lambda one, two: (one + two) / 2, *((one.params, one.batch_stats) for one in alone)
    )
    check_equal((found.params, found.batch_stats), mean)


def as_bytes(tree):
    """Each array as its bytes, which differ for 0 and -0."""
    return jax.tree.map(lambda leaf: np.asarray(leaf).tobytes(), tree)


def test_a_frozen_network_stays_as_it_is_to_the_bit(rng):
    settings = {"average_decay": 0.5, "sync_batch_norm": False, "parts": 2}
    state, train_step = build("cross_entropy", freeze=True, **settings)
    start = jax.device_get(state)
    # Neither is kept by adding 0 or by a mean over devices.
    kernel = start.params["features"]["Conv_0"]["kernel"]
    start.params["features"]["Conv_0"]["kernel"] = -np.abs(np.round(kernel))
    start.batch_stats["features"]["BatchNorm_0"]["mean"] = rng.normal(size=4).astype(np.float32)
    averages = {"params": start.params, "batch_stats": start.batch_stats}
    start = dataclasses.replace(start, averages=averages)
    found, metrics = run(start, train_step, [make_batch(rng, 12)] * 3, 3)
    for params, batch_stats in ((found.params, found.batch_stats), found.evaluated):
        assert as_bytes(params["features"]) == as_bytes(start.params["features"])
        assert as_bytes(batch_stats) == as_bytes(start.batch_stats)
        assert as_bytes(params["head"]) != as_bytes(start.params["head"])
    assert metrics["update_norm"] > 0
    # The optimizer has state only for the head.
    sizes = [leaf.size for leaf in jax.tree.leaves(start.opt_state) if leaf.size > 1]
    assert sum(sizes) == num_parameters(start.params["head"])


def test_a_network_is_differentiated_and_computed_again_where_it_must_be(rng):
    def count_convolutions(**options):
        state, train_step = build("cross_entropy", **options)
        copies = jax.tree.map(lambda leaf: leaf[None], state)
        batch = split(make_batch(rng, 4), 1)
        program = jax.make_jaxpr(jax.vmap(train_step, axis_name=AXIS))(copies, batch)
        return str(program).count("conv_general_dilated[")

    # Backward there is one by each kernel and by each input but the images.
    forward, backward = 3, 3 + 2
    assert count_convolutions() == forward + backward
    assert count_convolutions(freeze=True) == forward
    assert count_convolutions(remat=True) == forward + forward + backward


def test_estimated_labels_take_a_step_of_their_own(rng):
    batch = make_batch(rng, 16)
    estimates = rng.normal(size=(32, 10)).astype(np.float32)
    state, train_step = build("role", estimates=estimates)
    # As the step makes the outputs: with its own augmentation, by its own network.
    keys = randomness.augmentation_keys(0, state.step, batch["positions"])
    model = Classifier(SmallCNN(axis_name=None, widths=(4, 4, 8)), HEADS["linear"](10))
    logits, _ = model.apply(
        {"params": state.params, "batch_stats": state.batch_stats},
        normalize_images(jax.vmap(augment)(keys, batch["images"])),
        train=True,
        mutable=["batch_stats"],
    )
    gradients = jax.grad(losses.role, argnums=1)(
        logits, estimates[batch["examples"]], batch["labels"], expected_positives=3.0, weight=0.01
    )
    expected = estimates.copy()
    expected[batch["examples"]] -= LOSS["label_learning_rate"] * np.asarray(gradients)
    assert not np.allclose(expected, estimates, atol=1e-2)
    for devices in (1, 4):
        found, _ = run(state, train_step, [batch], devices)
        # The logits are rounded differently if the batch is divided.
        np.testing.assert_allclose(found.label_logits, expected, rtol=1e-5, atol=1e-5)


def test_estimated_labels_start_as_published(rng):
    labels = rng.integers(0, 10, 500)
    logits = label_estimates.initial(labels, num_classes=10, seed=3)
    probabilities = 1 / (1 + np.exp(-logits.astype(np.float64)))
    observed = np.eye(10, dtype=bool)[labels]
    np.testing.assert_allclose(probabilities[observed], 0.995, rtol=1e-6)
    unknown = probabilities[~observed]
    assert 0.4 <= unknown.min() < 0.405
    assert 0.595 < unknown.max() <= 0.6


# Of `top_k_hinge` there are two, of the label and of the class in its place, or none.
@pytest.mark.parametrize(
    ("loss_name", "least", "most"), [("cross_entropy", 10, 10), ("top_k_hinge", 0.01, 2)]
)
def test_nonzero_gradients_are_counted(rng, loss_name, least, most):
    state, train_step = build(loss_name)
    _, metrics = run(state, train_step, [make_batch(rng, 16)], 2)
    assert least <= metrics["nonzero_gradients"] <= most


def test_keys_differ_by_seed_stream_step_and_position():
    draws = [
        np.asarray(jax.random.key_data(keys_of(seed, np.int32(step), np.arange(3, dtype=np.int32))))
        for seed in (0, 1)
        for step in (0, 1)
        for keys_of in (randomness.augmentation_keys, randomness.loss_keys)
    ]
    everything = np.concatenate(draws)
    assert len(np.unique(everything, axis=0)) == len(everything)
