"""The case of every function of heads. To add a function, add a case to `CASES`."""

from typing import Any

import numpy as np

from tests.cases.case import Case
from topk_jax import heads, losses


def linear(num_classes: int) -> heads.LinearHead:
    bias = np.arange(num_classes, dtype=np.float32) % 3
    return heads.LinearHead(np.eye(num_classes, dtype=np.float32), bias)


LABELED = {"features": "logits", "labels": "labels"}


def of_features(name: str, arrays: Any = LABELED, *, slopes: int = 1, **parameters: Any) -> Case:
    return Case(public=f"heads.{name}", arrays=arrays, slopes=slopes, parameters=parameters)


CASES: list[Case] = [
    of_features("cross_entropy", head=linear),
    of_features("in_blocks", loss=lambda _: losses.cross_entropy, block_size=3),
    of_features("scores", {"features": "logits"}, head=linear),
    of_features("top_k", {"features": "logits"}, slopes=0, head=linear, k=3),
    of_features("unit_vectors", {"vectors": "logits"}, axis=-1),
]
