"""The case of every loss. To add a loss, add a case to `CASES`.

`losses/test_battery.py` tests each `Loss`; a loss without a reference for its gradient is a plain
`Case`, which has tests of its own.
"""

import dataclasses
import functools
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests import reference
from tests.cases.case import NUM_SAMPLES, Case, counts, margins
from tests.cases.ranges import (
    AT_LEAST_0,
    CLASS_COUNTS,
    ENTMAX_ALPHA,
    INFINITY,
    MARGINS,
    NAN,
    PART,
    POSITIVE,
    Listed,
    Range,
)
from tests.cases.trees import families, weights
from tests.compilation import for_users
from topk_jax import losses

# The shape that most tests share, so that each case is compiled once for it.
NUM_EXAMPLES, NUM_CLASSES = 6, 8
# Sums over classes in another order.
SUMS = 8
LOGITS = {"logits": "logits", "labels": "labels"}


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Loss(Case):
    """A loss with its reference, and what the battery may expect of it.

    The references are `NAME` and `NAME_gradient` of `tests.reference`. The battery sees all losses
    alike: a function of `heads`, [H, ..., L] (the H arrays of logits that the loss takes, stacked),
    and of the arrays that follow them.

    Attributes:
        collection: whether others are compared with it; what is dear to compile is a long test.
        zero_when_right: whether the loss of a confidently right example is 0.
        exact_slope: whether the gradient is the derivative of the value; not so if the loss stops
            gradients.
        own_slope: whether it has a gradient of its own, which JAX does not derive.
        forward_mode: whether jvp and hessian work.
        shift_invariant: whether a number added to all logits changes nothing.
        has_slope: whether the gradient is anything but 0.
        static: the parameters that may not be traced.
        of_battery: parameters that the battery adds.
        refused: argument values that are refused besides those outside of ranges.
    """

    collection: bool = False
    zero_when_right: bool = True
    exact_slope: bool = True
    own_slope: bool = False
    forward_mode: bool = True
    shift_invariant: bool = True
    has_slope: bool = True
    static: frozenset[str] = frozenset({"k", "num_samples"})
    of_battery: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    refused: tuple[dict[str, Any], ...] = ()

    @property
    def multilabel(self) -> bool:
        return "targets" in self.arrays

    @property
    def scalar(self) -> bool:
        """Whether the loss couples the batch and returns one number."""
        return self.of == "batch"

    @property
    def heads(self) -> int:
        """How many arrays of logits come first."""
        return sum(name in ("logits", "others") for name in self.arrays.values())

    def call(self, heads, *arrays, **changed):
        """The loss of stacked heads, as the library computes it; the noise is [..., M, L]."""
        parameters = self.resolved(heads.shape[-1]) | self.of_battery | changed
        return self.function(**self._by_argument(jnp.moveaxis, heads, arrays), **parameters)

    def call_with_gradient(self, heads, *arrays):
        """The loss, and the gradient of its sum in the heads."""

        def total(heads):
            values = self.call(heads, *arrays)
            return values.sum(), values

        (_, values), gradient = jax.value_and_grad(total, has_aux=True)(heads)
        return values, gradient

    @functools.cached_property
    def compiled(self):
        return for_users(self.call)

    @functools.cached_property
    def compiled_with_gradient(self):
        return for_users(self.call_with_gradient)

    @functools.cached_property
    def compiled_quickly(self):
        """For another shape or dtype: a fifth of the time of `compiled`."""
        return jax.jit(self.call)

    @functools.cached_property
    def compiled_quickly_with_gradient(self):
        return jax.jit(self.call_with_gradient)

    def expected(self, heads, *arrays):
        return np.asarray(self._referred("", heads, arrays))

    def expected_gradient(self, heads, *arrays):
        if not self.has_slope:
            return np.zeros(heads.shape)
        gradient = self._referred("_gradient", heads, arrays)
        return np.stack(gradient if self.heads > 1 else [gradient])

    def _referred(self, suffix, heads, arrays):
        function = getattr(reference, f"{self.public.removeprefix('losses.')}{suffix}")
        given = self._by_argument(np.moveaxis, heads, map(np.asarray, arrays))
        first = [given.pop(argument) for argument in [*given][: self.heads + 1]]
        return function(*first, **given, **self.resolved(heads.shape[-1]))

    def _by_argument(self, moveaxis, heads, arrays):
        given = dict(zip(self.arrays, (*heads, *arrays), strict=True))
        if "noise" in given:
            given["noise"] = moveaxis(given["noise"], -2, 0)
        return given

    def draw(self, *, batch_shape=(NUM_EXAMPLES,), num_classes=NUM_CLASSES, scale=3.0, seed=0):
        """Random heads, labels or targets, and noise; a function of only name and seed."""
        rng = np.random.default_rng([zlib.crc32(self.name.encode()), seed])
        shape = (*batch_shape, num_classes)
        heads = scale * rng.normal(size=(self.heads, *shape))
        if self.multilabel:
            ranks = rng.random(shape).argsort(axis=-1).argsort(axis=-1)
            labels = (ranks < rng.integers(1, num_classes, (*batch_shape, 1))).astype(np.int32)
        else:
            labels = rng.integers(num_classes, size=batch_shape, dtype=np.int32)
        arrays = [heads.astype(np.float32), labels]
        if "noise" in self.arrays:
            noise = rng.normal(size=(*batch_shape, NUM_SAMPLES, num_classes))
            arrays.append(noise.astype(np.float32))
        if "outliers" in self.arrays.values():
            arrays.append(rng.random(batch_shape).astype(np.float32))
        return tuple(jnp.asarray(array) for array in arrays)

    def is_right(self, labels, num_classes):
        """Where the classes are that the labels or targets name, [..., L]."""
        labels = np.asarray(labels)
        return labels == 1 if self.multilabel else labels[..., None] == np.arange(num_classes)


