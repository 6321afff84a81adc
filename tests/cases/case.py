"""The case of a public function: how it is called, and what is to be expected of it.

From the cases derive the batteries, and the tests that take every public function: over devices
(`test_sharding.py`), of split classes (`test_class_axis.py`), of traced parameters
(`test_traced_parameters.py`), for other platforms (`test_lowering.py`) and without NaN
(`test_debug_nans.py`). Cases are plain data: JAX computes nothing until a test takes one.
"""

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import topk_jax.heads
import topk_jax.losses
import topk_jax.metrics
import topk_jax.operators
import topk_jax.sets
from tests.cases.ranges import Range

MODULES = {
    "heads": topk_jax.heads,
    "losses": topk_jax.losses,
    "metrics": topk_jax.metrics,
    "operators": topk_jax.operators,
    "sets": topk_jax.sets,
}
NUM_SAMPLES = 3


def public_functions() -> dict[str, Callable[..., Any]]:
    """The functions of the library, without its classes."""
    return {
        f"{room}.{name}": getattr(module, name)
        for room, module in MODULES.items()
        for name in module.__all__
        if inspect.isfunction(getattr(module, name))
    }


# The arrays that functions are called with, and their axes of the batch and of the classes.
AXES: dict[str, tuple[str | None, ...]] = {
    "logits": ("batch", "classes"),
    "others": ("batch", "classes"),
    "probabilities": ("batch", "classes"),
    "ranks": ("batch", "classes"),
    "targets": ("batch", "classes"),
    "chosen": ("batch", "classes"),
    "labels": ("batch",),
    "sizes": ("batch",),
    "successes": ("batch",),
    "hits": ("batch",),
    "marks": ("batch",),
    "weights": ("batch",),
    "keys": ("batch",),
    "key": (),
    "noise": (None, "batch", "classes"),
    "selector": ("batch", None),
    "costs": ("batch", None),
    "curves": ("batch", None),
    "outliers": ("batch",),
    "log_probabilities": ("batch", "classes"),
    "groups": ("batch",),
}


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Case:
    """A public function, and what is expected of it.

    Attributes:
        public: the function's name, with its module.
        arrays: which arrays of `draw` it takes, by argument; first those that have gradients.
        parameters: its other arguments. If one is a function, its value at the number of classes is
            used; an array then has one entry for each class.
        ranges: the allowed values of parameters that may be traced.
        slopes: how many of the first arrays have gradients.
        of: what the result has a number for: each of the "examples", each of the "entries", or the
            "batch".
        couples: whether a result depends on more than one example.
        rounding: how far results of a split batch may be from results on one device, in units of
            eps relative to the largest: sums in another order.
        class_rounding: the same for split classes.
        many_classes: whether the first array gets more classes than are searched at once.
        sums: how many sums over all examples a class has, which devices send to each other.
        sends: how many numbers of each example devices send to each other, at most.
        variant: what distinguishes cases of the same function.
    """

    public: str
    arrays: Mapping[str, str] = dataclasses.field(default_factory=dict)
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    ranges: Mapping[str, Range] = dataclasses.field(default_factory=dict)
    slopes: int = 0
    of: str = "examples"
    couples: bool = False
    rounding: float = 0
    class_rounding: float = 0
    many_classes: bool = False
    sums: int = 1
    sends: int = 1
    variant: str = ""

    @property
    def name(self) -> str:
        return f"{self.public}-{self.variant}" if self.variant else self.public

    @property
    def function(self) -> Callable[..., Any]:
        room, _, name = self.public.partition(".")
        function: Callable[..., Any] = getattr(MODULES[room], name)
        return function

    @property
    def by_place(self) -> bool:
        """Whether a result depends on the place of an example, which no device of a map knows."""
        return "key" in self.arrays.values()

    @property
    def is_statistic(self) -> bool:
        """Whether a device of a map needs the arrays of all devices."""
        return self.couples and not self.takes("axis_name")

    def takes(self, argument: str) -> bool:
        return argument in inspect.signature(self.function).parameters

    def resolved(self, num_classes: int) -> dict[str, Any]:
        """The parameters for this number of classes."""
        return {
            name: value(num_classes) if callable(value) else value
            for name, value in self.parameters.items()
        }

    def by_class(self, num_classes: int) -> dict[str, np.ndarray]:
        """The parameters that have one entry for each class."""
        return {
            name: value
            for name, value in self.resolved(num_classes).items()
            if callable(self.parameters[name])
        }

    def results(self, arrays: Mapping[str, Any], **parameters: Any) -> Any:
        """The value, and the gradients of the sum of its squares, of arrays that `draw` made.

        The sum of the values would be a constant for memberships and ranks.
        """
        given = {argument: arrays[name] for argument, name in self.arrays.items()}
        sloped = list(given)[: self.slopes]

        def total(slopes: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
            found = given | slopes
            if self.many_classes:
                first = next(iter(found))
                found[first] = jnp.concatenate(
                    [found[first] + 0.001 * i for i in range(90)], axis=-1
                )
            values = self.function(**found, **parameters)
            return (jnp.square(values).sum() if sloped else jnp.zeros(())), values

        if not sloped:
            return total({})[1], []
        slopes, values = jax.grad(total, has_aux=True)({name: given[name] for name in sloped})
        return values, [slopes[name] for name in sloped]


def draw(batch_shape: Sequence[int], num_classes: int) -> dict[str, Any]:
    """The arrays that the cases name."""
    rng = np.random.default_rng(0)
    shape = (*batch_shape, num_classes)
    logits = rng.normal(scale=2.0, size=(2, *shape)).astype(np.float32)
    arrays = {
        "logits": logits[0],
        "others": logits[1],
        "probabilities": softmax(logits[0]),
        "ranks": np.argsort(np.argsort(-logits[0])).astype(np.float32) + 1,
        "labels": rng.integers(num_classes, size=batch_shape, dtype=np.int32),
        "targets": (rng.random(shape) < 0.2).astype(np.int32),
        "sizes": rng.integers(1, 5, size=batch_shape, dtype=np.int32),
        "noise": rng.normal(size=(NUM_SAMPLES, *shape)).astype(np.float32),
        "keys": jax.random.split(jax.random.key(1), tuple(batch_shape)),
        "key": jax.random.key(2),
        "hits": rng.random(batch_shape) < 0.5,
        "chosen": rng.random(shape) < 0.3,
        "selector": rng.normal(size=(*batch_shape, 3)).astype(np.float32),
        "costs": rng.random((*batch_shape, 3)).astype(np.float32),
        "outliers": rng.random(batch_shape).astype(np.float32),
        "curves": np.sort(rng.random((*batch_shape, 5)) < 0.4)[..., ::-1].astype(np.float32),
        "log_probabilities": np.log(softmax(logits[0])),
        "weights": rng.integers(3, size=batch_shape).astype(np.float32),
        "marks": rng.random(batch_shape) < 0.5,
    }
    arrays["successes"] = arrays["sizes"] // 2
    # Of two groups, each with several examples.
    places = np.arange(arrays["labels"].size, dtype=np.int32)
    return arrays | {"groups": (places % 2).reshape(batch_shape)}


def softmax(logits: np.ndarray) -> np.ndarray:
    exponentials = np.exp(logits)
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def margins(num_classes: int) -> np.ndarray:
    return np.linspace(0.2, 1.5, num_classes, dtype=np.float32)


def counts(num_classes: int) -> np.ndarray:
    """A tenfold imbalance, with equal counts if there are many classes."""
    return np.geomspace(100, 10, num_classes).round().astype(np.float32)
