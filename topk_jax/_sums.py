"""Sums of many numbers, and sums to which numbers are added again and again, without drift."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp

from topk_jax import _sharding

# Sums are taken over blocks of this many values, then over blocks of these sums, and so on.
_BLOCK = 32
# The bits of the lower part of an integer.
_LOW_BITS = 16
# The bits of a digit of integers that are added up, if the number of integers is not known: sums of
# up to 2^23 digits.
_DIGIT_BITS = 8


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Sum:
    """Sums in two parts, `[...]`: `high` + `low` of floats, 2^16 `high` + `low` of integers.

    A sum in float32 stays the same when it is 2^24 times what is added, and an integer of 32 bits
    becomes negative at 2^31. The lower part of floats has what the additions have rounded away;
    integers are exact below 2^47, also if `psum` adds up both parts over at most 2^15 devices.
    """

    high: jax.Array
    low: jax.Array

    @staticmethod
    def of(numbers: jax.Array) -> "Sum":
        """The sums that are these numbers `[...]`."""
        if jnp.issubdtype(numbers.dtype, jnp.floating):
            return Sum(numbers, jnp.zeros_like(numbers))
        return Sum(*_parts(numbers, _LOW_BITS))

    @staticmethod
    def over(numbers: jax.Array, add_up: Callable[[jax.Array], jax.Array]) -> "Sum":
        """The sums of numbers `[...]`, which `add_up` makes of them or of digits of them."""
        # Booleans count as 0 and 1.
        if numbers.dtype == jnp.bool_:
            return Sum.of(add_up(numbers.astype(int)))
        if jnp.issubdtype(numbers.dtype, jnp.floating):
            return Sum.of(add_up(numbers))
        # No sum of digits has more than 31 bits. Digits have the sign of their number.
        size = numbers.size
        width = max(1, 31 - size.bit_length()) if isinstance(size, int) else _DIGIT_BITS
        high, low = _parts(numbers, _LOW_BITS)
        found = add_up(high)
        total = Sum(found, jnp.zeros_like(found))
        for shift in range(0, _LOW_BITS, width):
            low, digits = _parts(low, width)
            high, rest = _parts(add_up(digits), _LOW_BITS - shift)
            total += Sum(high, rest << shift)
        return total

    @property
    def dtype(self) -> jnp.dtype:
        """The type of the numbers."""
        return self.high.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the sums."""
        return self.high.shape

    @property
    def is_real(self) -> bool:
        """Whether the numbers are floats."""
        return jnp.issubdtype(self.dtype, jnp.floating)

    @jax.jit
    def __add__(self, other: "Sum") -> "Sum":
        """The sums of both."""
        if self.is_real:
            high, rounded = _add_floats(self.high, other.high)
            return Sum(*_add_floats(high, self.low + other.low + rounded))
        # The lower part is between -2^16 and 2^16 and has one sign.
        carried, low = _parts(self.low + other.low, _LOW_BITS)
        return Sum(self.high + other.high + carried, low)

    def total(self) -> "Sum":
        """The sum of all sums, a scalar."""
        if self.is_real:
            return Sum(jnp.sum(self.high), jnp.sum(self.low))
        # Those on the host are NumPy's.
        lower = Sum.over(jnp.asarray(self.low), jnp.sum)
        return Sum(jnp.sum(self.high) + lower.high, lower.low)

    @jax.jit
    def value(self) -> jax.Array:
        """The numbers `[...]`. Integers beyond their range are the smallest or the largest ones."""
        if self.is_real:
            return self.high + self.low
        high = self.high + (self.low >> _LOW_BITS)
        limits = jnp.iinfo(self.dtype)
        value = (high << _LOW_BITS) | (self.low & ((1 << _LOW_BITS) - 1))
        value = jnp.where(high > limits.max >> _LOW_BITS, limits.max, value)
        return jnp.where(high < limits.min >> _LOW_BITS, limits.min, value)

    def as_floats(self, dtype: jnp.dtype) -> jax.Array:
        """The numbers as floats, `[...]`."""
        high, low = jnp.asarray(self.high).astype(dtype), jnp.asarray(self.low).astype(dtype)
        return high * (1.0 if self.is_real else 2.0**_LOW_BITS) + low


def _add_floats(one: jax.Array, other: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The rounded sum, and what was rounded away (Neumaier): 0 if the sum is not finite."""
    # XLA reassociates sums with constants; it does not look through the selection of the larger
    # one.
    total = one + other
    is_first = jnp.abs(one) >= jnp.abs(other)
    larger, smaller = jnp.where(is_first, one, other), jnp.where(is_first, other, one)
    return total, jnp.where(jnp.isfinite(total), smaller - (total - larger), 0)


def _parts(numbers: jax.Array, bits: int) -> tuple[jax.Array, jax.Array]:
    """Integers without their lowest bits, and these bits, both with the sign of the integer."""
    unit = jnp.full_like(numbers, 1 << bits)
    return jax.lax.div(numbers, unit), jax.lax.rem(numbers, unit)


def sum_in_blocks(values: jax.Array) -> jax.Array:
    """The sum of [N] values in float32, whose error does not grow with N.

    A running sum of 1e8 small numbers would lose several digits. Barriers keep XLA from merging the
    sums over blocks.
    """
    return _sum_in_blocks(_sharding.gather(values))


def _sum_in_blocks(values: jax.Array) -> jax.Array:
    while values.size > 1:
        padded = jnp.pad(values, (0, -values.size % _BLOCK))
        values = jax.lax.optimization_barrier(padded.reshape(-1, _BLOCK).sum(axis=-1))
    return values[0]


def sum_of_rows_in_blocks(rows: jax.Array) -> jax.Array:
    """`sum_in_blocks` of all the values [n, L].

    Split rows are added up by themselves, because a block may have values of two devices.
    """
    if not _sharding.may_be_split(rows):
        return sum_in_blocks(rows.reshape(-1))
    of_rows = jax.vmap(_sum_in_blocks)
    return sum_in_blocks(_sharding.map_examples(of_rows, 1, rows))
