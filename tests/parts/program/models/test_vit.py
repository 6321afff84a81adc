"""Vision transformers: their positions, what they leave out in training, and damaged files."""

import functools

import jax
import numpy as np
import pytest
import safetensors.numpy

from tests.parts.program.models import tiny
from train.foundation.errors import UserError
from train.models import pretrained
from train.models.networks.vit import NETWORKS, resized
from train.models.weights.names import arrays_of


@pytest.mark.parametrize(
    ("family", "option"),
    [("vit", "dropout"), ("vit", "stochastic_depth"), ("convnext", "stochastic_depth")],
)
def test_what_is_left_out_is_drawn_in_training_alone(family, option, rng):
    model = tiny.FAMILIES[family](axis_name=None, **{option: 0.5})
    whole = tiny.FAMILIES[family](axis_name=None)
    variables = tiny.in_float32(tiny.random_variables(rng, whole))
    images = tiny.in_float32(rng.normal(size=(8, *tiny.IMAGE_SHAPE)))

    @functools.partial(jax.jit, static_argnums=0)
    def features(model, key, variables, images):
        train = key is not None
        return model.apply(variables, images, train=train, rngs={"dropout": key} if train else {})

    expected = features(whole, None, variables, images)
    np.testing.assert_array_equal(features(model, None, variables, images), expected)
    one, other = (features(model, jax.random.key(seed), variables, images) for seed in (0, 1))
    assert not np.allclose(one, other)
    assert not np.allclose(one, expected)


def test_positions_of_another_square():
    # 0, 1, 2 in each row.
    square = np.array([[0.0, 1.0, 2.0] * 3], np.float32)[:, :, None]
    assert resized(square, 3, (3, 3)) is square
    rows = resized(square, 3, (4, 5)).reshape(4, 5)
    # The same in all rows, from left to right; symmetric about the middle, which stays.
    np.testing.assert_allclose(rows, rows[:1].repeat(4, axis=0), atol=1e-6)
    assert (np.diff(rows[0]) > 0).all()
    np.testing.assert_allclose(rows[0] + rows[0, ::-1], 2, atol=1e-6)


def test_a_file_for_images_of_another_size_is_refused(rng, tmp_path):
    """To interpolate its positions twice would be wrong for images of its own size."""
    network = tiny.FAMILIES["vit"](axis_name=None)
    params = {"features": tiny.in_float32(tiny.random_variables(rng, network))["params"]}
    names = NETWORKS["vit_small_patch16_224"].names
    arrays = arrays_of(params, {}, names)
    arrays["pos_embed"] = np.zeros((1, 16, 8), np.float32)
    path = tmp_path / "model.safetensors"
    safetensors.numpy.save_file(arrays, path)
    with pytest.raises(UserError, match=r"image sizes: pos_embed \(1, 16, 8\) instead of"):
        pretrained.load(str(path), params, {}, model_name="vit", published=names)