def loss(name: str, kind: Callable[..., Any] = Loss, **options: Any) -> Any:
    """A case of a loss, of logits and labels by default."""
    return kind(public=f"losses.{name}", **({"arrays": LOGITS, "slopes": 1} | options))


def of_each(name: str, variants: Mapping[str, Mapping[str, Any]], **options: Any) -> list[Case]:
    """A case for the parameters of each variant."""
    return [
        loss(name, variant=variant, parameters=parameters, **options)
        for variant, parameters in variants.items()
    ]


def set_sizes(maximum: int) -> tuple[dict[str, Any], ...]:
    """Wrong values of `k`, which is at most `maximum` at `NUM_CLASSES` classes."""
    return tuple({"k": k} for k in (0, maximum + 1, 2.0, True))


ALL, ALL_BUT_ONE = set_sizes(NUM_CLASSES), set_sizes(NUM_CLASSES - 1)
# A sigmoid's loss is never 0, and a score means something by itself.
SIGMOID: dict[str, Any] = {"zero_when_right": False, "shift_invariant": False}
COUPLED: dict[str, Any] = {
    "of": "batch",
    "couples": True,
    # A sum over the examples of sums over the classes.
    "rounding": 16,
    "class_rounding": SUMS,
    **SIGMOID,
}
POSITIVES = Range((NUM_CLASSES + 0.5, -0.5, -INFINITY))
NOISED: dict[str, Any] = {
    "static": frozenset({"k", "num_samples", "hinge"}),
    "ranges": {"epsilon": AT_LEAST_0, "margins": MARGINS, "scale": POSITIVE},
    "refused": ALL_BUT_ONE,
}
CONVEX: dict[str, Any] = {"hinge": "convex", "margins": margins}
RELAXED: dict[str, Any] = {
    "ranges": {
        "top_k_weights": Listed(
            tuple(map(np.array, ([0.5, 0.2, 0.2], [1.5, -0.5, 0.0], [1.0, NAN, 0.0])))
        ),
        "tau": POSITIVE,
    },
    "static": frozenset({"method", "swap", "num_candidates", "softmax_top_1"}),
    "collection": True,
}
# For three sizes.
WEIGHTS = np.array([0.25, 0.35, 0.4], np.float32)
NO_RELAXATION: tuple[dict[str, Any], ...] = (
    *({"top_k_weights": weights} for weights in ([0.5, 0.4], [1.5, -0.5], 1.0, [0.1] * 10, "1")),
    *({"num_candidates": number} for number in (2, NUM_CLASSES + 1, 4.0)),
)

