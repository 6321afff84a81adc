"""Trains the heads of many candidates at once: one product of matrices has the scores of all."""

import functools
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from pretrained import losses
from pretrained.examples import TrainingSet
from topk_jax.heads._blocks import unit_vectors
from topk_jax.metrics import label_ranks
from train.models.heads import CosineHead, LinearHead

# Rows that are evaluated at once.
_ROWS = 500

Found = TypeVar("Found")


@dataclass(frozen=True)
class Plan:
    """What is the same for all runs of a setting.

    Attributes:
        steps: the steps of a run, a multiple of the checkpoints.
        batch_size: the examples of a step.
        checkpoints: how often a run is evaluated, the last time at its end.
        momentum: of SGD by Nesterov.
        deferred_from: the share of the steps before deferred class weights apply.
    """

    steps: int
    batch_size: int
    checkpoints: int
    momentum: float
    deferred_from: float


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("params", "values", "features", "class_counts"),
    meta_fields=("loss", "head"),
)
@dataclass(frozen=True)
class _Heads:
    """The heads of all candidates at a checkpoint.

    Attributes:
        loss: a name of `losses.LOSSES`.
        head: linear or cosine.
        params: the parameters of the heads.
        values: the parameters of the losses.
        features: of all examples, [n, d].
        class_counts: the training images of each class, [L].
    """

    loss: str
    head: str
    params: Mapping[str, jax.Array]
    values: losses.Parameters
    features: jax.Array
    class_counts: jax.Array

    def scores(self, row: jax.Array) -> jax.Array:
        """The scores that the classes of an example are ranked by, [C, L]."""
        data = losses.Data(self.class_counts, jax.random.key(0))
        scores = head_scores(self.head, self.params, self.values, self.features[row][None])[0]
        return jax.vmap(lambda one, own: losses.predicted(self.loss, one[None], own, data)[0])(
            scores, self.values
        )


