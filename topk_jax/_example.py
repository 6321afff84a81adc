"""What all losses of single examples share: their arguments, masks, NaN and split classes.

Scores of half precision become float32. A class of -inf is masked: its score is finite, and below
all others. A NaN or +inf logit, or a label outside [0, L), makes the loss and the gradient of its
example NaN, and so does a traced parameter outside its range; a known one raises. The loss and the
gradient of examples that `where` leaves out are 0. In `jax.shard_map`, `class_axis_name` is the
axis that the classes are split along into equal parts, in the order of the devices.
"""

import operator
from collections.abc import Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

# Replaces -inf, because the difference of two infinities is NaN. It is far below any score of a
# network, and its sum over 1e7 classes is still finite in float32.
FLOOR = -1e30


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
    ) -> "Scores":
        """The scores of a loss's arguments, or raises if these do not fit each other."""
        check_classes("logits", logits, labels, class_axis_name)
        given, known = logits_and_labels(logits, labels, where=where)
        return cls(given, jnp.maximum(given, FLOOR), known, class_axis_name, where)

    @property
    def dtype(self) -> jnp.dtype:
        """float32 or float64."""
        return self.values.dtype

    @property
    def is_label(self) -> jax.Array:
        """Whether a class is the label, `[..., L]`; nowhere for a label that is no class."""
        size = self.values.shape[-1]
        classes = jax.lax.broadcasted_iota(jnp.int32, self.values.shape, self.values.ndim - 1)
        if self.name is not None:
            classes += size * jax.lax.axis_index(self.name)
        return self.labels[..., None].astype(jnp.int32) == classes

    @property
    def num_classes(self) -> int:
        """L, also if the classes are split."""
        return self.values.shape[-1] * axis_size(self.name, "class_axis_name")

    @property
    def is_class(self) -> jax.Array:
        """Whether the label is a class, `[...]`."""
        return (self.labels >= 0) & (self.labels < self.num_classes)

    @property
    def is_valid(self) -> jax.Array:
        """Whether no logit is NaN or +inf and the label is a class, `[...]`."""
        # A NaN fails the comparison. Whether any does takes half of the time of their number.
        is_wrong = (~(self.given < jnp.inf)).any(axis=-1)
        if self.name is not None:
            is_wrong = jax.lax.pmax(is_wrong.astype(jnp.int8), self.name) > 0
        return self.is_class & ~is_wrong

    @property
    def zeros(self) -> jax.Array:
        """0 of each example, `[...]`, as a function of all of its scores; NaN if it is wrong."""
        # Of an empty batch the zeros would be a constant, which does not vary as their slopes do.
        if 0 in self.labels.shape:
            return self.sum(self.values)
        return _zeros(self.name, self.values, self.is_valid)

    def sum(self, values: jax.Array) -> jax.Array:
        """The sum over all classes, `[...]`."""
        total = values.sum(axis=-1)
        return total if self.name is None else jax.lax.psum(total, self.name)

    def of_label(self, values: jax.Array) -> jax.Array:
        """The value of the label, `[...]`, from one for each entry or class, or for all.

        A label that is no class gives some number.
        """
        if values.ndim == 0:
            return jnp.broadcast_to(values, self.labels.shape)
        # JAX refuses gathers in a program for any number of examples, as it may be 0.
        is_known = all(isinstance(size, int) for size in self.values.shape)
        if is_known and self.name is None and jax.typeof(self.values).sharding.mesh.empty:
            own = jnp.clip(self.labels, 0, values.shape[-1] - 1)
            if values.ndim == 1:
                return values[own]
            return jnp.take_along_axis(values, own[..., None], axis=-1)[..., 0]
        # Devices add up what they have. The compiler would gather what a gather reads.
        return self.sum(jnp.where(self.is_label, self.spread(values), 0))

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
        others = jnp.where(self.is_label, FLOOR, gaps)
        if self.name is None:
            return jax.nn.logsumexp(others, axis=-1)
        top = jax.lax.pmax(jax.lax.stop_gradient(others.max(axis=-1)), self.name)
        return top + jnp.log(self.sum(jnp.exp(others - top[..., None])))

    def log_softmax(self) -> jax.Array:
        """The logarithms of the softmax of the scores, `[..., L]`."""
        if self.name is None:
            return jax.nn.log_softmax(self.values, axis=-1)
        top = jax.lax.pmax(jax.lax.stop_gradient(self.values.max(axis=-1)), self.name)[..., None]
        shifted = self.values - top
        return shifted - jnp.log(self.sum(jnp.exp(shifted)))[..., None]

    def mark(self, values: jax.Array) -> jax.Array:
        """The values `[...]` of examples, with NaN for them and their gradient if one is wrong."""
        return nan_unless(self.is_valid, values)

    def losses(self, values: jax.Array) -> jax.Array:
        """The losses `[...]`: NaN for a wrong example, 0 for one that is left out."""
        return self.counted(self.mark(values))

    def losses_of_few(self, values: jax.Array) -> jax.Array:
        """`losses` of values that depend on few scores: all slopes of a wrong example are NaN."""
        return self.counted(mark_slopes(values, self.zeros))

    def counted(self, losses: jax.Array) -> jax.Array:
        """The losses `[...]`, 0 for the examples that are left out."""
        return zero_left_out(losses, self.where)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _zeros(_: Hashable | None, values: jax.Array, is_valid: jax.Array) -> jax.Array:
    """`Scores.zeros`, whose value needs no sum over the classes."""
    return jnp.where(is_valid, 0.0, jnp.nan).astype(values.dtype)


