"""The battery's cases of the entmax losses."""

from tests.topk_jax.losses.battery import numbers, per_example

_OUTSIDE = (
    *numbers("alpha", too_small=0.9, bound="at least 1 and at most 2"),
    ({"alpha": 2.1}, ValueError, "alpha must be at least 1 and at most 2, got 2.1"),
)

CASES = [
    per_example("entmax_loss", "entmax_loss", parameters={"alpha": 1.5}, refusals=_OUTSIDE),
    per_example("sparsemax_loss", "sparsemax_loss"),
]
