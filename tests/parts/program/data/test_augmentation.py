"""What each data set does to its training images, and how likely each change is."""

import collections
import importlib

import jax
import numpy as np
import pytest

from tests.parts.program.data.specs import dataset_spec
from train.data import augmentation

# Every pixel is another, and none is black.
IMAGE = np.arange(1, 82, dtype=np.uint8).reshape(9, 9, 1)
CIFAR = ((125.3 / 255, 123.0 / 255, 113.9 / 255), (63.0 / 255, 62.1 / 255, 66.7 / 255))
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def spec_of(recipe):
    config = importlib.import_module(f"configs.{recipe}").get_config()
    return dataset_spec(config.dataset.to_dict())


def shifts(pixels):
    """The image, moved in all ways by up to a number of pixels, with black moving in."""
    padded = np.pad(IMAGE, [(pixels, pixels)] * 2 + [(0, 0)])
    places = range(2 * pixels + 1)
    return [padded[row : row + 9, column : column + 9] for row in places for column in places]


# Up to how many pixels an image is moved, and whether it is flipped.
CHANGES = {
    "cifar100": (4, True),
    "digits": (1, False),
    "imagenet": (0, True),
    "imagenet_lt": (0, True),
    "plantnet300k": (0, False),
    "synthetic_species": (0, False),
}


@pytest.mark.parametrize("recipe", CHANGES)
def test_each_change_of_the_recipe_is_as_likely_and_there_is_no_other(key, recipe):
    pixels, flips = CHANGES[recipe]
    expected = [
        image.tobytes()
        for shift in shifts(pixels)
        for image in ((shift, shift[:, ::-1]) if flips else (shift,))
    ]
    draws = 50 * len(expected)
    augment = jax.jit(jax.vmap(spec_of(recipe).augment, in_axes=(0, None)))
    changed = np.asarray(augment(jax.random.split(key, draws), IMAGE))
    found = collections.Counter(image.tobytes() for image in changed)
    # The chance that 50 a change miss one is below 162 exp(-50).
    assert set(found) == set(expected)
    counts = np.array(list(found.values()))
    # Pearson's statistic: further above its mean once in 100,000 times at most.
    freedom = len(expected) - 1
    assert ((counts - 50) ** 2 / 50).sum() <= freedom + 6 * np.sqrt(2 * freedom) + 6


def test_images_are_normalised_with_the_constants_of_the_recipe():
    streamed = ("imagenet", "imagenet_lt", "plantnet300k", "plantnet300k_average_k")
    for recipe, constants in {"cifar100": CIFAR, **dict.fromkeys(streamed, IMAGENET)}.items():
        spec = spec_of(recipe)
        assert (spec.mean, spec.std) == constants
    images = np.arange(96, dtype=np.uint8).reshape(2, 4, 4, 3)
    mean, std = np.array(CIFAR)
    # Rounded in float32.
    found = augmentation.normalize(images, *CIFAR)
    np.testing.assert_allclose(found, (images / 255 - mean) / std, rtol=1e-5, atol=1e-6)
