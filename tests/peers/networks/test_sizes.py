"""Networks take the smallest images that their specs allow."""

import functools

import jax
import numpy as np

from tests.peers.networks.comparison import one_of_each_family
from train.models import MODELS, build_model, check_image_shape


@one_of_each_family
def test_smallest_images(name):
    spec = MODELS[name]
    least = -(-spec.smallest // spec.multiple_of) * spec.multiple_of
    model = build_model(name, num_classes=10, head="linear", axis_name=None, half_precision=False)
    # One row more, of patches if the network has them.
    for shape in ((least, least, 1), (least + spec.multiple_of, least, 3)):
        assert check_image_shape(name, shape) is None
        images = jax.ShapeDtypeStruct((2, *shape), np.float32)
        # With what every module gives: a mean over no pixels would be NaN.
        init = functools.partial(
            model.init_with_output, train=False, mutable=True, capture_intermediates=True
        )
        logits, variables = jax.eval_shape(init, jax.random.key(0), images)
        assert logits.shape == (2, 10)
        assert all(leaf.size > 0 for leaf in jax.tree.leaves(variables))