class Scorer:
    """What the heads of all candidates say at a checkpoint.

    Attributes:
        num_rows: the rows that were asked for.
    """

    def __init__(self, heads: _Heads) -> None:
        self._heads = heads
        self.num_rows = 0

    def ranks(self, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """The ranks of labels, [C, n]."""
        self.num_rows += len(rows)
        examples = jnp.asarray(rows, jnp.int32), jnp.asarray(labels, jnp.int32)
        return np.asarray(_ranks(self._heads, examples)).T

    def scores(self, rows: np.ndarray) -> np.ndarray:
        """The scores of the classes, [C, n, L]."""
        self.num_rows += len(rows)
        return np.asarray(_predicted(self._heads, jnp.asarray(rows, jnp.int32))).swapaxes(0, 1)


@dataclass(frozen=True)
class Trained(Generic[Found]):
    """Some candidates after their runs.

    Attributes:
        found: what was evaluated at each checkpoint.
        cpu_seconds: of the processor, for all candidates.
        wall_seconds: that passed.
        flops: of the products of matrices, for all candidates.
    """

    found: list[Found]
    cpu_seconds: float
    wall_seconds: float
    flops: float


def train(
    loss: str,
    head: str,
    candidates: Sequence[Mapping[str, float]],
    plan: Plan,
    features: jax.Array,
    training: TrainingSet,
    evaluate: Callable[[Scorer], Found],
    seed: int,
) -> Trained[Found]:
    """Trains a head for each candidate, all on the same batches.

    The seed sets the initialization, the order of the examples and the noise of the loss.

    Args:
        loss: a name of `losses.LOSSES`.
        head: linear or cosine.
        candidates: the parameters of each.
        plan: the numbers of the setting.
        features: of all examples, [n, d].
        training: the training set.
        evaluate: is called at each checkpoint.
        seed: the seed of the runs.
    """
    began, cpu_began = time.monotonic(), _cpu_seconds()
    class_counts = jnp.asarray(training.class_counts, jnp.float32)
    num_classes, num_features = len(class_counts), features.shape[1]
    num_outputs = losses.num_outputs(loss, num_classes)
    values = {
        name: jnp.asarray([one[name] for one in candidates], jnp.float32) for name in candidates[0]
    }
    key = jax.random.key(seed)
    first_params = initial_params(
        head, jax.random.fold_in(key, 0), num_features, num_classes, num_outputs
    )
    params = {
        name: jnp.broadcast_to(one[..., None, :], (*one.shape[:-1], len(candidates), num_outputs))
        for name, one in first_params.items()
    }
    state = params, jax.tree.map(jnp.zeros_like, params)
    batches = draw_batches(len(training.rows), plan, np.random.default_rng([seed, 2]))
    length = plan.steps // plan.checkpoints
    found: list[Found] = []
    num_rows = 0
    for first in range(0, plan.steps, length):
        drawn = batches[first : first + length]
        state = _segment(
            loss,
            head,
            plan,
            state,
            values,
            features,
            (jnp.asarray(training.rows[drawn]), jnp.asarray(training.labels[drawn])),
            class_counts,
            jax.random.fold_in(key, 1),
            jnp.asarray(first),
        )
        scorer = Scorer(_Heads(loss, head, state[0], values, features, class_counts))
        found.append(evaluate(scorer))
        num_rows += scorer.num_rows
    products = 4 * plan.steps * plan.batch_size + 2 * num_rows
    return Trained(
        found,
        _cpu_seconds() - cpu_began,
        time.monotonic() - began,
        float(products * num_features * num_outputs * len(candidates)),
    )


def initial_params(
    head: str, key: jax.Array, num_features: int, num_classes: int, num_outputs: int
) -> dict[str, jax.Array]:
    """The first parameters of one candidate, as the program's heads have them."""
    example = jnp.zeros((1, num_features))
    made: list[Any] = []
    for part in jax.random.split(key, num_outputs // num_classes):
        module = LinearHead(num_classes) if head == "linear" else CosineHead(num_classes)
        made.append(module.init(part, example)["params"])
    if head == "cosine":
        return {"kernel": jnp.concatenate([one["class_vectors"] for one in made], axis=-1)}
    layers = [one["Dense_0"] for one in made]
    return {
        name: jnp.concatenate([layer[name] for layer in layers], axis=-1)
        for name in ("kernel", "bias")
    }


def head_scores(
    head: str, params: Mapping[str, jax.Array], values: losses.Parameters, rows: jax.Array
) -> jax.Array:
    """The scores of all candidates, [n, C, L]."""
    kernel = params["kernel"]
    if head == "cosine":
        kernel = unit_vectors(kernel, axis=0)
        rows = unit_vectors(rows, axis=-1)
    flat = jnp.matmul(rows, kernel.reshape(kernel.shape[0], -1))
    scores = flat.reshape(-1, *kernel.shape[1:])
    if head == "cosine":
        return scores * values["scale"][None, :, None]
    return scores + params["bias"][None]


@functools.partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=3)
def _segment(
    loss: str,
    head: str,
    plan: Plan,
    state: Any,
    values: losses.Parameters,
    features: jax.Array,
    batches: tuple[jax.Array, jax.Array],
    class_counts: jax.Array,
    key: jax.Array,
    first: jax.Array,
) -> Any:
    """Some steps of SGD; the rate falls to 0 along half a cosine."""

    def of_candidate(
        scores: jax.Array, labels: jax.Array, own: losses.Parameters, data: losses.Data, late: Any
    ) -> jax.Array:
        by_example = losses.LOSSES[loss](scores, labels, own, data)
        return (by_example * losses.weights(own, data, late)[labels]).mean()

    def step(state: Any, inputs: Any) -> tuple[Any, None]:
        params, velocity = state
        index, rows, labels = inputs
        data = losses.Data(class_counts, jax.random.fold_in(key, index))
        late = index >= round(plan.deferred_from * plan.steps)
        scores, pull = jax.vjp(
            lambda params: head_scores(head, params, values, features[rows]), params
        )
        of_scores = jax.vmap(jax.grad(of_candidate), in_axes=(1, None, 0, None, None), out_axes=1)(
            scores, labels, values, data, late
        )
        (gradient,) = pull(of_scores)
        share = (1 + jnp.cos(jnp.pi * index.astype(jnp.float32) / plan.steps)) / 2
        rate = values["rate"] * share

        velocity = jax.tree.map(lambda v, g: plan.momentum * v + g, velocity, gradient)
        params = jax.tree.map(
            lambda p, v, g: p - _over(rate, p) * (plan.momentum * v + g), params, velocity, gradient
        )
        return (params, velocity), None

    rows, labels = batches
    state, _ = jax.lax.scan(step, state, (first + jnp.arange(len(rows)), rows, labels))
    return state


@jax.jit
def _ranks(heads: _Heads, examples: tuple[jax.Array, jax.Array]) -> jax.Array:
    """The ranks of the labels of examples, given by their rows and labels, [n, C]."""

    def of_example(example: tuple[jax.Array, jax.Array]) -> jax.Array:
        row, label = example
        scores = heads.scores(row)
        return label_ranks(scores, jnp.broadcast_to(label, scores.shape[:1]))

    ranks: jax.Array = jax.lax.map(of_example, examples, batch_size=_ROWS)
    return ranks


@jax.jit
def _predicted(heads: _Heads, rows: jax.Array) -> jax.Array:
    """The scores that the classes of rows are ranked by, [n, C, L]."""
    scores: jax.Array = jax.lax.map(heads.scores, rows, batch_size=_ROWS)
    return scores


def _over(by_candidate: jax.Array, parameters: jax.Array) -> jax.Array:
    """Numbers of the candidates [C] as they multiply parameters [..., C, L]."""
    return jnp.expand_dims(by_candidate, (*range(parameters.ndim - 2), -1))


def draw_batches(count: int, plan: Plan, rng: np.random.Generator) -> np.ndarray:
    """The positions of all batches, [steps, batch_size]: one random order after the other."""
    wanted = plan.steps * plan.batch_size
    orders = [rng.permutation(count) for _ in range(-(-wanted // count))]
    return np.concatenate(orders)[:wanted].reshape(plan.steps, plan.batch_size)


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
