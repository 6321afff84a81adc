"""Argument checks at trace time: types, dtypes, shapes and concrete values.

Every check returns the converted argument, or raises a `ValueError` or `TypeError` that states the
argument's name, its value and the allowed values. Values of traced arrays cannot be read. A traced
parameter outside its range becomes NaN, so the result is NaN too. This check costs a few operations
on a scalar or on a vector with one entry per class.
"""

from topk_jax._checks import _arrays, _examples, _of_classes, _probabilities, _reals, _static
from topk_jax._checks._arrays import *
from topk_jax._checks._examples import *
from topk_jax._checks._of_classes import *
from topk_jax._checks._probabilities import *
from topk_jax._checks._reals import *
from topk_jax._checks._static import *

__all__: list[str] = []
__all__ += _arrays.__all__
__all__ += _examples.__all__
__all__ += _of_classes.__all__
__all__ += _probabilities.__all__
__all__ += _reals.__all__
__all__ += _static.__all__
