"""What functions of a taxonomy share: checks of arguments, and sums over the classes of nodes."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, _sharding
from topk_jax.taxonomy import Taxonomy


def check(taxonomy: Taxonomy) -> None:
    """Raises if an argument is not a taxonomy."""
    if not isinstance(taxonomy, Taxonomy):
        raise TypeError(f"taxonomy must be a Taxonomy, got {_checks.describe(taxonomy)}.")


def check_classes(shape: tuple[int, ...], name: str, taxonomy: Taxonomy) -> None:
    """Raises if an array does not have the classes of a taxonomy as its last axis."""
    check(taxonomy)
    if shape[-1:] != (taxonomy.num_classes,):
        raise ValueError(
            f"{name} must have one entry for each of the {taxonomy.num_classes} classes of the "
            f"taxonomy, got shape {shape}."
        )


def members_of(members: ArrayLike, name: str, taxonomy: Taxonomy) -> jax.Array:
    """Returns sets of the classes of a taxonomy, booleans [..., L], or raises."""
    found = _checks.boolean_array(members, name)
    check_classes(found.shape, name, taxonomy)
    return found


def probabilities_of(probabilities: ArrayLike, name: str, taxonomy: Taxonomy) -> jax.Array:
    """Returns probabilities of the classes of a taxonomy, [..., L], or raises."""
    found = _checks.probabilities(probabilities, name)
    check_classes(found.shape, name, taxonomy)
    return found


def depth_of(depth: int, taxonomy: Taxonomy) -> int:
    """Returns the depth of nodes below the root, or raises."""
    check(taxonomy)
    return _checks.static_integer(
        depth, "depth", minimum=1, maximum=taxonomy.depth, reason="the depth of the taxonomy"
    )


def map_rows(
    function: Callable[..., jax.Array], values: jax.Array, *of_examples: jax.Array
) -> jax.Array:
    """`function` of rows [n, L] and arrays [n], with a result for each row, on each device."""

    def of_batch(values: jax.Array, *of_examples: jax.Array) -> jax.Array:
        own = (array.reshape(-1) for array in of_examples)
        rows = function(values.reshape(-1, values.shape[-1]), *own)
        return rows.reshape(*values.shape[:-1], *rows.shape[1:])

    return _sharding.map_examples(of_batch, values.ndim - 1, values, *of_examples)


def groups_at(taxonomy: Taxonomy, depth: int) -> tuple[np.ndarray, int]:
    """The number of the node at a depth of each class, from 0, int32 [L], and how many there are.

    A class that hangs higher is a node of its own.
    """
    nodes, groups = np.unique(taxonomy.ancestors[:, depth], return_inverse=True)
    return groups.astype(np.int32), len(nodes)


def group_of_label(groups: np.ndarray, number: int, labels: jax.Array) -> jax.Array:
    """The group of each label, [...]; `number`, which no group has, for a label out of range."""

    def find(labels: jax.Array) -> jax.Array:
        in_range = (labels >= 0) & (labels < len(groups))
        found = jnp.asarray(groups)[jnp.clip(labels, 0, len(groups) - 1)]
        return jnp.where(in_range, found, number)

    return _sharding.map_examples(find, labels.ndim, labels)


@partial(jax.jit, static_argnums=(0, 1))
def group_sums(taxonomy: Taxonomy, depth: int, rows: jax.Array) -> jax.Array:
    """The sums of rows [n, L] over the classes of each group of `groups_at`, [n, G].

    Hazard: for integers, one group and n = L, XLA on the CPU (JAX 0.10) shares one buffer between
    the places, all 0, and the sums. Choice: no scatter for one group.
    """
    groups, number = groups_at(taxonomy, depth)
    if number == 1:
        return rows.sum(axis=1, keepdims=True, dtype=rows.dtype)
    return jnp.zeros((rows.shape[0], number), rows.dtype).at[:, groups].add(rows)


def shared_depths(taxonomy: Taxonomy, labels: jax.Array) -> jax.Array:
    """How many nodes the ways from the root to labels [n] and to each class share, int32 [n, L].

    A way is filled up with its class, so that a class shares all of its way with itself.
    """
    ancestors = jnp.asarray(taxonomy.ancestors)
    way = ancestors[jnp.clip(labels, 0, taxonomy.num_classes - 1)]
    depths = range(taxonomy.depth + 1)
    return sum(
        ((ancestors[None, :, depth] == way[:, None, depth]).astype(jnp.int32) for depth in depths),
        start=jnp.zeros((*way.shape[:1], taxonomy.num_classes), jnp.int32),
    )


def heights_of_ways(taxonomy: Taxonomy, labels: jax.Array) -> jax.Array:
    """The heights of the nodes from the root to labels, int32 [..., D + 1]."""
    heights = jnp.asarray(taxonomy.heights[taxonomy.ancestors])
    return heights[jnp.clip(labels, 0, taxonomy.num_classes - 1)]
