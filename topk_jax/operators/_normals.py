"""Standard normal noise as a function of a key, a sample and a class, so it need not be stored."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

_WORD_BITS = 32
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)
# The second word of the counter that derives each row's words from one key. Its value is arbitrary.
_ROW = 0x726F7773

# Polynomials from Chebyshev interpolation in float64, lowest power first. The first two approximate
# the normal quantile divided by x, as functions of w = -log(1 - x^2) mapped to [-1, 1] from [0, 6]
# and [6, 16], with relative errors below 5e-7. The third approximates log(1 + r) on [-1/3, 1/3]
# with an error below 4e-8.
_CENTRAL = (
    *(2.2960355, 1.0251561, -0.073050335, -0.031998452),
    *(0.022442538, -0.0041142413, -0.0020242787, 0.0010463404),
)
_TAIL = (
    *(4.4560208, 1.0723276, -0.11805102, 0.024870997),
    *(-0.0062623499, 0.0014962081, 0.00017437317, -0.00030386879),
)
_LOGARITHM = (
    *(-4.315174e-09, 0.99999923, -0.49999809, 0.33342215, -0.2501362),
    *(0.19718941, -0.16332267, 0.17502542, -0.15765548),
)


def row_words(keys: jax.Array, num_rows: int) -> jax.Array:
    """Two words of 32 bits per row, `[n, 2]`, from one random key `[]` or one key per row `[n]`.

    With one key they depend on the row's index. Keys of all implementations work.
    """
    data = jax.random.key_data(keys)
    first, second = data[..., 0], data[..., 1]
    for index in range(2, data.shape[-1], 2):
        first, second = threefry(first, second, data[..., index], data[..., index + 1])
    if keys.ndim == 0:
        rows = jnp.arange(num_rows, dtype=jnp.uint32)
        first, second = threefry(first, second, rows, jnp.full_like(rows, _ROW))
    # Without a barrier XLA computes the words again for every class.
    return jnp.stack(jax.lax.optimization_barrier((first, second)), axis=-1)


# It has many operations, so it is compiled into one program when it is called outside jit.
@functools.partial(jax.jit, static_argnames="dtype")
def normals(words: jax.Array, sample: jax.Array, classes: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """The noise of the sample with this index for some classes, under the words [2] of a row.

    It has the generator of `jax.random.normal`, threefry with 20 rounds, which on the CPU stores
    its counters and bits, and took two to three times as long. Written out, XLA fuses it with the
    quantile function and with the use of the noise. Several uses need a barrier.
    """
    counter = sample.astype(jnp.uint32), classes.astype(jnp.uint32)
    first, second = threefry(words[0], words[1], *counter)
    if dtype == jnp.float64:
        wide = first.astype(jnp.uint64) << _WORD_BITS | second.astype(jnp.uint64)
        return np.sqrt(2) * jax.lax.erf_inv(_between_minus_one_and_one(wide, dtype))
    return _normal_quantile(_between_minus_one_and_one(first ^ second, jnp.dtype(jnp.float32)))


def threefry(
    first_key: jax.Array, second_key: jax.Array, first: jax.Array, second: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The Threefry 2x32 generator with 20 rounds: two words from a key and a counter of two words.

    Source: Salmon, Moraes, Dror and Shaw (2011), "Parallel random numbers: as easy as 1, 2, 3".
    """
    keys = (first_key, second_key, first_key ^ second_key ^ _PARITY)
    first, second = first + keys[0], second + keys[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            first = first + second
            second = first ^ (second << rotation | second >> (_WORD_BITS - rotation))
        first = first + keys[(group + 1) % 3]
        second = second + keys[(group + 2) % 3] + np.uint32(group + 1)
    return first, second


def _between_minus_one_and_one(bits: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """Maps random bits to the centres of equal cells of (-1, 1), one cell per mantissa value."""
    information = jnp.finfo(dtype)
    one = np.ones((), dtype).view(bits.dtype)
    fraction = bits >> (information.bits - information.nmant) | one
    from_one_to_two = jax.lax.bitcast_convert_type(fraction, dtype)
    return 2 * (from_one_to_two - 1.5) + information.eps.astype(dtype)


def _normal_quantile(x: jax.Array) -> jax.Array:
    """The number that a standard normal exceeds with probability (1 - x) / 2, in float32.

    Divided by x, it is a smooth function of w = -log((1 - x)(1 + x)) (Giles, 2012, "Approximating
    the erfinv function"): both factors are exact for these x, while log1p(-x^2) has an error of
    2e-5 near x = 1. XLA would not fuse a root or a logarithm with the code that follows, so there
    are polynomials alone. The error is below 5e-6 in the tail and 1e-6 elsewhere.
    """
    w = -_logarithm((1 - x) * (1 + x))
    in_center = w < 6
    argument = jnp.where(in_center, w / 3 - 1, w / 5 - np.float32(2.2))
    ratio = jnp.zeros_like(argument)
    for central, tail in zip(reversed(_CENTRAL), reversed(_TAIL), strict=True):
        ratio = ratio * argument + jnp.where(in_center, np.float32(central), np.float32(tail))
    return ratio * x


def _logarithm(x: jax.Array) -> jax.Array:
    """The natural logarithm of positive normal float32 numbers, with an absolute error of 1e-7."""
    bits = jax.lax.bitcast_convert_type(x, jnp.int32)
    # The power of 2 that leaves a factor in [2/3, 4/3).
    power = (bits - np.float32(2 / 3).view(np.int32)) >> 23
    rest = jax.lax.bitcast_convert_type(bits - (power << 23), jnp.float32) - 1
    logarithm = jnp.zeros_like(rest)
    for coefficient in reversed(_LOGARITHM):
        logarithm = logarithm * rest + np.float32(coefficient)
    return logarithm + power.astype(jnp.float32) * np.float32(np.log(2))
