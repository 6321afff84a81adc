"""What is written by the names of a publisher is read by its own network, strictly."""

import functools

import jax
import numpy as np
import pytest
import torch

from tests.networks import peers
from tests.networks.comparison import PUBLISHED, build
from train.models import MODELS
from train.models.weights.names import arrays_of

# A number alone, seen as an array of any shape: the largest networks take gigabytes.
ONE = np.float32(1)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_peer_reads_what_is_written(name):
    spec = MODELS[name]
    images = jax.ShapeDtypeStruct((1, spec.image_size, spec.image_size, 3), np.float32)
    init = functools.partial(build(name).init, train=False)
    shapes = jax.eval_shape(init, jax.random.key(0), images)
    variables = jax.tree.map(lambda leaf: np.broadcast_to(ONE, leaf.shape), shapes)
    # Of shapes alone.
    with torch.device("meta"):
        peer = peers.make(name)
    written = arrays_of(variables["params"], variables.get("batch_stats", {}), spec.names)
    tensors = {key: torch.empty(array.shape, device="meta") for key, array in written.items()}
    peer.load_state_dict(tensors, strict=True, assign=True)
