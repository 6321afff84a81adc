"""The noise is the documented generator, normal, and independent where it has to be."""

from statistics import NormalDist

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from topk_jax.operators import _normals


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((2**32 - 1, 2**32 - 1), (2**32 - 1, 2**32 - 1), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_the_generator_gives_the_published_words(key, counter, words):
    arguments = [jnp.uint32(word) for word in (*key, *counter)]
    assert tuple(int(word) for word in _normals.threefry(*arguments)) == words


def test_every_uniform_becomes_its_normal_quantile():
    # All float32 uniforms are 2^23; these are every 64th, and all of both ends.
    images = np.unique(np.concatenate([np.arange(0, 2**23, 64), np.arange(999)]))
    images = np.concatenate([images, 2**23 - 1 - np.arange(999)]).astype(np.uint32)
    uniforms = _normals._between_minus_one_and_one(jnp.asarray(images << 9), jnp.dtype("float32"))
    exact = np.asarray(uniforms, np.float64)
    assert np.abs(exact).max() == 1 - 2.0**-23
    # The upper tail by symmetry: 1 - x is exact, but (1 + x) / 2 would be rounded.
    quantiles = [
        -np.sign(x) * NormalDist().inv_cdf((1 - abs(x)) / 2) for x in exact[:: len(exact) // 9999]
    ]
    found = np.asarray(_normals._normal_quantile(uniforms))[:: len(exact) // 9999]
    # The fits are good to 5e-7 of the value, float32 arithmetic to a few times 6e-8.
    np.testing.assert_allclose(found, quantiles, rtol=8e-7, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_moments_and_independence(dtype):
    with jax.enable_x64(dtype == "float64"):
        words = _normals.row_words(jax.random.split(jax.random.key(3), 8), 8)
        noise = _draw(words, num_samples=25, num_classes=1000, dtype=dtype)
        assert noise.dtype == dtype
    noise = np.asarray(noise, np.float64)
    count = noise.size
    # Standard errors of the moments of a standard normal.
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((noise**power).mean() - moment) < 4 * np.sqrt(variance / count)
    # Neighbours along each axis, and the two words' halves of the classes.
    for axis in range(3):
        first, second = (np.take(noise, range(s, noise.shape[axis] - 1 + s), axis) for s in (0, 1))
        for power in (1, 2):
            product = (first**power - (power == 2)) * (second**power - (power == 2))
            assert abs(product.mean()) < 4 * power / np.sqrt(product.size)


@pytest.mark.parametrize("implementation", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_keys_of_every_implementation_and_every_number_differ(implementation):
    drawn = []
    for seed in (0, 1):
        key = jax.random.key(seed, impl=implementation)
        for keys in (key, jax.random.split(key, 3)):
            words = _normals.row_words(keys, 3)
            assert words.shape == (3, 2)
            drawn.extend(map(tuple, np.asarray(words).tolist()))
    assert len(set(drawn)) == len(drawn) == 12


def test_a_row_keeps_its_noise_in_another_batch():
    keys = jax.random.split(jax.random.key(0), 6)
    np.testing.assert_array_equal(
        _normals.row_words(keys, 6)[2:4], _normals.row_words(keys[2:4], 2)
    )


def _draw(words, *, num_samples, num_classes, dtype):
    samples = jnp.arange(num_samples)[:, None]
    classes = jnp.arange(num_classes)[None, :]
    return jax.vmap(lambda row: _normals.normals(row, samples, classes, jnp.dtype(dtype)))(words)
