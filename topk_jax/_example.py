"""What all losses share: the scores of examples, their labels, masks, NaN and split classes.

Scores of half precision become float32. A class of -inf is masked: its score is finite, and below
all others. A NaN or +inf logit, or a label outside [0, L), makes the loss and the gradient of its
example NaN, and so does a traced parameter outside its range; a known one raises. The loss and the
gradient of examples that `where` leaves out are 0. In `jax.shard_map`, `class_axis_name` is the
axis that the classes are split along into equal parts, in the order of the devices.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _classes
from topk_jax._checks import (
    axis_size,
    boolean_array,
    booleans_or_reals,
    exact,
    floating_array,
    integer_array,
    numbers,
    refuse,
)
from topk_jax._classes import FLOOR, nan_unless


@dataclass(frozen=True)
class Scores:
    """The scores of examples, as a loss computes with them.

    Attributes:
        given: the scores as they are given, `[..., L]`, in float32 or float64.
        values: these with `FLOOR` for -inf.
        labels: the labels, `[...]`.
        name: the mapped axis that the classes are split along, or `None`. `values` then has the
            classes of this device, and results are the same on all devices.
        where: which examples count, or `None` for all.
    """

    given: jax.Array
    values: jax.Array
    labels: jax.Array
    name: Hashable | None = None
    where: ArrayLike | None = None

    @classmethod
    def of(
        cls,
        logits: ArrayLike,
        labels: ArrayLike,
        where: ArrayLike | None = None,
        class_axis_name: Hashable | None = None,
        argument: str = "logits",
    ) -> "Scores":
        """The scores of a loss's arguments, or raises if these do not fit each other."""
        given, known = logits_and_labels(
            logits, labels, name=argument, where=where, class_axis_name=class_axis_name
        )
        return cls(given, _classes.finite_scores(given), known, class_axis_name, where)

    @classmethod
    def without_labels(
        cls, scores: jax.Array, is_right: jax.Array, where: ArrayLike | None
    ) -> "Scores":
        """The checked scores of examples that are wrong unless all entries are right."""
        given = nan_unless(is_right, scores)
        no_labels = jnp.zeros_like(given[..., 0], jnp.int32)
        return cls(given, _classes.finite_scores(given), no_labels, where=where)

    @property
    def dtype(self) -> jnp.dtype:
        """float32 or float64."""
        return self.values.dtype

    @property
    def num_classes(self) -> int:
        """L, also if the classes are split."""
        return _classes.count(self.values, self.name)

    @property
    def is_label(self) -> jax.Array:
        """Whether a class is the label, `[..., L]`; nowhere for a label that is no class."""
        return _classes.is_label(self.values, self.labels, self.name)

    @property
    def is_class(self) -> jax.Array:
        """Whether the label is a class, `[...]`."""
        return (self.labels >= 0) & (self.labels < self.num_classes)

    @property
    def is_valid(self) -> jax.Array:
        """Whether no logit is NaN or +inf and the label is a class, `[...]`."""
        return _classes.valid_examples(self.given, self.labels, self.name)

    @property
    def zeros(self) -> jax.Array:
        """0 of each example, `[...]`, as a function of all of its scores; NaN if it is wrong."""
        # Of an empty batch the zeros would be a constant, which does not vary as their slopes do.
        if 0 in self.labels.shape:
            return self.sum(self.values)
        return _zeros(self.name, self.values, self.is_valid)

    def sum(self, values: jax.Array) -> jax.Array:
        """The sum over all classes, `[...]`."""
        return _classes.sum_classes(values, self.name)

    def of_label(self, values: jax.Array) -> jax.Array:
        """The value of the label, `[...]`, from one for each entry or class, or for all.

        A label that is no class gives some number.
        """
        if values.ndim == 0:
            return jnp.broadcast_to(values, self.labels.shape)
        if values.ndim == 1 and self.name is None and jax.typeof(values).sharding.mesh.empty:
            return _classes.value_of_class(values, self.labels)
        return _classes.score_of_label(self.spread(values), self.labels, self.name)

    def spread(self, values: jax.Array) -> jax.Array:
        """One value for each class, or for all, as one for each entry, `[..., L]`."""
        return jnp.broadcast_to(values, self.values.shape)

    def others(self, values: jax.Array | None = None) -> jax.Array:
        """The values, by default the scores, with -inf for the label, `[..., L]`."""
        # Of an empty batch `where` gives its second argument, which varies as the values do.
        return jnp.where(~self.is_label, self.values if values is None else values, -jnp.inf)

    def gaps(self, values: jax.Array | None = None) -> jax.Array:
        """The values, by default the scores, minus that of the label, `[..., L]`.

        Differences of close scores are exact. At scores of 1e4, log sum e^s - s_y would have three
        decimals.
        """
        values = self.values if values is None else values
        return self.spread(values) - self.of_label(values)[..., None]

    def rival(self, gaps: jax.Array) -> jax.Array:
        """The log-odds against the label, `[...]`: log sum e^gap over the other classes.

        The cross-entropy is the softplus of the rival of the gaps.
        """
        # Not -inf: logsumexp of only -inf has a NaN gradient.
        return _classes.log_sum_exp(jnp.where(self.is_label, FLOOR, gaps), self.name)

    def log_softmax(self) -> jax.Array:
        """The logarithms of the softmax of the scores, `[..., L]`."""
        if self.name is None:
            return jax.nn.log_softmax(self.values, axis=-1)
        shifted = self.values - _classes.max_classes(self.values, self.name, keepdims=True)
        return shifted - jnp.log(self.sum(jnp.exp(shifted)))[..., None]

    def mark(self, values: jax.Array) -> jax.Array:
        """The values `[...]` of examples, with NaN for them and their gradient if one is wrong."""
        return nan_unless(self.is_valid, values)

    def losses(self, values: jax.Array) -> jax.Array:
        """The losses `[...]`: NaN for a wrong example, 0 for one that is left out."""
        return self.counted(self.mark(values))

    def losses_of_few(self, values: jax.Array) -> jax.Array:
        """`losses` of values that depend on few scores: all slopes of a wrong example are NaN."""
        return self.counted(_mark_slopes(values, self.zeros))

    def counted(self, losses: jax.Array) -> jax.Array:
        """The losses `[...]`, 0 for the examples that are left out."""
        return zero_left_out(losses, self.where)


