"""Losses and the best classes, over blocks of classes, if scores `[batch, L]` do not fit in memory.

A NaN or +inf score, or a label outside [0, L), makes the loss of its example NaN. A traced
parameter outside its range makes every loss NaN.
"""

from topk_jax.heads import _average_k, _head, _hinge, _noised, _scores, _softmax, _top_k
from topk_jax.heads._average_k import *
from topk_jax.heads._head import *
from topk_jax.heads._hinge import *
from topk_jax.heads._noised import *
from topk_jax.heads._scores import *
from topk_jax.heads._softmax import *
from topk_jax.heads._top_k import *

# Each family lists what it makes public.
__all__: list[str] = []
__all__ += _average_k.__all__
__all__ += _head.__all__
__all__ += _hinge.__all__
__all__ += _noised.__all__
__all__ += _scores.__all__
__all__ += _softmax.__all__
__all__ += _top_k.__all__