@_zeros.defjvp
def _zeros_jvp(
    name: Hashable | None, primals: tuple[jax.Array, jax.Array], tangents: tuple[jax.Array, Any]
) -> tuple[jax.Array, jax.Array]:
    zeros = _zeros(name, *primals)
    total = tangents[0].sum(axis=-1)
    return zeros, zeros * (total if name is None else jax.lax.psum(total, name))


def mark_slopes(values: jax.Array, zeros: jax.Array) -> jax.Array:
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
    return mark_slopes(loss, batch_mean(zeros, axis_name))


def nan_unless(valid: jax.Array, values: jax.Array) -> jax.Array:
    """The values, with NaN where they are not valid, for them and for their gradient."""
    factor = jnp.where(valid, 1.0, jnp.nan).astype(values.dtype)
    return values * jnp.broadcast_to(factor, values.shape)


def logits_and_labels(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    name: str = "logits",
    where: ArrayLike | None = None,
    hint: str = "losses.expect_over_labels, metrics.expected_hits and sets.vote_quantile take "
    "one-hot and soft labels",
) -> tuple[jax.Array, jax.Array]:
    """Returns logits [..., L] and labels [...], or raises if their types or shapes are wrong.

    The values of traced labels cannot be checked here: `Scores.mark`. Examples that `where` leaves
    out get scores and a label of 0, so that their gradient is 0 and not 0 times NaN. `hint` ends
    the message about labels of the scores' own shape.
    """
    scores = floating_array(logits, name)
    shape, given = scores.shape, getattr(labels, "shape", None)
    hints = [f"; {hint}" * (given == shape)]
    if len(shape) > 2 and given == (shape[0], *shape[2:]):
        hints += [f"; the classes are the last axis of {name}, see jnp.moveaxis"]
    found = integer_array(labels, "labels", shape[:-1], of=(name, shape), hint="".join(hints))
    return zero_elsewhere(where, scores, found)


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


def scalar(number: ArrayLike, name: str, dtype: jnp.dtype, **bounds: float) -> jax.Array:
    """A real scalar: see `numbers`, which has the bounds."""
    return numbers(number, name, dtype, ((),), **bounds)


def per_class(values: ArrayLike, name: str, scores: Scores) -> jax.Array:
    """Finite numbers of at least 0, a scalar or one for each class: see `numbers`."""
    shapes = ((), scores.values.shape[-1:])
    return numbers(values, name, scores.dtype, shapes, at_least=0, class_axis_name=scores.name)


def counts_per_class(counts: ArrayLike, name: str, scores: Scores) -> jax.Array:
    """Positive numbers, one for each class: see `numbers`."""
    shapes = (scores.values.shape[-1:],)
    return numbers(counts, name, scores.dtype, shapes, above=0, class_axis_name=scores.name)


