"""Losses for set-valued classification: one loss per example, unless they couple the batch.

A traced parameter outside its range cannot raise, so it makes every loss NaN. A NaN or +inf logit,
or a label outside [0, L), makes the loss and gradient of its own example NaN. A logit of -inf masks
its class. The label of a masked class has a large finite loss, about 1e30 for most losses, so that
one such example can be noticed and does not make parameters NaN.

A parameter such as `epsilon` or `alpha` is one number for all examples. `jax.vmap` over the
examples and the parameter gives each example its own. Labels are classes, not one-hot vectors:
`expect_over_labels` takes one-hot and soft labels for every loss of single examples.
"""

from topk_jax.losses import (
    _average_k,
    _cardinality,
    _conformal_training,
    _efficiency_gap,
    _entmax,
    _hierarchical,
    _hinge,
    _label_distribution,
    _label_noise,
    _long_tail,
    _multilabel,
    _noised,
    _p_values,
    _relaxed_top_k,
    _set_size,
    _smooth,
    _soft_top_k,
    _softmax,
    _sparse,
)
from topk_jax.losses._average_k import *
from topk_jax.losses._cardinality import *
from topk_jax.losses._conformal_training import *
from topk_jax.losses._efficiency_gap import *
from topk_jax.losses._entmax import *
from topk_jax.losses._hierarchical import *
from topk_jax.losses._hinge import *
from topk_jax.losses._label_distribution import *
from topk_jax.losses._label_noise import *
from topk_jax.losses._long_tail import *
from topk_jax.losses._multilabel import *
from topk_jax.losses._noised import *
from topk_jax.losses._p_values import *
from topk_jax.losses._relaxed_top_k import *
from topk_jax.losses._set_size import *
from topk_jax.losses._smooth import *
from topk_jax.losses._soft_top_k import *
from topk_jax.losses._softmax import *
from topk_jax.losses._sparse import *

# Each family lists what it makes public.
__all__: list[str] = []
__all__ += _average_k.__all__
__all__ += _cardinality.__all__
__all__ += _conformal_training.__all__
__all__ += _efficiency_gap.__all__
__all__ += _entmax.__all__
__all__ += _hierarchical.__all__
__all__ += _hinge.__all__
__all__ += _label_distribution.__all__
__all__ += _label_noise.__all__
__all__ += _long_tail.__all__
__all__ += _multilabel.__all__
__all__ += _noised.__all__
__all__ += _p_values.__all__
__all__ += _relaxed_top_k.__all__
__all__ += _set_size.__all__
__all__ += _smooth.__all__
__all__ += _soft_top_k.__all__
__all__ += _softmax.__all__
__all__ += _sparse.__all__
