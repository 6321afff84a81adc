"""A network of names: the mean of the embeddings of their character n-grams."""

import functools

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.typing import DTypeLike

# Marks before and after a name, characters that no text has: "ton" at the end is another n-gram
# than inside.
_START, _END = 1, 2
# Odd, with bits that look random: 2^32 divided by the golden ratio.
_MULTIPLIER = 0x9E3779B1


class NgramBag(nn.Module):
    """The sum of the embeddings of all n-grams of a name, over the root of their number.

    An n-gram is embedded by the row of a table that a hash of its characters chooses. Rare n-grams
    share rows with others.

    Attributes:
        axis_name: not used; networks with batch norm average over this axis.
        width: the number of features, which each n-gram is embedded to.
        dropout: the probability that a feature is set to 0 in training.
        lengths: the numbers of characters of the n-grams.
        rows: the number of rows of the table.
        dtype: the type of the embeddings before they are added.
    """

    axis_name: str | None
    width: int = 64
    dropout: float = 0.0
    lengths: tuple[int, ...] = (1, 2, 3, 4)
    rows: int = 2**15
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, names: jax.Array, *, train: bool) -> jax.Array:
        """Names [n, length], code points with 0 after their ends, to features [n, width]."""
        marked = _mark(names.astype(jnp.uint32))
        parts = [_ngrams(marked, length) for length in self.lengths]
        hashes = jnp.concatenate([part for part, _ in parts], axis=-1)
        exists = jnp.concatenate([part for _, part in parts], axis=-1)
        indices = (hashes % jnp.uint32(self.rows)).astype(jnp.int32)
        embedded = nn.Embed(self.rows, self.width, dtype=self.dtype)(indices)
        weights = exists.astype(jnp.float32)
        # Over the root: the sum of independent embeddings then has unit scale for every length.
        weights *= jax.lax.rsqrt(weights.sum(axis=-1, keepdims=True))
        features = jnp.einsum("ng,ngw->nw", weights, embedded.astype(jnp.float32))
        if self.dropout > 0:
            features = nn.Dropout(self.dropout)(features, deterministic=not train)
        return features


def _mark(names: jax.Array) -> jax.Array:
    """The names with their marks, [n, length + 2]."""
    marked = jnp.pad(names, ((0, 0), (1, 1)))
    position = jnp.arange(marked.shape[-1])[None, :]
    # A character is not 0: a name ends at the first 0 after the start.
    end = (names > 0).sum(axis=-1, keepdims=True) + 1
    marked = jnp.where(position == 0, jnp.uint32(_START), marked)
    return jnp.where(position == end, jnp.uint32(_END), marked)


def _ngrams(marked: jax.Array, length: int) -> tuple[jax.Array, jax.Array]:
    """A hash of the n-gram at each position, and whether the name has one there."""
    number = marked.shape[-1] - length + 1
    characters = [marked[:, start : start + number] for start in range(length)]
    # Products of 32 bits, the same on every device.
    seed = jnp.full_like(characters[0], length)
    return functools.reduce(_mixed, characters, seed), characters[-1] > 0


def _mixed(hashes: jax.Array, characters: jax.Array) -> jax.Array:
    product = (hashes ^ characters) * jnp.uint32(_MULTIPLIER)
    # The low bits of a product depend only on low bits; the remainder takes these.
    return product ^ (product >> jnp.uint32(15))
