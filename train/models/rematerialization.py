"""Activations that the backward pass computes again, so that they need no memory until then.

A network marks what each of its blocks ends with. With `config.model.remat` these are the only
activations that are kept for the backward pass. When it needs the activations inside a block, it
computes them again from the end of the block before it.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax.ad_checkpoint import checkpoint_name

_END_OF_BLOCK = "end of a block"


def kept_by_remat(outputs: jax.Array) -> jax.Array:
    """The outputs of a block, which `rematerialized` keeps for the backward pass."""
    marked: jax.Array = checkpoint_name(outputs, _END_OF_BLOCK)
    return marked


def rematerialized(network: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, whose gradient keeps only the ends of blocks; values do not change."""
    policy = jax.checkpoint_policies.save_only_these_names(_END_OF_BLOCK)
    found: Callable[..., Any] = jax.checkpoint(network, policy=policy)
    return found
