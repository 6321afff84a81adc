"""The relaxed top-K cross-entropy in the battery, with both softmaxes and a small network.

`operators/test_relaxed_ranks.py` has the other networks and swaps, which take long to compile.
"""

import numpy as np

from tests.topk_jax.losses.battery import NUM_CLASSES, numbers, per_example

_STATIC = frozenset({"method", "swap", "num_candidates", "softmax_top_1"})
# For three sizes.
_WEIGHTS = np.array([0.25, 0.35, 0.4], np.float32)


def relaxed(name, *, refusals=(), **parameters):
    return per_example(
        f"relaxed_top_k_{name}",
        "relaxed_top_k_cross_entropy",
        parameters={"top_k_weights": _WEIGHTS, **parameters},
        static=_STATIC,
        refusals=refusals,
    )


_NO_DISTRIBUTION = (
    ({"top_k_weights": [0.5, 0.4]}, ValueError, r"top_k_weights must sum to 1, got a sum of 0\.9"),
    ({"top_k_weights": [1.5, -0.5]}, ValueError, r"top_k_weights must be at least 0, got -0\.5"),
    ({"top_k_weights": 1.0}, ValueError, r"top_k_weights must have from 1 to 8 entries.*\(\)"),
    ({"top_k_weights": [0.1] * 10}, ValueError, r"top_k_weights must have from 1 .*\(10,\)"),
    ({"top_k_weights": "1"}, TypeError, "top_k_weights must be a real number or array"),
)
_NO_CANDIDATES = (
    ({"num_candidates": 2}, ValueError, r"num_candidates must be from 3 to 8 .*, got 2"),
    ({"num_candidates": NUM_CLASSES + 1}, ValueError, r"num_candidates must be from 3 .*, got 9"),
    ({"num_candidates": 4.0}, TypeError, r"num_candidates must be an integer, got 4\.0"),
)
_NO_RELAXATION = (
    ({"method": "bubble"}, ValueError, r"method must be .*'bitonic'.* or 'soft_sort', got 'bubbl"),
    ({"swap": 1}, ValueError, r"swap must be 'logistic', 'cauchy' or 'optimal', got 1"),
    ({"softmax_top_1": 1}, TypeError, "softmax_top_1 must be a boolean, got 1 of type int"),
    *numbers("tau", too_small=0.0, bound="greater than 0"),
    *numbers("art_lambda", too_small=-0.1, bound="at least 0 and less than 1"),
    ({"art_lambda": 1.0}, ValueError, "art_lambda must be .* less than 1, got 1"),
)

CASES = [
    relaxed("soft_sort", method="soft_sort", tau=0.5),
    relaxed("neural_sort", method="neural_sort", tau=2.0),
    relaxed(
        "bitonic",
        method="bitonic",
        tau=0.5,
        swap="logistic",
        art_lambda=0.25,
        num_candidates=4,
        refusals=_NO_DISTRIBUTION + _NO_CANDIDATES + _NO_RELAXATION,
    ),
]
