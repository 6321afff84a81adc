"""Every network computes what torchvision's or timm's does with the same weights."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.torch
import torch

from tests.networks import peers
from train.models import MODELS, build_model, load_pretrained
from train.models.weights import files
from train.models.weights.names import arrays_of
from train.models.weights.pretrained import networks_of
from train.training.state import num_parameters

PUBLISHED = [name for name, spec in MODELS.items() if spec.names is not None]


def _family(name):
    """The file that a network is in."""
    build = MODELS[name].build
    return getattr(build, "func", build).__module__  # A module, or a partial one.


# The smallest of each file of networks.
ONE_OF_FAMILY = list(
    {
        _family(name): name
        for name in sorted(
            PUBLISHED, key=lambda name: MODELS[name].num_parameters or 0, reverse=True
        )
    }.values()
)
# Networks that differ in what has no variables, such as paddings: no file tells which it is for.
_ALIKE = (
    ["efficientnet_lite0", "tf_efficientnet_lite0"],
    ["vit_base_patch16_clip_224", "vit_base_patch16_clip_quickgelu_224"],
    ["vit_large_patch14_clip_224", "vit_large_patch14_clip_quickgelu_224"],
)
OF_THE_SAME_VARIABLES = {name: names for names in _ALIKE for name in names}
NUM_IMAGES = 4
# Both in float32, with sums in other orders: the bound that the field sets for such networks.
BOUND = 1e-4
# XLA's quickest compilation of the same operations.
COMPILER_OPTIONS = {
    "xla_backend_optimization_level": "0",
    "xla_llvm_disable_expensive_passes": True,
}


def image_shapes(name):
    """Two sizes, of other heights than widths; odd ones where the network takes them."""
    unit = MODELS[name].multiple_of
    if unit > 1:
        return [(5 * unit, 7 * unit, 3), (8 * unit, 4 * unit, 3)]
    return [(96, 128, 3), (111, 97, 3)]


def build(name, num_classes=peers.NUM_CLASSES):
    options = dict.fromkeys(
        [one for one in ("dropout", "stochastic_depth") if one in MODELS[name].options], 0.0
    )
    return build_model(
        name,
        num_classes=num_classes,
        head="linear",
        axis_name=None,
        half_precision=False,
        options=options,
    )


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("weights")


@pytest.fixture(scope="session")
def latest():
    """The network of the latest test, by its name; one alone, for the largest take gigabytes."""
    return {}


@pytest.fixture
def pair(name, folder, latest):
    """A peer, and the file of its weights, for the parameter `name`."""
    path = folder / "peer.safetensors"
    if name not in latest:
        latest.clear()
        latest[name] = peers.make(name)
        safetensors.torch.save_file(latest[name].state_dict(), path)
    return latest[name], path


def shapes_of(model, shape):
    images = jax.ShapeDtypeStruct((1, *shape), np.float32)
    return jax.eval_shape(functools.partial(model.init, train=False), jax.random.key(0), images)


@functools.lru_cache(maxsize=1)
def loaded(name, path, num_classes=peers.NUM_CLASSES):
    """The variables of a network, read from a file; they are those for images of any size."""
    size = MODELS[name].image_size
    shapes = shapes_of(build(name, num_classes), (size, size, 3))
    # A number seen as arrays of these shapes: the largest networks take gigabytes.
    variables = jax.tree.map(lambda leaf: np.broadcast_to(np.float32(np.nan), leaf.shape), shapes)
    found = load_pretrained(name, str(path), variables["params"], variables.get("batch_stats", {}))
    assert found.head_is_read
    return {"params": found.params, "batch_stats": found.batch_stats}


def compiled(function, *arguments):
    return jax.jit(function).lower(*arguments).compile(COMPILER_OPTIONS)


def difference(found, expected):
    """The largest difference, in units of the largest number."""
    assert found.shape == expected.shape
    return float(np.abs(np.asarray(found) - expected).max() / np.abs(expected).max())


def images_of(shape, seed=0):
    return np.random.default_rng(seed).normal(size=(NUM_IMAGES, *shape)).astype(np.float32)


@pytest.mark.parametrize("name", PUBLISHED)
def test_evaluation(name, pair, record):
    peer, path = pair
    model = build(name)
    for number, shape in enumerate(image_shapes(name), start=1):
        variables = loaded(name, path)
        images = images_of(shape)
        apply = functools.partial(model.apply, train=False)
        logits = compiled(apply, variables, images)(variables, images)
        error = difference(logits, peers.apply(peer, images))
        record(name, f"evaluation {number}", f"{error:.1e}")
        assert error < BOUND


@pytest.mark.parametrize("name", PUBLISHED)
def test_number_of_parameters(name, pair, record):
    peer, path = pair
    variables = loaded(name, path)
    expected = sum(parameter.numel() for parameter in peer.parameters())
    record(name, "parameters", f"{expected:,}")
    assert num_parameters(variables["params"]) == expected
    assert networks_of(files.read(path), MODELS) == OF_THE_SAME_VARIABLES.get(name, [name])


@pytest.mark.parametrize("name", PUBLISHED)
def test_training(name, pair, record):
    """The outputs of a second step, and the statistics of batch norm after it."""
    peer, path = pair
    shape = image_shapes(name)[0]
    model = build(name)
    if "batch_stats" not in shapes_of(model, shape):
        pytest.skip("evaluation is the same: there is no batch norm, and dropout is off")
    variables = loaded(name, path)
    images = np.stack([images_of(shape), images_of(shape)[:, ::-1] + 0.5])

    step = compiled(
        functools.partial(model.apply, train=True, mutable=["batch_stats"]), variables, images[0]
    )
    for batch in images:
        logits, updates = step(variables, batch)
        variables = {"params": variables["params"], **updates}
    rounded, _ = peers.two_steps(peer, images, torch.float32)
    expected, statistics = peers.two_steps(peer, images, torch.float64)
    bound = bound_of(rounded, expected)
    error = difference(logits, expected)
    record(name, "training", f"{error:.1e}")
    record(name, "PyTorch's own", f"{difference(rounded, expected):.1e}")
    found = arrays_of({}, variables["batch_stats"], MODELS[name].names)
    assert found.keys() == statistics.keys()
    worst = max(difference(found[key], one) for key, one in statistics.items())
    record(name, "statistics", f"{worst:.1e}")
    assert error < bound
    assert worst < bound


def bound_of(rounded, expected):
    """Batch norm amplifies rounding, the more so the deeper a network is.

    Both numbers are PyTorch's, in float32 and in float64: no implementation in float32 can be held
    to less than a few times their difference.
    """
    return max(BOUND, 4 * difference(rounded, expected))


@pytest.mark.parametrize("name", ONE_OF_FAMILY)
def test_gradients(name, pair, record):
    """Of the sum of the logits times fixed numbers, by every parameter.

    In evaluation: in training, batch norm amplifies rounding until activations cross the kinks of
    ReLUs, and PyTorch's own gradients in float32 are off by a hundredth.
    """
    peer, path = pair
    shape = image_shapes(name)[0]
    model = build(name)
    variables = loaded(name, path)
    images = images_of(shape)
    weights = np.random.default_rng(1).normal(size=(NUM_IMAGES, peers.NUM_CLASSES))
    weights = weights.astype(np.float32)

    def weighted(params, batch_stats, images):
        variables = {"params": params, "batch_stats": batch_stats}
        return jnp.vdot(model.apply(variables, images, train=False), weights)

    arguments = variables["params"], variables["batch_stats"], images
    by_params = compiled(jax.grad(weighted), *arguments)(*arguments)
    found = arrays_of(by_params, {}, MODELS[name].names)
    expected = peers.gradients(peer, images, weights)
    assert found.keys() == expected.keys()
    error = relative_norm(found, expected)
    record(name, "gradients", f"{error:.1e}")
    assert error < BOUND
    # And of each, in units of its own size, where it is more than the rounding of larger ones.
    largest = max(np.linalg.norm(one) for one in expected.values())
    for key, one in expected.items():
        own = np.linalg.norm(found[key] - one)
        assert own < 10 * BOUND * max(np.linalg.norm(one), 1e-3 * largest), key


def relative_norm(found, expected):
    squares = [np.sum((found[key] - one) ** 2) for key, one in expected.items()]
    return float(np.sqrt(sum(squares) / sum(np.sum(one**2) for one in expected.values())))
