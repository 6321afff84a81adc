"""Metrics of scores and of sets: hits, several labels, votes, new classes, trees, and their means.

Examples take `jnp` and the names of this module as imported.

Most give one value for each example, and `tally` or `tally_by_class` the means of these. Means are
computed from masked and weighted sums and counts (`Tally`), which add up over batches and devices.
A mean of batch means would give padded batches and rare classes a wrong weight.

Arguments that they share:

- `scores`: floating-point scores or probabilities, larger for classes that fit better, `[..., L]`.
- `probabilities`: floating-point, from 0 to 1, `[..., L]`.
- `labels`: integer classes, `[...]`.
- `chosen`: booleans, `[..., L]`, as the functions of `sets` return them.
- `where`: booleans, `[...]`, the examples to include; `None` for all.
- `weights`: real, `[...]`, how much each example counts: finite, at least 0; `None` for 1. An
  example with a weight of 0 counts as one that is left out, whatever its value is. A traced weight
  that is negative or not finite makes the mean NaN.
- `targets`: which classes are labels, `[..., L]`: booleans, or numbers that are 0 or 1. An example
  with another traced number has a NaN, and means leave it out.
- `class_axis_name`: the mapped axis of `shard_map` that the classes are split along into equal
  parts, or `None`.
- `taxonomy`: a `topk_jax.taxonomy.Taxonomy` whose leaves are the L classes.
- `depth`: a static depth of its nodes: 1 right below the root, `taxonomy.depth` for the classes. A
  class that hangs higher is a node of its own.
"""

from topk_jax.metrics._hits import *
from topk_jax.metrics._intervals import *
from topk_jax.metrics._label_quality import *
from topk_jax.metrics._ranking import *
from topk_jax.metrics._tally import *
from topk_jax.metrics._taxonomic import *

# Each file lists its public names.
__all__ = [name for name in dir() if not name.startswith("_")]
