"""The losses for wrong labels, in the battery."""

from tests.topk_jax.losses.battery import numbers, per_example

CASES = [
    per_example(
        "generalized_cross_entropy",
        "generalized_cross_entropy",
        parameters={"q": 0.7},
        refusals=(
            *numbers("q", too_small=0.0, bound="greater than 0 and at most 1"),
            ({"q": 1.5}, ValueError, "q must be greater than 0 and at most 1, got 1.5"),
        ),
    ),
    per_example(
        "symmetric_cross_entropy",
        "symmetric_cross_entropy",
        parameters={"alpha": 0.3, "beta": 0.9, "log_zero": -3.0},
        refusals=(
            *numbers("alpha", too_small=-0.1, bound="at least 0"),
            *numbers("beta", too_small=-0.1, bound="at least 0"),
            *numbers("log_zero", too_small=0.0, bound="less than 0"),
        ),
    ),
]