CASES: list[Case] = [
    loss("cross_entropy", class_rounding=SUMS),
    loss(
        "cross_entropy",
        parameters={"label_smoothing": 0.1},
        ranges={"label_smoothing": PART},
        zero_when_right=False,
        class_rounding=SUMS,
        variant="smoothed",
    ),
    *of_each(
        "focal",
        {"half": {"gamma": 0.5}, "2": {"gamma": 2.0}},
        ranges={"gamma": AT_LEAST_0},
        class_rounding=SUMS,
    ),
    loss(
        "ldam",
        parameters={"margins": margins, "scale": 4.0},
        ranges={"margins": MARGINS, "scale": POSITIVE},
        class_rounding=SUMS,
    ),
    loss("ldam", Case, parameters={"margins": 0.3}, class_rounding=SUMS, variant="one margin"),
    loss(
        "logit_adjusted_cross_entropy",
        parameters={"class_counts": counts, "tau": 1.25},
        ranges={"class_counts": CLASS_COUNTS, "tau": AT_LEAST_0},
        class_rounding=SUMS,
        collection=True,
    ),
    loss(
        "vector_scaling",
        parameters={"class_counts": counts, "gamma": 0.5, "tau": 0.75},
        ranges={"class_counts": CLASS_COUNTS, "gamma": AT_LEAST_0, "tau": AT_LEAST_0},
        # A number added to all logits is multiplied by another factor for each class.
        shift_invariant=False,
        collection=True,
    ),
    loss(
        "generalized_cross_entropy",
        parameters={"q": 0.7},
        ranges={"q": Range((1.5, *POSITIVE.outside))},
        class_rounding=SUMS,
        collection=True,
    ),
    loss(
        "symmetric_cross_entropy",
        parameters={"alpha": 0.3, "beta": 0.9, "log_zero": -3.0},
        ranges={
            "alpha": AT_LEAST_0,
            "beta": AT_LEAST_0,
            "log_zero": Range((0.0, 1.0)),
        },
        class_rounding=SUMS,
        collection=True,
    ),
    # Some examples do not count.
    *(
        loss(
            name,
            Case,
            arrays={**arrays, "where": "hits"},
            parameters=parameters,
            class_rounding=SUMS,
            variant="where",
        )
        for name, arrays, parameters in (
            ("cross_entropy", LOGITS, {}),
            ("top_k_hinge", LOGITS, {"k": 3}),
            (
                "noised_top_k_hinge",
                {**LOGITS, "key": "keys"},
                {"k": 2, "epsilon": 0.5, "num_samples": NUM_SAMPLES},
            ),
        )
    ),
    loss("top_k_error", has_slope=False, parameters={"k": 3}, refused=ALL),
    loss("top_k_hinge", parameters={"k": 3}, refused=ALL_BUT_ONE),
    loss("convex_top_k_hinge", parameters={"k": 3}, refused=ALL, class_rounding=SUMS),
    loss("calibrated_top_k_hinge", parameters={"k": 3}, refused=ALL_BUT_ONE),
    *of_each(
        "smooth_top_k_hinge",
        {"1": {"k": 1, "tau": 0.05}, "5": {"k": 5, "tau": 0.5}},
        ranges={"tau": POSITIVE},
        refused=ALL_BUT_ONE,
        # The softmax is vectorized otherwise for other numbers of examples.
        rounding=8,
        own_slope=True,
        class_rounding=SUMS,
    ),
    *of_each(
        "noised_top_k_hinge",
        {
            "balanced": {"k": 3, "epsilon": 0.7, "num_samples": NUM_SAMPLES},
            "imbalanced": {
                "k": 1,
                "epsilon": 0.5,
                "num_samples": NUM_SAMPLES,
                "margins": margins,
                "scale": 2.0,
            },
            "lapin": {"k": 3, "epsilon": 0.7, "num_samples": NUM_SAMPLES, "hinge": "lapin"},
        },
        arrays={**LOGITS, "noise": "noise"},
        forward_mode=False,
        own_slope=True,
        **NOISED,
    ),
    *(
        loss(
            "noised_top_k_hinge",
            Case,
            arrays={**LOGITS, "key": source},
            parameters={"k": 2, "epsilon": 0.5, "num_samples": NUM_SAMPLES, "margins": margins},
            variant=source,
        )
        for source in ("keys", "key")
    ),
    *of_each(
        "expected_top_k_hinge",
        {
            "balanced": {"k": 3, "epsilon": 0.7},
            "imbalanced": {"k": 1, "epsilon": 0.5, "margins": margins, "scale": 2.0},
            "lapin": {"k": 3, "epsilon": 0.7, "hinge": "lapin"},
        },
        # Enough nodes for all the digits of float64.
        of_battery={"num_nodes": 80},
        # Sums over the nodes are vectorized otherwise for other numbers of examples.
        rounding=8,
        class_rounding=SUMS,
        own_slope=True,
        **NOISED,
    ),
    # The convex hinge has sets of all classes, too.
    loss(
        "noised_top_k_hinge",
        arrays={**LOGITS, "noise": "noise"},
        parameters={"k": 3, "epsilon": 0.5, "num_samples": NUM_SAMPLES, **CONVEX},
        forward_mode=False,
        own_slope=True,
        variant="convex",
        **NOISED | {"refused": ALL},
    ),
    loss(
        "expected_top_k_hinge",
        parameters={"k": 2, "epsilon": 0.5, **CONVEX},
        of_battery={"num_nodes": 80},
        rounding=8,
        class_rounding=SUMS,
        own_slope=True,
        variant="convex",
        **NOISED | {"refused": ALL},
    ),
    loss("sparse_top_loss", arrays={"logits": "logits", "targets": "targets"}),
    loss(
        "entmax_loss",
        parameters={"alpha": 1.5},
        ranges={"alpha": ENTMAX_ALPHA},
        class_rounding=SUMS,
        collection=True,
    ),
    loss("sparsemax_loss", class_rounding=SUMS, collection=True),
    loss(
        "lapsum_top_k_loss",
        parameters={"k": 3, "alpha": 0.7},
        ranges={"alpha": POSITIVE},
        static=frozenset(),
        refused=ALL[:2],
        collection=True,
    ),
    loss(
        "sigmoid_top_k_loss",
        parameters={"k": 3, "tau": 0.7},
        ranges={"tau": POSITIVE},
        refused=ALL_BUT_ONE,
        collection=True,
    ),
    loss(
        "successive_softmax_top_k_loss",
        parameters={"k": 3, "tau": 0.7},
        ranges={"tau": POSITIVE},
        refused=ALL,
        collection=True,
    ),
    # A small network, whose gradients of columns are added up in another order on other devices.
    # `operators/test_relaxed_ranks.py` has the other swap.
    *of_each(
        "relaxed_top_k_cross_entropy",
        {
            "odd_even": {
                "method": "odd_even",
                "tau": 0.5,
                "top_k_weights": WEIGHTS,
                "swap": "logistic",
                "num_candidates": 4,
            },
        },
        refused=NO_RELAXATION,
        rounding=8,
        **RELAXED,
    ),
    # The softmax is vectorized otherwise for other numbers of examples.
    loss(
        "relaxed_top_k_cross_entropy",
        parameters={"method": "soft_sort", "tau": 0.5, "top_k_weights": WEIGHTS},
        rounding=8,
        variant="soft_sort",
        **RELAXED,
    ),
    loss(
        "binary_cross_entropy",
        arrays={"logits": "logits", "targets": "targets"},
        **SIGMOID,
    ),
    loss(
        "asymmetric",
        arrays={"logits": "logits", "targets": "targets"},
        parameters={"gamma_positive": 0.5, "gamma_negative": 3.0, "margin": 0.05},
        ranges={"gamma_positive": AT_LEAST_0, "gamma_negative": AT_LEAST_0, "margin": PART},
        **SIGMOID,
    ),
    loss(
        "expect_over_labels",
        Case,
        arrays={"logits": "logits", "plausibilities": "probabilities"},
        parameters={"loss": lambda _: functools.partial(losses.top_k_hinge, k=3)},
        # The most plausible labels come in another order.
        rounding=8,
    ),
    loss(
        "hierarchical_cross_entropy",
        parameters={"taxonomy": families, "alpha": 0.5},
        ranges={"alpha": AT_LEAST_0},
    ),
    loss(
        "soft_label_cross_entropy",
        parameters={"taxonomy": families, "beta": 3.0},
        ranges={"beta": AT_LEAST_0},
        zero_when_right=False,
    ),
    loss(
        "soft_labels",
        Case,
        arrays={"labels": "labels"},
        slopes=0,
        parameters={"taxonomy": families, "beta": 3.0},
        ranges={"beta": AT_LEAST_0},
    ),
    loss(
        "sum_over_depths",
        Case,
        parameters={
            "taxonomy": families,
            "loss": lambda _: losses.cross_entropy,
            "weights": weights,
        },
        ranges={"weights": Listed((np.array([1.0, -0.5, 0.0]), np.array([1.0, NAN, 0.0])))},
    ),
    loss("positive_cross_entropy", **SIGMOID),
    loss("assume_negative", **SIGMOID),
    loss(
        "expected_positive_regularization",
        parameters={"expected_positives": 2.5, "beta": 0.3},
        ranges={"expected_positives": POSITIVES, "beta": AT_LEAST_0},
        **COUPLED,
    ),
    loss(
        "role",
        arrays={"logits": "logits", "label_logits": "others", "labels": "labels"},
        slopes=2,
        parameters={"expected_positives": 2.5, "weight": 0.3},
        ranges={"expected_positives": POSITIVES, "weight": AT_LEAST_0},
        exact_slope=False,
        forward_mode=False,
        **COUPLED,
    ),
    loss(
        "average_k",
        arrays={"logits": "logits", "proposal_logits": "others", "labels": "labels"},
        slopes=2,
        parameters={"k": 2.5, "alpha": 0.7},
        ranges={"alpha": AT_LEAST_0},
        **COUPLED,
    ),
    loss(
        "average_k_candidates",
        Case,
        arrays={"proposal_logits": "logits", "labels": "labels"},
        slopes=0,
        parameters={"k": 2.5},
        of="entries",
        couples=True,
    ),
    loss(
        "conformal_training",
        Case,
        parameters={
            "error": 0.3,
            "temperature": 0.5,
            "smoothing": 0.2,
            "size_weight": 0.7,
            "target_size": 0.5,
        },
        ranges={
            "temperature": POSITIVE,
            "smoothing": POSITIVE,
            "size_weight": AT_LEAST_0,
            "target_size": AT_LEAST_0,
        },
        of="batch",
        couples=True,
        # The logarithm adds its own rounding to those of sums over examples and classes.
        rounding=32,
        class_rounding=32,
    ),
    loss(
        "efficiency_gap",
        parameters={"error": 0.3},
        static=frozenset({"error"}),
        **{**COUPLED, "class_rounding": 2 * SUMS, "shift_invariant": True, "zero_when_right": True},
    ),
    loss(
        "p_value_uniformity",
        arrays={**LOGITS, "uniform": "outliers"},
        **COUPLED,
    ),
    loss(
        "size_at_average_error",
        parameters={"error": 0.3, "temperature": 0.5},
        ranges={"temperature": POSITIVE},
        **COUPLED,
    ),
    loss("cardinality_aware", Case, arrays={"selector_logits": "selector", "costs": "costs"}),
    loss(
        "cardinality_costs",
        Case,
        parameters={"sizes": (1, 2, 5), "weight": 0.1},
        ranges={"weight": AT_LEAST_0},
    ),
    *(
        Case(
            public=f"losses.{name}",
            parameters={"class_counts": counts, **parameters},
            ranges={"class_counts": CLASS_COUNTS, **ranges},
            of="batch",
            couples=True,
        )
        for name, parameters, ranges in (
            ("class_margins", {"max_margin": 0.5}, {"max_margin": AT_LEAST_0}),
            ("class_balanced_weights", {"beta": 0.9}, {"beta": PART}),
        )
    ),
]
BATTERY = [case for case in CASES if isinstance(case, Loss)]
