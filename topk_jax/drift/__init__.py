"""After deployment: sets that follow a drift, and tests that notice one.

Each class is the state after some outcomes. `start` makes the first one, and `update` returns the
next one: a pure function, which works under `jit`, `vmap` (over many states) and `scan` (over the
outcomes). A state is a tree of a few arrays, so any checkpoint can store it.
"""

from topk_jax.drift._bets import CoverageTest, JumperMartingale, OnlineRanks
from topk_jax.drift._quantile import AdaptiveQuantile

__all__ = ["AdaptiveQuantile", "CoverageTest", "JumperMartingale", "OnlineRanks"]