def numbers(
    given: ArrayLike,
    name: str,
    dtype: jnp.dtype,
    shapes: tuple[tuple[int, ...], ...] | None,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    """Returns finite real numbers in `dtype`, or raises if one is outside its bounds.

    `shapes` are those that they may have; `None` stands for any vector that is not empty.
    If one of traced numbers is, all are NaN: also those of other devices, if the numbers are split
    along `class_axis_name`. A number that becomes infinite or falls to `above` in `dtype` is
    refused too. XLA takes a denormal number for 0. A number may rise to `below`, as 1 - 1e-9 does
    in float32.
    """
    # A number that overflows is refused below.
    with np.errstate(over="ignore"):
        values = real_numbers(given, name)
    if shapes is None and (values.ndim != 1 or not values.size):
        raise ValueError(f"{name} must be a vector of numbers, got shape {values.shape}.")
    if shapes is not None and values.shape not in shapes:
        must = " or ".join("be a scalar" if not one else f"have shape {one}" for one in shapes)
        hint = "; jax.vmap takes one of each example" if shapes == ((),) else ""
        raise ValueError(f"{name} must {must}, got shape {values.shape}{hint}.")
    # NaN fails each of these comparisons.
    bounds = [
        (at_least, "at least", operator.ge),
        (above, "greater than", operator.gt),
        (at_most, "at most", operator.le),
        (below, "less than", operator.lt),
    ]
    stated = [(bound, words, holds) for bound, words, holds in bounds if bound is not None]
    concrete, result = known_values(given), values.astype(dtype)
    if concrete is None:
        # Before they are rounded.
        exact = values if jnp.issubdtype(values.dtype, jnp.floating) else result
        valid = jnp.isfinite(result) & (True if above is None else result > above)
        for bound, _, holds in stated:
            valid &= holds(exact, bound)
        valid = valid.all()
        if class_axis_name is not None and values.ndim:
            valid = jax.lax.pmin(valid.astype(jnp.int8), class_axis_name) > 0
        return nan_unless(valid, result)
    with np.errstate(over="ignore"):
        rounded = concrete.astype(dtype)
    rounded = np.where(np.abs(rounded) < jnp.finfo(dtype).tiny, 0, rounded)
    allowed = np.isfinite(concrete)
    for bound, _, holds in stated:
        allowed &= holds(concrete, bound)
    right = allowed & np.isfinite(rounded) & (True if above is None else rounded > above)
    if not right.all():
        wrong = tuple(np.argwhere(~right)[0])
        must_be = " and ".join(f"{words} {bound:g}" for bound, words, _ in stated)
        must_be = f"finite and {must_be}" if must_be else "a finite number"
        is_rounded = f", which counts as {rounded[wrong]:g} in {np.dtype(dtype).name}"
        got = f"{float(concrete[wrong])!r}{is_rounded if allowed[wrong] else ''}"
        raise ValueError(f"{name} must be {must_be}, got {got}.")
    return result


def floating_array(array: ArrayLike, name: str, axis: int = -1) -> jax.Array:
    """Returns `array` in float32 or float64, or raises if its dtype or its shape is wrong."""
    converted = floating_numbers(array, name)
    if converted.ndim == 0 or converted.shape[axis_index(axis, converted.ndim)] == 0:
        along = "the last" if axis == -1 else f"axis {axis}"
        raise ValueError(
            f"{name} must have at least one axis and not be empty along {along}, "
            f"got shape {converted.shape}."
        )
    return converted


def floating_numbers(array: ArrayLike, name: str) -> jax.Array:
    """Returns a scalar or an array in float32 or float64, or raises if its dtype is wrong."""
    converted = as_array(array, name, "floating-point array", (jnp.floating,))
    # Not `promote_types`: under strict promotion it refuses half precision.
    return converted.astype(jnp.float32) if converted.dtype.itemsize < 4 else converted


def integer_array(
    array: ArrayLike,
    name: str,
    shape: tuple[int, ...] | None = None,
    *,
    of: tuple[str, tuple[int, ...]] | None = None,
    hint: str = "",
) -> jax.Array:
    """Returns `array` with at least 32 bits, or raises if it is not an integer array of this shape.

    Args:
        array: the user's argument.
        name: the argument's name.
        shape: the required shape; None for any.
        of: name and shape of the argument that determines this shape, for the message.
        hint: the end of the message.
    """
    converted = as_array(array, name, "integer array", (jnp.integer,), hint)
    if shape is not None and converted.shape != shape:
        follows = "" if of is None else f" for {of[0]} of shape {of[1]}"
        got = f"got shape {converted.shape}{hint}."
        raise ValueError(f"{name} must have shape {shape}{follows}, {got}")
    # Eight bits hold at most 256 classes; comparisons with larger indices would wrap around.
    return converted.astype(jnp.int32) if converted.dtype.itemsize < 4 else converted


def boolean_array(array: ArrayLike, name: str, shape: tuple[int, ...] | None = None) -> jax.Array:
    """Returns `array`, or raises if it is not a boolean array (of the given shape, if any)."""
    # Libraries whose accuracies take scores and labels are common.
    hint = "; metrics.top_k_hits makes them of scores and labels" if name == "hits" else ""
    converted = as_array(array, name, "boolean array", (jnp.bool_,), hint)
    if shape is not None and converted.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got shape {converted.shape}.")
    return converted


def real_numbers(values: ArrayLike, name: str) -> jax.Array:
    """Returns real numbers in the type that they have, or as floats if they are concrete integers.

    Raises `TypeError` for other values.
    """
    concrete = None if isinstance(values, jax.Array) else known_values(values)
    if concrete is not None and concrete.dtype.kind in "iu":
        # Integers of any size are rounded to floats.
        values = concrete.astype(np.float64)
    return as_array(values, name, "real number or array", (jnp.floating, jnp.integer))


def as_array(array: Any, name: str, expected: str, kinds: tuple[Any, ...], hint: str = "") -> Any:
    """Returns what the user gave as an array of JAX, or raises if it is not an array of a kind.

    Hazard: without 64-bit mode JAX wraps integers around, and a label of 2^32 would become 0.
    Choice: the closest bound, which is out of range too. Cost: one pass on the host over 64-bit
    arrays.
    """
    article = "an" if expected[0] in "aeiou" else "a"
    try:
        concrete = None if isinstance(array, jax.Array) else known_values(array)
        if concrete is not None and concrete.dtype.kind in "iu":
            fitting = jax.dtypes.canonicalize_dtype(concrete.dtype)
            limits = np.iinfo(fitting)
            array = concrete.clip(limits.min, limits.max).astype(fitting)
        converted = jnp.asarray(array)
    except (TypeError, ValueError, OverflowError) as error:
        got = type(array).__name__
        raise TypeError(f"{name} must be {article} {expected}, got {got}.") from error
    if not any(jnp.issubdtype(converted.dtype, kind) for kind in kinds):
        got = f"dtype {converted.dtype}{hint}"
        raise TypeError(f"{name} must be {article} {expected}, got {got}.")
    return converted


def known_values(given: Any) -> np.ndarray | None:
    """The values of the user's argument, or `None` if they are traced.

    Do not pass a converted argument: under jit, conversion turns a constant into a traced value.
    """
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(given)):
        return None
    return np.asarray(given)


