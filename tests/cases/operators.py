"""The case of every operator. To add an operator, add a case to `CASES`.

`operators/test_battery.py` puts each `Operator`, which needs no key, through its tests.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from tests import reference
from tests.cases.case import NUM_SAMPLES, Case
from tests.cases.ranges import AT_LEAST_0, ENTMAX_ALPHA, POSITIVE, Listed, Range

EPS = float(np.finfo(np.float32).eps)
SCORES = {"scores": "logits"}


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Operator(Case):
    """An operator of scores, often with a k, and what the battery may expect of it.

    Attributes:
        jacobian: the Jacobian of its reference for one row.
        tolerated: rounding errors of a value, in units of eps, of its size, k and the number of
            classes.
        curved: whether it has second derivatives.
        leaves_out: how many classes more than k there must be.
        collection: whether others are compared with it; what is dear to compile is a long test.
    """

    jacobian: Callable[..., np.ndarray]
    tolerated: Callable[[np.ndarray, int, int], Any]
    curved: bool = True
    leaves_out: int = 0
    collection: bool = False

    def __call__(self, scores, k, **axis):
        return self._called(self.function, scores, k, **axis)

    def expected(self, scores, k, axis=-1):
        function = getattr(reference, self.public.removeprefix("operators."))
        return self._called(function, scores, k, axis=axis)

    def expected_jacobian(self, row, k):
        return self._called(self.jacobian, row, k)

    def _called(self, function, scores, k, **axis):
        parameters = dict(self.parameters)
        static = (k,) if parameters.pop("k", None) else ()
        return function(scores, *static, **parameters, **axis)

    def tolerance(self, expected, k, num_classes):
        return EPS * self.tolerated(np.abs(expected), k, num_classes)


def operator(name: str, kind: Callable[..., Any] = Operator, **options: Any) -> Any:
    given = {"arrays": SCORES, "parameters": {"k": 3}} | options
    return kind(public=f"operators.{name}", slopes=1, of="entries", **given)


def perturbed(name: str, **options: Any) -> Case:
    return operator(
        name,
        Case,
        arrays={"scores": "logits", "key": "keys"},
        parameters={"k": 3, "epsilon": 0.5, "num_samples": NUM_SAMPLES},
        ranges={"epsilon": AT_LEAST_0},
        **options,
    )


def relaxed(method: str, *, rounding: float = 0, **parameters: Any) -> Case:
    return operator(
        "relaxed_ranks",
        Case,
        parameters={"k": 3, "method": method, "tau": 0.5, **parameters},
        ranges={"tau": POSITIVE},
        rounding=rounding,
        variant=method,
    )


CASES: list[Case] = [
    operator(
        "top_k_value",
        jacobian=reference.top_k_value_gradient,
        curved=False,
        # A selection rounds nothing.
        tolerated=lambda expected, k, size: 0,
    ),
    operator("top_k_value", Case, many_classes=True, variant="many"),
    operator(
        "top_k_sum",
        jacobian=reference.top_k_sum_gradient,
        curved=False,
        # k - 1 additions of scores under 6 in magnitude, each partial sum under 6 k.
        tolerated=lambda expected, k, size: 6 * k * k,
    ),
    operator(
        "sparse_top",
        jacobian=reference.sparse_top_jacobian,
        curved=False,
        # The threshold is as exact as the sum of the coordinates below one, some eps in all.
        tolerated=lambda expected, k, size: 8,
    ),
    operator(
        "sparse_top",
        Case,
        arrays={"scores": "logits", "k": "sizes"},
        parameters={},
        ranges={"k": Listed((np.full(8, -1), np.full(8, 9)))},
        variant="sizes",
    ),
    operator(
        "lapsum_top_k",
        jacobian=reference.lapsum_top_k_jacobian,
        parameters={"k": 3, "alpha": 0.7},
        ranges={"alpha": POSITIVE},
        # The sum of up to L tails, its logarithm, and two exponentials: some eps of a membership.
        tolerated=lambda expected, k, size: 8,
        collection=True,
    ),
    operator(
        "lapsum_top_k",
        Case,
        variant="real k",
        parameters={"k": 2.5, "alpha": 0.7},
        ranges={"k": Range((0.0, -0.5, -np.inf, 10.0))},
    ),
    operator(
        "sinkhorn_top_k",
        jacobian=reference.sinkhorn_top_k_jacobian,
        parameters={"k": 3, "epsilon": 1.6},
        ranges={"epsilon": POSITIVE},
        # As above; the sum of the memberships is rounded, relative to its size.
        tolerated=lambda expected, k, size: 8 * max(1, k / 4),
        rounding=16,
        collection=True,
    ),
    operator(
        "sigmoid_top_k",
        jacobian=reference.sigmoid_top_k_jacobian,
        parameters={"k": 3, "tau": 0.7},
        ranges={"tau": POSITIVE},
        leaves_out=1,
        # The slope of a sigmoid times its argument is under 1: few roundings of that.
        tolerated=lambda expected, k, size: 4,
        collection=True,
    ),
    operator(
        "successive_softmax_top_k",
        jacobian=reference.successive_softmax_top_k_jacobian,
        parameters={"k": 3, "tau": 0.7},
        ranges={"tau": POSITIVE},
        # Three softmaxes, and the slopes of each are added to those of the next.
        tolerated=lambda expected, k, size: 8,
        collection=True,
    ),
    operator(
        "entmax",
        jacobian=reference.entmax_jacobian,
        parameters={"alpha": 1.5},
        ranges={"alpha": ENTMAX_ALPHA},
        # A logarithm, its double, an exponential and a share of the sum, of numbers below 1.
        tolerated=lambda expected, k, size: 8,
        collection=True,
    ),
    operator(
        "p_norm_top_k",
        jacobian=reference.p_norm_top_k_jacobian,
        parameters={"k": 3, "p": 1.5, "regularization": 0.75},
        ranges={
            "p": Range((1.0, 2.5)),
            "regularization": POSITIVE,
        },
        # As above, of a sum that is rounded relative to its size.
        tolerated=lambda expected, k, size: 8 * max(1, k / 4),
        # In `shard_map` a search ends with the slowest example of the device. On one device other
        # examples may take one more step, which changes the last digits.
        rounding=16,
        collection=True,
    ),
    operator(
        "expected_top_k_value",
        Case,
        parameters={"k": 1, "epsilon": 0.5},
        ranges={"epsilon": AT_LEAST_0},
        # Sums over the nodes are vectorized otherwise for other numbers of examples.
        rounding=8,
    ),
    perturbed("perturbed_top_k_sum"),
    perturbed("perturbed_top_k_value"),
    perturbed("perturbed_top_k_value", many_classes=True, variant="many"),
    # The gradients of the columns of the network are added up in another order.
    relaxed("odd_even", rounding=8),
    # The softmax is vectorized otherwise for other numbers of examples.
    relaxed("soft_sort", rounding=8),
]
BATTERY = [case for case in CASES if isinstance(case, Operator)]
