"""The losses of soft top-k memberships, for the battery."""

from tests.topk_jax.losses.battery import NUM_CLASSES, numbers, per_example, set_sizes

CASES = [
    per_example(
        "lapsum_top_k_loss",
        "lapsum_top_k_loss",
        parameters={"k": 3, "alpha": 0.7},
        refusals=set_sizes(NUM_CLASSES) + numbers("alpha", too_small=0.0, bound="greater than 0"),
    ),
    per_example(
        "sigmoid_top_k_loss",
        "sigmoid_top_k_loss",
        parameters={"k": 3, "tau": 0.7},
        refusals=set_sizes(NUM_CLASSES - 1) + numbers("tau", too_small=0.0, bound="greater than 0"),
    ),
]
