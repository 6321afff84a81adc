"""Operators on score vectors: the k-th largest score and its smoothed relatives.

A traced parameter outside its range cannot raise, so it makes every result NaN. A NaN or +inf score
makes the results of its own example NaN.

Arguments that they share:

- `scores`: a floating-point array with L entries along `axis`.
- `axis`: the axis of the classes, static.
"""

from topk_jax.operators._entmax import entmax, sparse_top
from topk_jax.operators._expected import expected_top_k_value
from topk_jax.operators._perturbed import perturbed_top_k_sum, perturbed_top_k_value
from topk_jax.operators._relaxed_ranks import relaxed_ranks
from topk_jax.operators._rivals import p_norm_top_k, sigmoid_top_k, successive_softmax_top_k
from topk_jax.operators._soft_top_k import lapsum_top_k, sinkhorn_top_k
from topk_jax.operators._top_k import top_k_sum, top_k_value

__all__ = [
    "entmax",
    "expected_top_k_value",
    "lapsum_top_k",
    "p_norm_top_k",
    "perturbed_top_k_sum",
    "perturbed_top_k_value",
    "relaxed_ranks",
    "sigmoid_top_k",
    "sinkhorn_top_k",
    "sparse_top",
    "successive_softmax_top_k",
    "top_k_sum",
    "top_k_value",
]
