"""Operators on score vectors: the k-th largest score and its smoothed relatives.

Examples take `jnp` and the names of this module as imported.

A traced parameter outside its range cannot raise, so it makes every result NaN. A NaN or +inf score
makes the results of its own example NaN. Results are in float32 or float64.

Arguments that they share:

- `scores`: a floating-point array with L entries along `axis`.
- `axis`: the axis of the classes, static.
"""

from topk_jax.operators._entmax import *
from topk_jax.operators._expected import *
from topk_jax.operators._perturbed import *
from topk_jax.operators._relaxed_ranks import *
from topk_jax.operators._rivals import *
from topk_jax.operators._soft_top_k import *
from topk_jax.operators._top_k import *

# Each file lists its public names.
__all__ = [name for name in dir() if not name.startswith("_")]
