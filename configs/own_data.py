"""The fields shared by the recipes that take any loss after their colon."""

from typing import Any

# Each loss uses the fields that it needs.
_LOSS = {
    "k": 3,
    "epsilon": 1.0,
    "num_samples": 10,
    "tau": 1.0,
    "gamma": 1.0,
    "max_margin": 0.2,
    "scale": 20.0,
    "alpha": 0.3,
    "beta": 0.01,
    "weight": 0.01,
    "label_learning_rate": 1.0,
}
# Other values of these fields for some losses, and the fields that only one loss has.
_OF_LOSS: dict[str, dict[str, Any]] = {
    "vector_scaling": {"gamma": 0.2, "tau": 1.2},
    "generalized_cross_entropy": {"q": 0.7},
    "symmetric_cross_entropy": {"alpha": 0.1, "beta": 1.0},
    "relaxed_top_k_cross_entropy": {
        # The weight of K = 1; k has the rest.
        "top_1_weight": 0.5,
        "method": "odd_even",
        "swap": "cauchy",
        "num_candidates": 16,
    },
    "conformal_training": {
        "error": 0.1,
        "temperature": 0.5,
        "weight": 0.1,
        "smoothing": 0.1,
        "size_weight": 1.0,
    },
    "size_at_average_error": {"error": 0.1, "temperature": 0.5, "weight": 0.1},
    "lapsum_top_k_loss": {"alpha": 1.0},
    "entmax_loss": {"alpha": 1.5},
    "asymmetric": {"gamma_positive": 0.0, "gamma_negative": 4.0, "margin": 0.05},
    "hierarchical_cross_entropy": {"alpha": 0.5},
    "soft_label_cross_entropy": {"beta": 10.0},
}
OPTIMIZER = {
    "learning_rate": 0.02,
    "weight_decay": 1e-4,
    "schedule": "cosine",
    "warmup_epochs": 1.0,
}


def loss_fields(loss: str, **fields: Any) -> dict[str, Any]:
    """`config.loss` of a recipe that takes any loss after its colon.

    Args:
        loss: the name of the loss.
        **fields: values of the recipe's own.
    """
    return {"name": loss, **_LOSS, **fields, **_OF_LOSS.get(loss, {})}
