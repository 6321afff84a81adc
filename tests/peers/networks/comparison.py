"""What the comparisons with networks of PyTorch share."""

import functools

import jax
import numpy as np
import pytest

from tests.peers.networks import peers
from tests.rows import rows
from train.models import FAMILIES, MODELS, build_model, load_pretrained
from train.models.networks import alexnet, convnext, squeezenet, vit

PUBLISHED = [name for name, spec in MODELS.items() if spec.names is not None]
# The first of each file of networks, which is a small one.
ONE_OF_FAMILY = [
    next(name for name, spec in family.NETWORKS.items() if spec.names is not None)
    for family in FAMILIES
]
# All blocks of the others in ONE_OF_FAMILY are in these too.
_OF_THE_SAME_BLOCKS = {"inception_v4"}


def _marked(names):
    """Parameters for tests; CI takes only one network of each kind of block."""
    quick = set(ONE_OF_FAMILY) - _OF_THE_SAME_BLOCKS
    names = list(names)
    usual = [name for name in names if name in quick]
    return rows(usual, [name for name in names if name not in quick])


each_network = pytest.mark.parametrize("name", _marked(PUBLISHED))
one_of_each_family = pytest.mark.parametrize("name", _marked(ONE_OF_FAMILY))


def with_batch_norm():
    """`each_network` with batch norm."""
    without = {name for family in (alexnet, convnext, squeezenet, vit) for name in family.NETWORKS}
    return pytest.mark.parametrize("name", _marked(one for one in PUBLISHED if one not in without))


NUM_IMAGES = 4
# Both in float32, with sums in other orders: the bound that the field sets for such networks.
BOUND = 1e-4
# XLA's quickest compilation of the same operations.
_COMPILER_OPTIONS = {
    "xla_backend_optimization_level": "0",
    "xla_llvm_disable_expensive_passes": True,
}


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
    assert found.why_new_head is None
    return {"params": found.params, "batch_stats": found.batch_stats}


def compiled(function, *arguments):
    """The function, compiled for arguments of these shapes."""
    return jax.jit(function).lower(*arguments).compile(_COMPILER_OPTIONS)


def computed(function, *arguments):
    """What the compiled function gives."""
    return compiled(function, *arguments)(*arguments)


def difference(found, expected):
    """The largest difference, in units of the largest number."""
    assert found.shape == expected.shape
    return float(np.abs(np.asarray(found) - expected).max() / np.abs(expected).max())


def images_of(shape):
    return np.random.default_rng(0).normal(size=(NUM_IMAGES, *shape)).astype(np.float32)
