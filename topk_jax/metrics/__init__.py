"""Metrics of scores and of sets: hits, several labels, votes, new classes, trees, and their means.

Most give one value for each example, and `tally` or `tally_by_class` the means of these. Means are
computed from masked and weighted sums and counts (`Tally`), which add up over batches and devices.
A mean of batch means would give padded batches and rare classes a wrong weight.

Arguments that they share:

- `labels`: integer classes, `[...]`.
- `chosen`: booleans, `[..., L]`, as the functions of `sets` return them.
- `where`: booleans, `[...]`, the examples to include; `None` for all.
- `weights`: real, `[...]`, how much each example counts: finite, at least 0; `None` for 1. An
  example with a weight of 0 counts as one that is left out, whatever its value is. A traced weight
  that is negative or not finite makes the mean NaN.
- `targets`: which classes are labels, `[..., L]`: booleans, or numbers that are 0 or 1.
- `class_axis_name`: the mapped axis of `shard_map` that the classes are split along into equal
  parts, or `None`.
- `taxonomy`: a `topk_jax.taxonomy.Taxonomy` whose leaves are the L classes.
- `depth`: a static depth of its nodes: 1 right below the root, `taxonomy.depth` for the classes. A
  class that hangs higher is a node of its own.
"""

from topk_jax.metrics import (
    _hits,
    _intervals,
    _label_quality,
    _open_sets,
    _ranking,
    _several_labels,
    _tally,
    _taxonomic,
    _votes,
)
from topk_jax.metrics._hits import *
from topk_jax.metrics._intervals import *
from topk_jax.metrics._label_quality import *
from topk_jax.metrics._open_sets import *
from topk_jax.metrics._ranking import *
from topk_jax.metrics._several_labels import *
from topk_jax.metrics._tally import *
from topk_jax.metrics._taxonomic import *
from topk_jax.metrics._votes import *

# Each family lists what it makes public.
__all__: list[str] = []
__all__ += _hits.__all__
__all__ += _intervals.__all__
__all__ += _label_quality.__all__
__all__ += _open_sets.__all__
__all__ += _ranking.__all__
__all__ += _several_labels.__all__
__all__ += _tally.__all__
__all__ += _taxonomic.__all__
__all__ += _votes.__all__