def axis_index(axis: Any, ndim: int) -> int:
    """Returns `axis` counted from the front, or raises if the array does not have it."""
    try:
        index = operator.index(axis)
    except TypeError as error:
        raise TypeError(f"axis must be an integer, got {axis!r}.") from error
    if not -ndim <= index < ndim:
        raise ValueError(f"axis must be from {-ndim} to {ndim - 1}, got {index}.")
    return index % ndim


def axis_size(axis_name: Hashable | None, name: str = "axis_name") -> int:
    """Returns the number of devices along a mapped axis, 1 for `None`; raises for other names."""
    if axis_name is None:
        return 1
    try:
        # JAX takes a list here, and refuses it later.
        hash(axis_name)
        return jax.lax.axis_size(axis_name)
    except (NameError, TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be None or the name of an axis that pmap, shard_map or vmap binds around "
            f"this call, got {axis_name!r}."
        ) from error


def check_classes(
    name: str,
    scores: Any,
    labels: Any,
    class_axis_name: Hashable | None,
    *,
    way: str = "give class_axis_name={}",
) -> None:
    """Raises if the classes of the scores are split, and not as `class_axis_name` says.

    `way` is what to do if they are, with a place for the names of their axes.

    Hazard: each device would treat its classes as all classes, and the loss would be a plausible
    number. Choice: in `shard_map`, types show along which axes arrays vary, unless `check_vma` is
    off. Cost: labels that are the same on all devices, for different examples, have to be marked.
    """
    split = _varying(scores) - _varying(labels)
    if class_axis_name is None:
        if split and labels is not None:
            names = sorted(map(str, split))
            axes = repr(names[0] if len(names) == 1 else tuple(names))
            raise ValueError(
                f"{name} must have all classes on each device where labels are the same on all, "
                f"got {name} that vary along {axes} and labels that do not: if the classes are "
                f"split, {way.format(axes)}; else mark the labels with "
                f"jax.lax.pcast(labels, {axes}, to='varying')."
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
