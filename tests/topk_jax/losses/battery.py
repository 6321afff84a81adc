"""The registry that every loss is entered in; `test_battery.py` puts each entry through its tests.

An entry pairs a loss and its hyperparameters with its reference. The tests see all losses alike:
a function of `heads`, [H, ..., L] (the H arrays of logits that the loss takes, stacked), and of the
arrays that follow them. To add a loss, add a `Case` to `CASES`; to add a file of cases, import
`Case`, and add its list to `test_battery.CASES`.
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
from tests.compilation import for_users
from topk_jax import losses

# The shape that most tests share, so that each case is compiled once for it.
NUM_EXAMPLES, NUM_CLASSES = 6, 8


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """A loss, its hyperparameters, its reference, and what is to be expected of it.

    Attributes:
        name: the name of the test.
        loss: called as `loss(*heads, labels or targets, *extra, **parameters)`.
        parameters: the hyperparameters; where one is a function, its value at the number of classes
            is used.
        reference: the float64 reference, called alike.
        gradient: the reference's gradient in the logits, called alike; for several heads a tuple.
        multilabel: whether the loss takes targets {0, 1} [..., L] instead of labels.
        heads: how many arrays of logits come first.
        extra: draws the arrays that follow the labels, `(rng, batch_shape, num_classes) -> tuple`.
        scalar: whether the loss couples the batch and returns one number.
        zero_when_right: whether the loss of a confidently right example is 0.
        exact_slope: whether the gradient is the derivative of the value; not so where the loss
            stops gradients.
        forward_mode: whether jvp and hessian work.
        shift_invariant: whether a number added to all logits changes nothing.
        has_slope: whether the gradient is anything but 0.
        static: the hyperparameters that may not be traced.
        refusals: argument values that are refused: (arguments, error, pattern of the message).
    """

    name: str
    loss: Callable[..., Any]
    reference: Callable[..., Any]
    gradient: Callable[..., Any]
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    multilabel: bool = False
    heads: int = 1
    extra: Callable[..., tuple] = lambda rng, batch_shape, num_classes: ()
    scalar: bool = False
    zero_when_right: bool = True
    exact_slope: bool = True
    forward_mode: bool = True
    shift_invariant: bool = True
    has_slope: bool = True
    static: frozenset[str] = frozenset({"k"})
    refusals: tuple[tuple[Mapping[str, Any], type[Exception], str], ...] = ()

    def resolved(self, num_classes: int) -> dict[str, Any]:
        return {
            name: value(num_classes) if callable(value) else value
            for name, value in self.parameters.items()
        }

    def call(self, heads, *arrays, **changed):
        """The loss of stacked heads, as the library computes it."""
        parameters = self.resolved(heads.shape[-1]) | changed
        return self.loss(*(heads[i] for i in range(self.heads)), *arrays, **parameters)

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
        parameters = self.resolved(heads.shape[-1])
        return np.asarray(self.reference(*heads, *map(np.asarray, arrays), **parameters))

    def expected_gradient(self, heads, *arrays):
        parameters = self.resolved(heads.shape[-1])
        gradient = self.gradient(*heads, *map(np.asarray, arrays), **parameters)
        return np.stack(gradient if self.heads > 1 else [gradient])

    def draw(self, *, batch_shape=(NUM_EXAMPLES,), num_classes=NUM_CLASSES, scale=3.0, seed=0):
        """Random heads, labels or targets, and extra arrays; a function of name and seed alone."""
        rng = np.random.default_rng([zlib.crc32(self.name.encode()), seed])
        shape = (*batch_shape, num_classes)
        heads = scale * rng.normal(size=(self.heads, *shape))
        if self.multilabel:
            ranks = rng.random(shape).argsort(axis=-1).argsort(axis=-1)
            labels = (ranks < rng.integers(1, num_classes, (*batch_shape, 1))).astype(np.int32)
        else:
            labels = rng.integers(num_classes, size=batch_shape, dtype=np.int32)
        arrays = (heads.astype(np.float32), labels, *self.extra(rng, batch_shape, num_classes))
        return tuple(jnp.asarray(array) for array in arrays)

    def is_right(self, labels, num_classes):
        """Where the classes are that the labels or targets name, [..., L]."""
        labels = np.asarray(labels)
        return labels == 1 if self.multilabel else labels[..., None] == np.arange(num_classes)


def per_example(name, loss_name, *, refusals=(), has_slope=True, **options):
    """A case of a loss of the library; its reference and `NAME_gradient` are in tests.reference."""
    return Case(
        name=name,
        loss=getattr(losses, loss_name),
        reference=getattr(reference, loss_name),
        gradient=getattr(reference, f"{loss_name}_gradient") if has_slope else _no_gradient,
        has_slope=has_slope,
        refusals=tuple(refusals),
        **options,
    )


def _no_gradient(logits, *arrays, **parameters):
    return np.zeros(np.shape(logits))


NUM_SAMPLES = 4


def _draw_noise(rng, batch_shape, num_classes):
    return (rng.normal(size=(*batch_shape, NUM_SAMPLES, num_classes)).astype(np.float32),)


def _noise_after_batch(function):
    """The function with its noise given as [..., M, L], an array of examples like the others."""

    def with_noise(logits, labels, noise, **parameters):
        noise = jnp.moveaxis(noise, -2, 0) if isinstance(noise, jax.Array) else _first(noise)
        return function(logits, labels, noise=noise, num_samples=NUM_SAMPLES, **parameters)

    return with_noise


def _first(noise):
    return np.moveaxis(noise, -2, 0)


def noised(name, *, refusals=(), **parameters):
    return Case(
        name=name,
        loss=_noise_after_batch(losses.noised_top_k_hinge),
        reference=_noise_after_batch(reference.noised_top_k_hinge),
        gradient=_noise_after_batch(reference.noised_top_k_hinge_gradient),
        parameters=parameters,
        extra=_draw_noise,
        forward_mode=False,
        refusals=tuple(refusals),
    )


def expected(name, *, refusals=(), **parameters):
    # Enough nodes for all the digits of float64.
    loss = functools.partial(losses.expected_top_k_hinge, num_nodes=80)
    return Case(
        name=name,
        loss=loss,
        reference=reference.expected_top_k_hinge,
        gradient=reference.expected_top_k_hinge_gradient,
        parameters=parameters,
        refusals=tuple(refusals),
    )


def set_sizes(maximum):
    """The refusals of `k`, which is at most `maximum` at `NUM_CLASSES` classes."""
    return (
        ({"k": 0}, ValueError, rf"k must be from 1 to {maximum} .*got 0"),
        ({"k": maximum + 1}, ValueError, rf"k must be from 1 to {maximum} .*got {maximum + 1}"),
        ({"k": 2.0}, TypeError, r"k must be an integer, got 2\.0"),
        ({"k": True}, TypeError, r"k must be an integer, got True"),
    )


def numbers(name, *, too_small=None, bound=""):
    """The refusals of a real scalar with a lower bound."""
    refusals = [
        ({name: jnp.ones(2)}, ValueError, rf"{name} must be a scalar, got shape \(2,\)"),
        ({name: "1"}, TypeError, rf"{name} must be a real number"),
        ({name: 1j}, TypeError, rf"{name} must be real"),
        ({name: float("nan")}, ValueError, rf"{name} must be .*got nan"),
    ]
    if too_small is not None:
        refusals.append(({name: too_small}, ValueError, rf"{name} must be {bound}, got"))
    return tuple(refusals)


def class_values(name):
    """The refusals of a scalar or one value a class."""
    return (
        ({name: jnp.ones(2)}, ValueError, rf"{name} must be a scalar or have one value.*\(2,\)"),
        ({name: "1"}, TypeError, rf"{name} must be a real number"),
        ({name: jnp.ones((1, NUM_CLASSES))}, ValueError, rf"{name} must be a scalar or have one"),
    )


def _margins(num_classes):
    return np.linspace(0.2, 1.5, num_classes, dtype=np.float32)


_POSITIVE_SCALE = numbers("scale", too_small=0.0, bound="greater than 0")

# A sigmoid's loss is never 0, and a score means something by itself.
_SIGMOID: dict[str, Any] = {"zero_when_right": False, "shift_invariant": False}
_EXPECTED_POSITIVES = (
    *numbers("expected_positives", too_small=-0.1, bound="at least 0 and at most 8"),
    ({"expected_positives": 8.5}, ValueError, "expected_positives must be .* at most 8, got 8.5"),
)

CASES = [
    per_example("cross_entropy", "cross_entropy"),
    per_example(
        "cross_entropy_smoothed",
        "cross_entropy",
        parameters={"label_smoothing": 0.1},
        zero_when_right=False,
        refusals=(
            *numbers("label_smoothing", too_small=-0.1, bound="at least 0 and less than 1"),
            ({"label_smoothing": 1.0}, ValueError, "label_smoothing must be .* than 1, got 1"),
        ),
    ),
    per_example("focal_half", "focal", parameters={"gamma": 0.5}),
    per_example(
        "focal_2",
        "focal",
        parameters={"gamma": 2.0},
        refusals=numbers("gamma", too_small=-0.5, bound="at least 0"),
    ),
    per_example(
        "ldam",
        "ldam",
        parameters={"margins": _margins, "scale": 4.0},
        refusals=class_values("margins") + _POSITIVE_SCALE,
    ),
    per_example(
        "top_k_error",
        "top_k_error",
        has_slope=False,
        parameters={"k": 3},
        refusals=set_sizes(NUM_CLASSES),
    ),
    per_example(
        "top_k_hinge",
        "top_k_hinge",
        parameters={"k": 3},
        refusals=set_sizes(NUM_CLASSES - 1),
    ),
    per_example(
        "convex_top_k_hinge",
        "convex_top_k_hinge",
        parameters={"k": 3},
        refusals=set_sizes(NUM_CLASSES),
    ),
    per_example(
        "calibrated_top_k_hinge",
        "calibrated_top_k_hinge",
        parameters={"k": 3},
        refusals=set_sizes(NUM_CLASSES - 1),
    ),
    per_example("smooth_top_k_hinge_1", "smooth_top_k_hinge", parameters={"k": 1, "tau": 0.05}),
    per_example(
        "smooth_top_k_hinge_5",
        "smooth_top_k_hinge",
        parameters={"k": 5, "tau": 0.5},
        refusals=set_sizes(NUM_CLASSES - 1) + numbers("tau", too_small=0.0, bound="greater than 0"),
    ),
    noised("noised_balanced", k=3, epsilon=0.7),
    noised(
        "noised_imbalanced",
        k=1,
        epsilon=0.5,
        margins=_margins,
        scale=2.0,
        refusals=set_sizes(NUM_CLASSES - 1)
        + numbers("epsilon", too_small=-0.1, bound="at least 0")
        + class_values("margins")
        + _POSITIVE_SCALE,
    ),
    expected("expected_balanced", k=3, epsilon=0.7),
    expected(
        "expected_imbalanced",
        k=1,
        epsilon=0.5,
        margins=_margins,
        scale=2.0,
        refusals=set_sizes(NUM_CLASSES - 1)
        + numbers("epsilon", too_small=-0.1, bound="at least 0")
        + class_values("margins")
        + _POSITIVE_SCALE,
    ),
    per_example("sparse_top_loss", "sparse_top_loss", multilabel=True),
    per_example("binary_cross_entropy", "binary_cross_entropy", multilabel=True, **_SIGMOID),
    per_example("assume_negative", "assume_negative", **_SIGMOID),
    per_example(
        "expected_positive_regularization",
        "expected_positive_regularization",
        parameters={"expected_positives": 2.5, "beta": 0.3},
        scalar=True,
        refusals=_EXPECTED_POSITIVES + numbers("beta", too_small=-0.1, bound="at least 0"),
        **_SIGMOID,
    ),
    per_example(
        "role",
        "role",
        parameters={"expected_positives": 2.5, "weight": 0.3},
        heads=2,
        scalar=True,
        exact_slope=False,
        forward_mode=False,
        refusals=_EXPECTED_POSITIVES + numbers("weight", too_small=-0.1, bound="at least 0"),
        **_SIGMOID,
    ),
    per_example(
        "average_k",
        "average_k",
        parameters={"k": 2.5, "alpha": 0.7},
        heads=2,
        scalar=True,
        refusals=numbers("alpha", too_small=-0.1, bound="at least 0"),
        **_SIGMOID,
    ),
]
