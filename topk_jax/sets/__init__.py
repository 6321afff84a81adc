"""Sets of classes from probabilities, and the calibration of thresholds.

Examples take `jnp` and the names of this module as imported.

A set is a boolean mask over the classes. An example with a NaN score gets the empty set; a score of
+inf is above all numbers. A threshold or quantile of a NaN, or of a label outside [0, L), is NaN,
which keeps no class. A quantile of infinity keeps all. A traced parameter outside its range cannot
raise. It makes scores, thresholds and quantiles NaN, and sets empty. Results are in float32, or in
float64 if the scores are. Sums that decide have 16 roundings to spare.

If the examples are split over devices, quantiles and thresholds get a score of each label from all
devices, because they need them in one order.

Arguments that they share:

- `probabilities`: floating-point numbers from 0 to 1, `[..., L]`, not logits; where sets or scores
  add them up, with sum 1 over the classes.
- `scores`: floating-point scores that are smaller for classes that fit better, as from
  `conformal_scores`: of all classes, `[..., L]`, or, for calibration, only of the labels, a vector
  `[n]`. A calibration needs at least one example.
- `labels`: integer classes, `[...]`; `[n]` with scores only of the labels.
- `error`: static rate of missed labels, a real number in [0, 1), taken as its shortest decimal.
- `num_classes`: the static number L of classes; quantiles need it with scores only of the labels.
- `key`: one key of `jax.random.key`, or `None` for scores without randomness.
- `groups`: the integer group of each example, `[...]`; one outside [0, num_groups) is in none.
  `num_groups` is static.
- `features`: floating-point numbers, `[..., d]`.
- `taxonomy`: a `topk_jax.taxonomy.Taxonomy` of V nodes; the first L nodes are the classes.
- `class_axis_name`: the mapped axis of `shard_map` that the classes are split along into equal
  parts, or `None`.
"""

from topk_jax.sets._class_quantiles import *
from topk_jax.sets._logits import *
from topk_jax.sets._means import *
from topk_jax.sets._open import *
from topk_jax.sets._quantiles import *
from topk_jax.sets._rules import *
from topk_jax.sets._scores import *
from topk_jax.sets._taxonomic import *

# Each file lists its public names.
__all__ = [name for name in dir() if not name.startswith("_")]