def logits_and_labels(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    name: str = "logits",
    where: ArrayLike | None = None,
    class_axis_name: Hashable | None = None,
    hint: str = "losses.expect_over_labels, metrics.expected_hits and sets.vote_quantile take "
    "one-hot and soft labels",
) -> tuple[jax.Array, jax.Array]:
    """Returns logits [..., L] and labels [...], or raises if they do not fit each other.

    The values of traced labels cannot be checked here: `Scores.mark`. Examples that `where` leaves
    out get scores and a label of 0, so that their gradient is 0 and not 0 times NaN. `hint` ends
    the message about labels of the scores' own shape.
    """
    check_classes(name, logits, labels, class_axis_name)
    scores = floating_array(logits, name)
    shape, given = scores.shape, getattr(labels, "shape", None)
    hints = [f"; {hint}" * (given == shape)]
    if len(shape) > 2 and given == (shape[0], *shape[2:]):
        hints += [f"; the classes are the last axis of {name}, see jnp.moveaxis"]
    found = integer_array(labels, "labels", shape[:-1], of=(name, shape), hint="".join(hints))
    return zero_elsewhere(where, scores, found)


def check_classes(
    name: str, scores: Any, labels: Any, class_axis_name: Hashable | None = None
) -> None:
    """Raises if the classes of the scores are split, and not as `class_axis_name` says.

    Each device would treat its classes as all classes, and the loss would be a plausible number. In
    `shard_map`, types show along which axes arrays vary, unless `check_vma` is off. Labels that are
    the same on all devices, for different examples, have to be marked.
    """
    split = _varying(scores) - _varying(labels)
    if class_axis_name is None:
        if split and labels is not None:
            names = sorted(map(str, split))
            axes = repr(names[0] if len(names) == 1 else tuple(names))
            raise ValueError(
                f"{name} must have all classes on each device where labels are the same on all, "
                f"got {name} that vary along {axes} and labels that do not: if the classes are "
                f"split, gather them, or give class_axis_name={axes} to a function that has it; "
                f"else mark the labels with jax.lax.pcast(labels, {axes}, to='varying')."
            )
        return
    axis_size(class_axis_name, "class_axis_name")
    given = set(class_axis_name) if isinstance(class_axis_name, tuple) else {class_axis_name}
    if given & _varying(jax.lax.axis_index(class_axis_name)) and not given <= split:
        raise ValueError(
            f"class_axis_name must be an axis along which {name} vary and labels do not, got "
            f"{class_axis_name!r}."
        )


def _varying(array: Any) -> frozenset[Hashable]:
    """The mapped axes along which an array is known to vary."""
    return jax.typeof(array).mat.varying if isinstance(array, jax.Array) else frozenset()


