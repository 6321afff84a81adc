"""The random numbers that keys stand for, of which results are functions."""

import jax
import numpy as np
from scipy.special import ndtri

_ROW = 0x726F7773


def uniform(key, shape):
    """Numbers in [0, 1) of one key, in float32."""
    return np.asarray(jax.random.uniform(key, shape, np.float32), np.float64)


def noise(key, *, num_samples, batch_shape, num_classes):
    """Normal numbers `[M, ..., L]` of one key, or of one for each example: `[...]`.

    They are the normal quantiles of the middles of 2^23 equal parts of (0, 1). The generator
    chooses the part by the sample and the class, with two words of the example as its key: the
    words of its own key, or those of one key for all and the example's index.
    """
    words = np.asarray(jax.random.key_data(key)).astype(np.uint32)
    rows = int(np.prod(batch_shape))
    if words.ndim == 1 and batch_shape:
        words = np.stack(threefry(*words, np.arange(rows), _ROW), axis=-1)
    first, second = (word[None, :, None] for word in words.reshape(-1, 2).T)
    samples, classes = np.arange(num_samples)[:, None, None], np.arange(num_classes)
    one, other = threefry(first, second, samples, classes)
    middles = ((one ^ other) >> 9).astype(np.float64) + 0.5
    return ndtri(middles / 2**23).reshape(num_samples, *batch_shape, num_classes)


def noise_of(key, given, num_samples, shape):
    """The given noise; without, that of the key for scores `[..., L]`."""
    if given is not None:
        return given
    *batch_shape, size = shape
    return noise(key, num_samples=num_samples, batch_shape=tuple(batch_shape), num_classes=size)


def threefry(first_key, second_key, first, second):
    """Threefry 2x32 with 20 rounds (Salmon et al. 2011), with integers modulo 2^32."""
    keys = [np.asarray(key).astype(np.uint64) for key in (first_key, second_key)]
    keys.append(keys[0] ^ keys[1] ^ np.uint64(0x1BD11BDA))
    low = np.uint64(2**32 - 1)
    x, y = (np.asarray(word).astype(np.uint64) for word in (first, second))
    x, y = (x + keys[0]) & low, (y + keys[1]) & low
    rotations = (13, 15, 26, 6, 17, 29, 16, 24)
    for number in range(20):
        left = np.uint64(rotations[number % 8])
        x = (x + y) & low
        y = ((y << left | y >> (np.uint64(32) - left)) & low) ^ x
        if number % 4 == 3:
            group = number // 4 + 1
            x = (x + keys[group % 3]) & low
            y = (y + keys[(group + 1) % 3] + np.uint64(group)) & low
    return x.astype(np.uint32), y.astype(np.uint32)
