"""Sets of classes from probabilities, and the calibration of thresholds.

A set is a boolean mask over the classes. An example with a NaN score gets the empty set; a score of
+inf is above all numbers. A threshold calibrated on a NaN or on a label outside [0, L) is NaN,
which keeps no class. A traced parameter outside its range cannot raise. It makes scores and
thresholds NaN, and sets empty. Results are in float32, or in float64 if the scores are.

Sums that decide have 16 roundings to spare. If the examples are split over devices, quantiles and
thresholds get a score of each label from all devices, because they need them in one order.

Arguments that they share:

- `scores`: floating-point scores that are smaller for classes that fit better, as from
  `conformal_scores`: of all classes, `[..., L]`, or, for calibration, of the labels alone, a vector
  `[n]`. There is at least one example.
- `labels`: integer classes, `[...]`; `[n]` with scores of the labels alone.
- `error`: static rate of missed labels, a real number in [0, 1), taken as its shortest decimal.
- `num_classes`: the static number L of classes; needed with scores of the labels alone.
- `class_axis_name`: the mapped axis of `shard_map` that the classes are split along into equal
  parts, or `None`.
"""

from topk_jax.sets import (
    _average,
    _clusters,
    _groups,
    _new_classes,
    _outliers,
    _quantiles,
    _risk,
    _rules,
    _scores,
    _taxonomic,
    _temperature,
    _weighted_quantiles,
)
from topk_jax.sets._average import *
from topk_jax.sets._clusters import *
from topk_jax.sets._groups import *
from topk_jax.sets._new_classes import *
from topk_jax.sets._outliers import *
from topk_jax.sets._quantiles import *
from topk_jax.sets._risk import *
from topk_jax.sets._rules import *
from topk_jax.sets._scores import *
from topk_jax.sets._taxonomic import *
from topk_jax.sets._temperature import *
from topk_jax.sets._weighted_quantiles import *

# Each family lists what it makes public.
__all__: list[str] = []
__all__ += _average.__all__
__all__ += _clusters.__all__
__all__ += _groups.__all__
__all__ += _new_classes.__all__
__all__ += _outliers.__all__
__all__ += _quantiles.__all__
__all__ += _risk.__all__
__all__ += _rules.__all__
__all__ += _scores.__all__
__all__ += _taxonomic.__all__
__all__ += _temperature.__all__
__all__ += _weighted_quantiles.__all__
