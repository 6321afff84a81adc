"""The case of every function of heads. To add a function, add a case to `CASES`."""

from typing import Any

import numpy as np

from tests.cases.case import NUM_SAMPLES, Case, margins
from tests.cases.ranges import AT_LEAST_0, MARGINS, POSITIVE
from topk_jax import heads


def cosine(num_classes: int) -> heads.CosineHead:
    return heads.CosineHead(np.eye(num_classes, dtype=np.float32), 2.0)


def linear(num_classes: int) -> heads.LinearHead:
    bias = np.arange(num_classes, dtype=np.float32) % 3
    return heads.LinearHead(np.eye(num_classes, dtype=np.float32), bias)


LABELED = {"features": "logits", "labels": "labels"}


def of_features(
    name: str,
    arrays: Any = LABELED,
    *,
    ranges: Any = (),
    variant: str = "",
    slopes: int = 1,
    **parameters: Any,
) -> Case:
    return Case(
        public=f"heads.{name}",
        variant=variant,
        arrays=arrays,
        slopes=slopes,
        parameters={"head": cosine, **parameters},
        ranges=dict(ranges),
    )


CASES: list[Case] = [
    of_features("average_k", ranges={"alpha": AT_LEAST_0}, proposal_head=linear, k=2, alpha=0.5),
    of_features("calibrated_top_k_hinge", k=3),
    of_features("convex_top_k_hinge", k=3),
    of_features("cross_entropy"),
    of_features(
        "noised_top_k_hinge",
        {**LABELED, "key": "key"},
        ranges={"epsilon": AT_LEAST_0, "margins": MARGINS, "scale": POSITIVE},
        k=2,
        epsilon=0.5,
        num_samples=NUM_SAMPLES,
        margins=margins,
        scale=2.0,
    ),
    of_features("scores", {"features": "logits"}),
    of_features("scores", {"features": "logits"}, variant="linear", head=linear),
    of_features("top_k", {"features": "logits"}, slopes=0, k=3),
    of_features("top_k_hinge", k=3),
    of_features("top_k_hinge", {**LABELED, "where": "hits"}, k=3, variant="where"),
]
