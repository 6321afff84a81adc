"""Every public function that takes `class_axis_name`, as `test_class_axis.py` calls it.

To add a function, add a `Case` to `CASES`.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from topk_jax import losses, metrics, sets

NUM_EXAMPLES, NUM_CLASSES, NUM_SAMPLES = 8, 64, 3
# The share of each of 8 devices has fewer classes than some of the sets here.
COUNTS = 7.0 * np.arange(1, NUM_CLASSES + 1, dtype=np.float32)
MARGINS = np.linspace(0.2, 1.5, NUM_CLASSES, dtype=np.float32)


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """A public function, and what is to be expected of it.

    Attributes:
        public: the function's name, with its module.
        call: the function, of arrays that `draw` makes.
        arrays: their names, by argument.
        slopes: how many of the first arrays have gradients.
        of: what the result has a number for: each example, each entry, or the batch.
        couples: whether a result depends on more than one example, so that the function takes
            `axis_name`.
        is_statistic: whether it is a function of the whole batch without `axis_name`.
        rounding: how far results on several devices may be from those on one, in units of eps
            relative to the largest: sums in another order.
        variant: what tells cases of the same function apart.
    """

    public: str
    call: Callable[..., Any]
    arrays: dict[str, str]
    slopes: int = 0
    of: str = "examples"
    couples: bool = False
    is_statistic: bool = False
    rounding: float = 0
    variant: str = ""

    @property
    def by_place(self) -> bool:
        """Whether the result depends on the place of an example in the batch.

        A device does not know it in `shard_map`.
        """
        return "key" in self.arrays.values()

    @property
    def name(self) -> str:
        return f"{self.public}-{self.variant}" if self.variant else self.public

    def results(self, arrays: dict[str, jax.Array], **names: Any) -> Any:
        """The value, and the gradients of the sum of its squares."""
        given = {argument: arrays[name] for argument, name in self.arrays.items()}
        sloped = list(given)[: self.slopes]
        if not sloped:
            return self.call(**given, **names), []

        def total(sloped: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
            values = self.call(**(given | sloped), **names)
            return (values * values).sum(), values

        slopes, values = jax.grad(total, has_aux=True)({name: given[name] for name in sloped})
        return values, [slopes[name] for name in sloped]


# Which axes of an array are those of the batch and of the classes.
AXES = {
    "logits": ("batch", "classes"),
    "others": ("batch", "classes"),
    "probabilities": ("batch", "classes"),
    "chosen": ("batch", "classes"),
    "labels": ("batch",),
    "keys": ("batch",),
    "noise": (None, "batch", "classes"),
    "counts": ("classes",),
    "margins": ("classes",),
    "key": (),
}


def draw() -> dict[str, Any]:
    """The arrays that the cases name."""
    rng = np.random.default_rng(0)
    shape = (NUM_EXAMPLES, NUM_CLASSES)
    logits = rng.normal(scale=2.0, size=(2, *shape)).astype(np.float32)
    # Ties between devices, and masked classes.
    logits[0, 1, [3, 17, 40]] = logits[0, 1].max() + 1
    logits[0, 2, 5:9] = -np.inf
    exponentials = np.exp(logits[0])
    return {
        "logits": logits[0],
        "others": logits[1],
        "probabilities": exponentials / exponentials.sum(axis=-1, keepdims=True),
        "chosen": rng.random(shape) < 0.3,
        "labels": rng.integers(NUM_CLASSES, size=NUM_EXAMPLES, dtype=np.int32),
        "keys": jax.random.split(jax.random.key(1), NUM_EXAMPLES),
        "key": jax.random.key(2),
        "noise": rng.normal(size=(NUM_SAMPLES, *shape)).astype(np.float32),
        "counts": COUNTS,
        "margins": MARGINS,
    }


def _loss(
    name: str,
    *sloped: str,
    rounding: float = 0,
    variant: str = "",
    arrays: dict[str, str] | None = None,
    **parameters: Any,
) -> Case:
    return Case(
        f"losses.{name}",
        partial(getattr(losses, name), **parameters),
        {"logits": "logits"} | (arrays or {}) | {"labels": "labels"},
        slopes=1,
        rounding=rounding,
        variant=variant,
    )


def _set(name: str, arrays: dict[str, str], *, variant: str = "", **parameters: Any) -> Case:
    call = partial(getattr(sets, name), **parameters)
    return Case(f"sets.{name}", call, arrays, of="entries", variant=variant)


def _statistic(name: str, *labels: str, variant: str = "", **parameters: Any) -> Case:
    return Case(
        f"sets.{name}",
        partial(getattr(sets, name), **parameters),
        {"probabilities": "probabilities"} | {label: label for label in labels},
        of="batch",
        is_statistic=True,
        variant=variant,
    )


def _metric(name: str, arrays: dict[str, str], **parameters: Any) -> Case:
    return Case(f"metrics.{name}", partial(getattr(metrics, name), **parameters), arrays)


# Sums over 64 classes in another order.
SUMS = 8

CASES = [
    _loss("cross_entropy", rounding=SUMS),
    _loss("cross_entropy", rounding=SUMS, variant="smoothing", label_smoothing=0.1),
    _loss("focal", rounding=SUMS, gamma=2.0),
    _loss("ldam", rounding=SUMS, arrays={"margins": "margins"}, scale=3.0),
    _loss("ldam", rounding=SUMS, variant="one margin", margins=0.3),
    _loss("logit_adjusted_cross_entropy", rounding=SUMS, arrays={"class_counts": "counts"}),
    *(
        _loss(name, variant=str(k), k=k, rounding=SUMS if name == "convex_top_k_hinge" else 0)
        for name in ("top_k_error", "top_k_hinge", "convex_top_k_hinge", "calibrated_top_k_hinge")
        # With 8 devices of 8 classes, one device does not have 9.
        for k in (3, 9)
    ),
    *(
        _loss(
            "noised_top_k_hinge",
            variant=source,
            arrays={argument: source, "margins": "margins"},
            k=k,
            epsilon=0.5,
            num_samples=NUM_SAMPLES,
            scale=2.0,
        )
        for argument, source, k in (("key", "keys", 3), ("key", "key", 9), ("noise", "noise", 3))
    ),
    *(
        _loss(
            "expected_top_k_hinge",
            rounding=SUMS,
            variant=str(k),
            arrays={"margins": "margins"},
            k=k,
            epsilon=0.5,
        )
        for k in (1, 5, 40)
    ),
    *(
        _loss("smooth_top_k_hinge", rounding=SUMS, variant=str(k), k=k, tau=0.5)
        for k in (1, 3, 9, 40)
    ),
    _loss("entmax_loss", rounding=SUMS, alpha=1.5),
    _loss("sparsemax_loss", rounding=SUMS),
    Case(
        "losses.average_k",
        partial(losses.average_k, k=2.5, alpha=0.7),
        {"logits": "logits", "proposal_logits": "others", "labels": "labels"},
        slopes=2,
        of="batch",
        couples=True,
        rounding=SUMS,
    ),
    Case(
        "losses.average_k_candidates",
        partial(losses.average_k_candidates, k=2.5),
        {"proposal_logits": "logits", "labels": "labels"},
        of="entries",
        couples=True,
    ),
    _set("top_k_set", {"scores": "probabilities"}, k=3),
    _set("top_k_set", {"scores": "logits"}, variant="9", k=9),
    _set("threshold_set", {"probabilities": "probabilities"}, threshold=0.02),
    _set(
        "threshold_set",
        {"probabilities": "logits", "threshold": "margins"},
        variant="of classes",
    ),
    _statistic("average_k_threshold", k=2.5),
    _statistic("average_k_threshold", variant="all", k=NUM_CLASSES),
    _statistic("conformal_threshold", "labels", error=0.3),
    _metric("label_ranks", {"scores": "logits", "labels": "labels"}),
    _metric("top_k_hits", {"scores": "logits", "labels": "labels"}, k=3),
    _metric(
        "threshold_hits", {"probabilities": "probabilities", "labels": "labels"}, threshold=0.1
    ),
    _metric("set_sizes", {"chosen": "chosen"}),
]
