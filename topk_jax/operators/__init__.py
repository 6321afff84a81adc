"""Operators on score vectors: the k-th largest score and its smoothed relatives.

A traced parameter outside its range cannot raise, so it makes every result NaN. A NaN or +inf score
makes the results of its own example NaN.
"""

from topk_jax.operators import (
    _entmax,
    _expected,
    _lapsum,
    _p_norm,
    _perturbed,
    _relaxed_ranks,
    _scale_gaps,
    _sigmoid,
    _sinkhorn,
    _sparse,
    _successive_softmax,
    _symmetric,
    _top_k,
)
from topk_jax.operators._entmax import *
from topk_jax.operators._expected import *
from topk_jax.operators._lapsum import *
from topk_jax.operators._p_norm import *
from topk_jax.operators._perturbed import *
from topk_jax.operators._relaxed_ranks import *
from topk_jax.operators._scale_gaps import *
from topk_jax.operators._sigmoid import *
from topk_jax.operators._sinkhorn import *
from topk_jax.operators._sparse import *
from topk_jax.operators._successive_softmax import *
from topk_jax.operators._symmetric import *
from topk_jax.operators._top_k import *

# Each family lists what it makes public.
__all__: list[str] = []
__all__ += _entmax.__all__
__all__ += _expected.__all__
__all__ += _lapsum.__all__
__all__ += _p_norm.__all__
__all__ += _perturbed.__all__
__all__ += _relaxed_ranks.__all__
__all__ += _scale_gaps.__all__
__all__ += _sigmoid.__all__
__all__ += _sinkhorn.__all__
__all__ += _sparse.__all__
__all__ += _successive_softmax.__all__
__all__ += _symmetric.__all__
__all__ += _top_k.__all__
