"""Vision transformers: their positions, what they leave out in training, and damaged files."""

import functools

import jax
import numpy as np
import pytest
import safetensors.numpy

from tests.train.models import tiny
from train.foundation.errors import UserError
from train.models import ModelSpec, pretrained
from train.models.networks import positions
from train.models.networks.vit_names import NAMES

pytestmark = pytest.mark.slow


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
    # 1 for the class token, then 0, 1, 2 in each row.
    of_file = np.array([1.0, *[0.0, 1.0, 2.0] * 3], np.float32).reshape(1, 10, 1)
    found = positions.fit(of_file, (1, 26, 1))
    assert found.shape == (1, 26, 1)
    assert found[0, 0, 0] == 1
    rows = found[0, 1:, 0].reshape(5, 5)
    # The same in all rows, from left to right; symmetric about the middle, which stays.
    np.testing.assert_allclose(rows, rows[:1].repeat(5, axis=0), atol=1e-6)
    assert (np.diff(rows[0]) > 0).all()
    np.testing.assert_allclose(rows[0] + rows[0, ::-1], 2, atol=1e-6)


@pytest.mark.parametrize(
    ("of_file", "wanted"),
    [
        ((1, 10, 1), (1, 10, 1)),
        # No square; a position of the class token on one side alone; no axis of examples.
        ((1, 12, 1), (1, 10, 1)),
        ((1, 9, 1), (1, 26, 1)),
        ((10, 1), (1, 26, 1)),
    ],
)
def test_positions_that_stay_as_they_are(of_file, wanted):
    array = np.zeros(of_file, np.float32)
    assert positions.fit(array, wanted) is array


@pytest.mark.parametrize(
    "names",
    [
        ["class_embedding"],
        ["visual.class_embedding", "visual.positional_embedding"],
        ["register_tokens"],
        ["vit.embeddings.cls_token", "vit.encoder.layer.0.attention.attention.query.weight"],
        ["norm_pre.weight", "head.bias"],
    ],
    ids=lambda names: names[0],
)
def test_a_file_that_lacks_most_is_refused_in_one_line(names, tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors.numpy.save({name: np.zeros((), np.float32) for name in names}))
    network = tiny.FAMILIES["vit"](axis_name=None)
    _, variables = tiny.shapes(network)
    networks = {"small": ModelSpec(network.clone, names=NAMES)}
    with pytest.raises(
        UserError, match=r"does not fit config\.model\.name=small.* it lacks "
    ) as error:
        pretrained.load(
            str(path), {"features": variables["params"]}, {}, model_name="small", networks=networks
        )
    assert "\n" not in str(error.value)