def logits_and_targets(
    logits: ArrayLike,
    targets: ArrayLike,
    *,
    name: str = "targets",
    where: ArrayLike | None = None,
    may_be_soft: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """Returns logits and multi-label targets, both [..., L] in the logits' dtype, or raises.

    Targets are booleans or numbers: 0 or 1, or between them if they may be soft. The values of
    traced targets, and of targets beside `where`, are not checked here. NaN is allowed. Examples
    that `where` leaves out get 0.
    """
    scores = floating_array(logits, "logits")
    converted = booleans_or_reals(targets, name, scores.shape).astype(scores.dtype)
    if where is None:
        found = exact(targets, converted)
        between = (found > 0) & (found < 1)
        right = ~((found < 0) | (found > 1) | (between & (not may_be_soft)))
        refuse(right, found, name, "from 0 to 1" if may_be_soft else "0 or 1")
    return zero_elsewhere(where, scores, converted)


def scores_and_targets(
    logits: ArrayLike,
    targets: ArrayLike,
    where: ArrayLike | None,
    *,
    may_be_soft: bool = False,
) -> tuple[Scores, jax.Array]:
    """The scores and targets, `[..., L]` both; soft targets are between 0 and 1."""
    scores, targets = logits_and_targets(logits, targets, where=where, may_be_soft=may_be_soft)
    is_right = (targets >= 0) & (targets <= 1) if may_be_soft else (targets == 0) | (targets == 1)
    return Scores.without_labels(scores, is_right, where), targets


def multi_hot(targets: ArrayLike, name: str, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """Returns multi-label targets [..., L] as booleans, and which of them are 0 or 1, or raises."""
    converted = booleans_or_reals(targets, name, shape)
    if converted.dtype == jnp.bool_:
        return converted, jnp.ones(shape, jnp.bool_)
    found = exact(targets, converted)
    refuse((found == 0) | (found == 1), found, name, "0 or 1")
    return converted == 1, (converted == 0) | (converted == 1)


def zero_elsewhere(
    where: ArrayLike | None, vectors: jax.Array, others: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Returns vectors [..., n] and others, [...] or [..., n], with zeros where an example is out.

    Raises if `where` is neither a boolean array [...] nor `None`, which leaves out none.
    """
    if where is None:
        return vectors, others
    counts = boolean_array(where, "where", vectors.shape[:-1])
    of_vectors = counts[..., None]
    return (
        jnp.where(of_vectors, vectors, 0),
        jnp.where(counts if others.shape == counts.shape else of_vectors, others, 0),
    )


def zero_left_out(losses: jax.Array, where: ArrayLike | None) -> jax.Array:
    """The losses [...], 0 for the examples that `where` leaves out: see `zero_elsewhere`."""
    return losses if where is None else jnp.where(jnp.asarray(where), losses, 0)


def two_heads(
    first: tuple[str, ArrayLike],
    second: tuple[str, ArrayLike],
    labels: ArrayLike,
    class_axis_name: Hashable | None = None,
) -> tuple[Scores, Scores]:
    """The scores of two heads in one dtype, or raises if the named arguments do not fit."""
    scores, others = (floating_array(given, name) for name, given in (first, second))
    if others.shape != scores.shape:
        raise ValueError(f"{second[0]} must have shape {scores.shape}, got shape {others.shape}.")
    dtype = max(scores.dtype, others.dtype, key=lambda dtype: dtype.itemsize)
    one, other = (
        Scores.of(head.astype(dtype), labels, None, class_axis_name, name)
        for head, name in ((scores, first[0]), (others, second[0]))
    )
    return one, other


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _zeros(_: Hashable | None, values: jax.Array, is_valid: jax.Array) -> jax.Array:
    """`Scores.zeros`, whose value needs no sum over the classes."""
    return jnp.where(is_valid, 0.0, jnp.nan).astype(values.dtype)


@_zeros.defjvp
def _zeros_jvp(
    name: Hashable | None, primals: tuple[jax.Array, jax.Array], tangents: tuple[jax.Array, Any]
) -> tuple[jax.Array, jax.Array]:
    zeros = _zeros(name, *primals)
    return zeros, zeros * _classes.sum_classes(tangents[0], name)


def _mark_slopes(values: jax.Array, zeros: jax.Array) -> jax.Array:
    """The values, NaN with the slopes in all scores where `Scores.zeros` are NaN.

    A product with NaN would leave a slope of 0 where a value does not depend on a score.
    """
    return values + jnp.where(zeros == 0, 0.0, jnp.nan).astype(values.dtype) * zeros


def batch_mean(values: jax.Array, axis_name: Hashable | None) -> jax.Array:
    """The mean over all examples [...] of all devices along `axis_name`, on every device.

    `jax.grad` on one device gives the slope of the sum of the results of all devices, because JAX
    transposes a psum to a psum. So the mean of these gradients over the devices is that of the
    batch.
    """
    local = values.mean()
    return local if axis_name is None else jax.lax.pmean(local, axis_name)


def batch_loss(loss: jax.Array, axis_name: Hashable | None, *heads: Scores) -> jax.Array:
    """The loss of a batch, NaN with all slopes if an example is wrong for one of the heads."""
    zeros = jnp.stack([head.zeros for head in heads]).sum(axis=0)
    return _mark_slopes(loss, batch_mean(zeros, axis_name))


def per_class(values: ArrayLike, name: str, scores: Scores) -> jax.Array:
    """Finite numbers of at least 0, a scalar or one for each class: see `numbers`."""
    shapes = ((), scores.values.shape[-1:])
    return numbers(values, name, scores.dtype, shapes, at_least=0, class_axis_name=scores.name)


def counts_per_class(counts: ArrayLike, name: str, scores: Scores) -> jax.Array:
    """Positive numbers, one for each class: see `numbers`."""
    shapes = (scores.values.shape[-1:],)
    return numbers(counts, name, scores.dtype, shapes, above=0, class_axis_name=scores.name)
