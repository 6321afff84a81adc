"""Sets of classes from probabilities, and the calibration of thresholds.

A set is a boolean mask over the classes. An example with a NaN score gets the empty set; a score of
+inf is above all numbers. A threshold calibrated on a NaN is NaN, which keeps no class. A traced
parameter outside its range cannot raise. It makes scores and thresholds NaN, and sets empty.
"""

from topk_jax import _adjustment
from topk_jax._adjustment import *
from topk_jax.sets import (
    _average,
    _average_by_class,
    _clusters,
    _covariate_shift,
    _groups,
    _label_shift,
    _new_classes,
    _outliers,
    _quantiles,
    _rank_calibrated,
    _risk,
    _rules,
    _scores,
    _selective,
    _taxonomic,
    _temperature,
    _utility,
    _votes,
)
from topk_jax.sets._average import *
from topk_jax.sets._average_by_class import *
from topk_jax.sets._clusters import *
from topk_jax.sets._covariate_shift import *
from topk_jax.sets._groups import *
from topk_jax.sets._label_shift import *
from topk_jax.sets._new_classes import *
from topk_jax.sets._outliers import *
from topk_jax.sets._quantiles import *
from topk_jax.sets._rank_calibrated import *
from topk_jax.sets._risk import *
from topk_jax.sets._rules import *
from topk_jax.sets._scores import *
from topk_jax.sets._selective import *
from topk_jax.sets._taxonomic import *
from topk_jax.sets._temperature import *
from topk_jax.sets._utility import *
from topk_jax.sets._votes import *

# Each family lists what it makes public.
__all__: list[str] = []
__all__ += _adjustment.__all__
__all__ += _average.__all__
__all__ += _average_by_class.__all__
__all__ += _clusters.__all__
__all__ += _covariate_shift.__all__
__all__ += _groups.__all__
__all__ += _label_shift.__all__
__all__ += _new_classes.__all__
__all__ += _outliers.__all__
__all__ += _quantiles.__all__
__all__ += _rank_calibrated.__all__
__all__ += _risk.__all__
__all__ += _rules.__all__
__all__ += _scores.__all__
__all__ += _selective.__all__
__all__ += _taxonomic.__all__
__all__ += _temperature.__all__
__all__ += _utility.__all__
__all__ += _votes.__all__
