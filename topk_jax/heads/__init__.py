"""Losses and the best classes of linear heads, if scores `[batch, L]` do not fit in memory.

Examples take `jnp` and the names of this module as imported.

A NaN or +inf score, or a label outside [0, L), makes the loss of its example NaN.

Arguments that they share:

- `features`: floating-point features x, `[..., d]`.
- `head`: a `LinearHead` of L classes.
- `labels`, `where`: as in `topk_jax.losses`.
- `block_size`: static number of classes whose scores are in memory at a time, at least 1. By
  default a block has 2^20 scores on the CPU, and 2^24 elsewhere.
- `class_axis_name`: the mapped axis of `shard_map` that the classes of the head are split along
  into equal parts, or `None`. Along Explicit mesh axes, types show how examples and classes are
  split, and no name is needed; see `docs/scaling.md`.
"""

from topk_jax.heads._blocks import *
from topk_jax.heads._head import *

# Each file lists its public names.
__all__ = [name for name in dir() if not name.startswith("_")]
