"""After deployment: sets that follow a drift, and tests that notice one.

Each class is the state after some outcomes. `start` makes the first one, and `update` returns the
next one: a pure function, which works under `jit`, `vmap` (over many states) and `scan` (over the
outcomes). A state is a tree of a few arrays, so any checkpoint can store it.
"""

from topk_jax.drift import _adaptive, _coverage, _exchangeability
from topk_jax.drift._adaptive import *
from topk_jax.drift._coverage import *
from topk_jax.drift._exchangeability import *

# Each family lists what it makes public.
__all__: list[str] = []
__all__ += _adaptive.__all__
__all__ += _coverage.__all__
__all__ += _exchangeability.__all__
