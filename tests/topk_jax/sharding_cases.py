"""Every public function with arguments for it, as `test_sharding.py` calls it on several devices.

To add a function, add a `Case` to `CASES`.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax import losses, metrics, operators, sets

NUM_EXAMPLES, NUM_CLASSES = 16, 24
NUM_SAMPLES = 3
COUNTS = 7 * np.arange(1, NUM_CLASSES + 1)
MARGINS = np.linspace(0.2, 1.5, NUM_CLASSES, dtype=np.float32)
KEY = jax.random.key(0)


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """A public function, and what is to be expected of it.

    Attributes:
        public: the function's name, with its module.
        call: the function, of arrays that `draw` makes.
        arrays: their names.
        slopes: how many of the first arrays have gradients.
        couples: whether a result depends on more than one example.
        split: whether the results are split like the batch.
        by_place: whether a result depends on the place of an example in the batch, which a device
            does not know in `shard_map`.
        manual: what a device calls in `shard_map`, with an axis name. None for a statistic of the
            arrays that it is given: there it gets those of all devices.
        rounding: how far results on several devices may be from those on one, in units of eps
            relative to the largest: sums in another order.
        variant: what tells cases of the same function apart.
    """

    public: str
    call: Callable[..., Any]
    arrays: tuple[str, ...]
    slopes: int = 0
    couples: bool = False
    split: bool = True
    by_place: bool = False
    manual: Callable[..., Any] | None = None
    rounding: float = 0
    variant: str = ""

    @property
    def name(self) -> str:
        return f"{self.public}-{self.variant}" if self.variant else self.public

    def results(self, call: Callable[..., Any], arrays: dict[str, jax.Array]) -> Any:
        """The value, and the gradients of the sum of its squares.

        The sum of the values alone is a constant for memberships and ranks.
        """
        drawn = [arrays[name] for name in self.arrays]
        if not self.slopes:
            return call(*drawn), ()

        def total(*sloped: jax.Array) -> tuple[jax.Array, jax.Array]:
            values = call(*sloped, *drawn[self.slopes :])
            return jnp.square(values).sum(), values

        places = tuple(range(self.slopes))
        (_, values), slopes = jax.value_and_grad(total, places, has_aux=True)(*drawn[: self.slopes])
        return values, slopes


# The noise has its samples in front of its examples.
AFTER_SAMPLES = ("noise",)


def draw(batch_shape: tuple[int, ...] = (NUM_EXAMPLES,)) -> dict[str, np.ndarray]:
    """The arrays that the cases name. The batch comes first, but in `AFTER_SAMPLES`."""
    rng = np.random.default_rng(0)
    shape = (*batch_shape, NUM_CLASSES)
    logits = rng.normal(scale=2.0, size=(2, *shape)).astype(np.float32)
    exponentials = np.exp(logits[0])
    return {
        "logits": logits[0],
        "others": logits[1],
        "probabilities": exponentials / exponentials.sum(axis=-1, keepdims=True),
        "ranks": np.argsort(np.argsort(-logits[0])).astype(np.float32) + 1,
        "labels": rng.integers(NUM_CLASSES, size=batch_shape, dtype=np.int32),
        "targets": (rng.random(shape) < 0.2).astype(np.int32),
        "sizes": rng.integers(1, 5, size=batch_shape, dtype=np.int32),
        "noise": rng.normal(size=(NUM_SAMPLES, *shape)).astype(np.float32),
        "keys": jax.random.split(jax.random.key(1), batch_shape),
        "hits": rng.random(batch_shape) < 0.5,
        "chosen": rng.random(shape) < 0.3,
        "selector": rng.normal(size=(*batch_shape, 3)).astype(np.float32),
        "costs": rng.random((*batch_shape, 3)).astype(np.float32),
    }


def _many(scores: jax.Array) -> jax.Array:
    """More classes than there are in rows that are searched as a whole."""
    return jnp.concatenate([scores + 0.001 * i for i in range(90)], axis=-1)


def _example(public: str, call: Callable[..., Any], *arrays: str, **options: Any) -> Case:
    """A function of each example alone, with a gradient in the first array by default."""
    return Case(public, call, arrays, **({"slopes": 1} | options))


def _loss(name: str, *, labels: str = "labels", **parameters: Any) -> Case:
    loss = partial(getattr(losses, name), **parameters)
    return _example(f"losses.{name}", loss, "logits", labels)


def _coupled(name: str, *heads: str, slopes: int | None = None, **parameters: Any) -> Case:
    loss = partial(getattr(losses, name), **parameters)
    return Case(
        f"losses.{name}",
        loss,
        (*heads, "labels"),
        slopes=len(heads) if slopes is None else slopes,
        couples=True,
        split=False,
        manual=partial(loss, axis_name="data"),
        # A sum over 16 examples of sums over 24 classes.
        rounding=16,
    )


def _noised(variant: str, *extra: str, **parameters: Any) -> Case:
    def call(logits: jax.Array, labels: jax.Array, *drawn: jax.Array) -> jax.Array:
        names = (name.removesuffix("s") for name in extra)
        source: dict[str, Any] = dict(zip(names, drawn, strict=True))
        return losses.noised_top_k_hinge(
            logits, labels, epsilon=0.5, num_samples=NUM_SAMPLES, **source, **parameters
        )

    return _example("losses.noised_top_k_hinge", call, "logits", "labels", *extra, variant=variant)


def _perturbed(name: str, classes: Callable[[jax.Array], jax.Array] = jnp.asarray, **options: Any):
    def call(scores: jax.Array, keys: jax.Array) -> jax.Array:
        operator = getattr(operators, name)
        return operator(keys, classes(scores), 3, epsilon=0.5, num_samples=NUM_SAMPLES)

    return _example(f"operators.{name}", call, "logits", "keys", **options)


def _relaxed(method: str, **options: Any) -> list[Case]:
    relaxation: dict[str, Any] = {"method": method, "tau": 0.5}
    loss = partial(
        losses.relaxed_top_k_cross_entropy,
        top_k_weights=np.array([0.5, 0.0, 0.5], np.float32),
        num_candidates=8,
        **relaxation,
    )
    ranks = partial(operators.relaxed_ranks, k=3, **relaxation)
    options["variant"] = method
    return [
        _example("losses.relaxed_top_k_cross_entropy", loss, "logits", "labels", **options),
        _example("operators.relaxed_ranks", ranks, "logits", **options),
    ]


def _operator(name: str, *arguments: Any, variant: str = "", **parameters: Any) -> Case:
    operator = getattr(operators, name)
    call = lambda scores: operator(scores, *arguments, **parameters)  # noqa: E731
    return _example(f"operators.{name}", call, "logits", variant=variant)


def _set(name: str, *arrays: str, variant: str = "", **parameters: Any) -> Case:
    function = partial(getattr(sets, name), **parameters)
    return Case(f"sets.{name}", function, ("probabilities", *arrays), variant=variant)


def _statistic(public: str, *arrays: str, **parameters: Any) -> Case:
    module, _, name = public.partition(".")
    function = partial(getattr({"sets": sets, "metrics": metrics}[module], name), **parameters)
    return Case(public, function, arrays, couples=True, split=False)


def _metric(name: str, *arrays: str, **parameters: Any) -> Case:
    return Case(f"metrics.{name}", partial(getattr(metrics, name), **parameters), arrays)


def _of_counts(public: str, function: Callable[..., Any]) -> Case:
    """A function of the numbers of examples of each class, without a batch."""
    return Case(public, lambda: function(COUNTS), (), couples=True, split=False)


def _conformal(kind: str, *, needs_key: bool = False, **parameters: Any) -> list[Case]:
    parameters = {"kind": kind, **({"key": KEY} if needs_key else {}), **parameters}
    options = {"variant": kind, **parameters}
    cases = [
        _set("conformal_scores", **options),
        _set("conformal_label_scores", "labels", **options),
        _set("conformal_set", quantiles=0.6, **options),
    ]
    return [dataclasses.replace(case, by_place=needs_key) for case in cases]


CASES = [
    _coupled("average_k", "logits", "others", k=2.5, alpha=0.7),
    dataclasses.replace(
        _coupled("average_k_candidates", "logits", slopes=0, k=2.5), split=True, rounding=0
    ),
    _example("losses.cardinality_aware", losses.cardinality_aware, "selector", "costs"),
    _loss("cardinality_costs", sizes=(1, 2, 5), weight=0.1),
    _loss("entmax_loss", alpha=1.5),
    _loss("sparsemax_loss"),
    _loss("calibrated_top_k_hinge", k=3),
    _loss("convex_top_k_hinge", k=3),
    _loss("top_k_error", k=3),
    _loss("top_k_hinge", k=3),
    _loss("generalized_cross_entropy", q=0.7),
    _loss("symmetric_cross_entropy", alpha=0.5, beta=1.0),
    _loss("logit_adjusted_cross_entropy", class_counts=COUNTS),
    _loss("vector_scaling", class_counts=COUNTS, gamma=0.3, tau=1.0),
    _loss("assume_negative"),
    _loss("binary_cross_entropy", labels="targets"),
    _coupled("expected_positive_regularization", "logits", expected_positives=2.5, beta=0.3),
    _coupled("role", "logits", "others", expected_positives=2.5, weight=0.3),
    dataclasses.replace(
        _loss("expected_top_k_hinge", k=2, epsilon=0.5, margins=MARGINS), rounding=8
    ),
    _noised("keys", "keys", k=2, margins=MARGINS),
    _noised("noise", "noise", k=2),
    _loss("smooth_top_k_hinge", k=3, tau=0.5),
    _loss("lapsum_top_k_loss", k=3, alpha=0.5),
    _loss("sigmoid_top_k_loss", k=3, tau=0.5),
    _loss("cross_entropy", label_smoothing=0.1),
    _loss("focal", gamma=2.0),
    _loss("ldam", margins=MARGINS),
    _loss("sparse_top_loss", labels="targets"),
    *_relaxed("bitonic"),
    *_relaxed("neural_sort"),
    # The gradients of the columns of a network are added up in another order.
    *_relaxed("odd_even", rounding=8),
    # The softmax is vectorized otherwise for other numbers of examples.
    *_relaxed("soft_sort", rounding=8),
    _of_counts("losses.class_margins", partial(losses.class_margins, max_margin=0.5)),
    _of_counts("losses.class_balanced_weights", partial(losses.class_balanced_weights, beta=0.9)),
    _operator("entmax", alpha=1.5),
    # Sums over the nodes are vectorized otherwise for other numbers of examples.
    dataclasses.replace(_operator("expected_top_k_value", 1, epsilon=0.5), rounding=8),
    _operator("lapsum_top_k", 3, alpha=0.5),
    # In `shard_map` a search ends with the slowest example of the device. On one device other
    # examples may take one more step, which changes the last digits.
    dataclasses.replace(_operator("p_norm_top_k", 3, p=1.5, regularization=0.5), rounding=16),
    _perturbed("perturbed_top_k_sum"),
    _perturbed("perturbed_top_k_value"),
    _perturbed("perturbed_top_k_value", _many, variant="many"),
    _operator("sigmoid_top_k", 3, tau=0.5),
    dataclasses.replace(_operator("sinkhorn_top_k", 3, epsilon=0.5), rounding=16),
    _operator("sparse_top", 3),
    _example("operators.sparse_top", operators.sparse_top, "logits", "sizes", variant="sizes"),
    _operator("log_symmetric_polynomials", 3),
    _operator("top_k_sum", 3),
    _operator("top_k_value", 3),
    _example(
        "operators.top_k_value",
        lambda scores: operators.top_k_value(_many(scores), 3),
        "logits",
        variant="many",
    ),
    _set("adjust_logits", class_counts=COUNTS),
    _set("adaptive_set", error=0.1),
    _set("threshold_set", threshold=0.1),
    _set("top_k_set", k=3),
    _set("score_set", quantiles=0.1),
    *_conformal("lac"),
    *_conformal("margin"),
    *_conformal("rank"),
    *_conformal("aps", needs_key=True),
    *_conformal("raps", needs_key=True, rank_penalty=0.1, unpenalized_ranks=2),
    *_conformal("saps", needs_key=True, rank_penalty=0.1),
    *_conformal("pas", class_counts=COUNTS),
    _statistic("sets.average_error_threshold", "probabilities", error=0.2),
    _statistic("sets.average_k_threshold", "probabilities", k=2.5),
    _statistic("sets.class_average_k_thresholds", "probabilities", "labels", k=2.5),
    _statistic("sets.macro_average_k_thresholds", "probabilities", k=2.5, class_counts=COUNTS),
    _statistic(
        "sets.clustered_quantiles",
        "probabilities",
        "labels",
        key=KEY,
        error=0.5,
        num_clusters=2,
        clustering_part=0.5,
    ),
    _statistic("sets.class_conditional_quantiles", "probabilities", "labels", error=0.5),
    _statistic("sets.conformal_quantile", "probabilities", "labels", error=0.5),
    _statistic("sets.conformal_threshold", "probabilities", "labels", error=0.5),
    _statistic("sets.interpolated_quantiles", "probabilities", "labels", error=0.5, weight=0.5),
    _statistic("sets.label_shift_quantiles", "probabilities", "labels", error=0.5, weights=MARGINS),
    _statistic("sets.rank_calibrated_quantiles", "probabilities", "ranks", "labels", error=0.5),
    _statistic("sets.temperature", "logits", "labels"),
    _metric("label_ranks", "logits", "labels"),
    _metric("top_k_hits", "logits", "labels", k=3),
    _metric("threshold_hits", "probabilities", "labels", threshold=0.1),
    _metric("set_sizes", "chosen"),
    _statistic("metrics.accuracy", "hits"),
    _statistic("metrics.macro_accuracy", "hits", "labels", num_classes=NUM_CLASSES),
    _statistic("metrics.shot_accuracy", "hits", "labels", class_counts=COUNTS),
    _statistic("metrics.tally", "hits"),
    _statistic("metrics.tally_by_class", "hits", "labels", num_classes=NUM_CLASSES),
    _of_counts("metrics.shot_groups", metrics.shot_groups),
]
