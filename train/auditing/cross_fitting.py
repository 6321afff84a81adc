"""Linear heads on features, one for each fold, which are trained on the other folds together.

The step size is a part of what is stable for the features, whatever these are. The heads are
trained as long as they get better on the folds that they do not see: the end of the training keeps
heads of many features from learning the wrong labels of few examples.
"""

import itertools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import optax

from topk_jax import losses, metrics
from train.auditing.examples import AuditedExamples
from train.evaluation.predictions import Predictions
from train.evaluation.stored_scores import CollectedScores
from train.foundation.console import make_console
from train.foundation.progress_bar import make_bar

_BATCH = 1024
# The heads are compared with their earlier state after at least this many steps.
_STEPS = 32
_MOST_ROUNDS = 40
# The most rounds in a row that are not better than the best one.
_PATIENCE = 3
# The slopes of the cross-entropy change by at most half of the largest eigenvalue of the features'
# second moments. Steps of gradient descent are stable up to 4 over this eigenvalue.
_STABLE = 4.0
# The part of it that is used, as momentum makes steps ten times as long, and batches vary.
_PART = 1 / 16
_MOMENTUM = optax.trace(decay=0.9, nesterov=True)
# How many rows of one fold are judged together.
_CHUNK = 2**13

# The weights [folds, d, L] and the biases [folds, L].
Heads = tuple[jax.Array, jax.Array]


def judge(
    examples: AuditedExamples, folds: np.ndarray, judged: np.ndarray, *, seed: int
) -> Predictions:
    """The predictions for each example by the head that was not trained on its fold.

    Args:
        examples: the examples, by increasing folds.
        folds: the fold of each, int32 [n].
        judged: whether the head of an example knows its class, bool [n]; the losses of the others
            do not count.
        seed: of the order of the examples in training.

    Returns:
        Predictions with logits.
    """
    shape = int(folds[-1]) + 1, len(examples.mean), len(examples.class_names)
    heads: Heads = jnp.zeros(shape), jnp.zeros(shape[::2])
    state = _MOMENTUM.init(heads)
    batches = _batches(examples, folds, seed)
    rows, *_ = next(batches)
    # A bias has a feature that is always 1.
    rates = _PART * _STABLE * len(rows) / np.linalg.norm(rows, 2) ** 2, _PART * _STABLE
    steps = max(_STEPS, len(examples) // _BATCH)
    best, best_round, least = heads, 0, np.inf
    with make_bar(make_console(), transient=True) as bar:
        task = bar.add_task("training heads", total=_MOST_ROUNDS)
        for number in range(_MOST_ROUNDS):
            for batch in itertools.islice(batches, steps):
                heads, state = _step(heads, state, rates, *batch)
            losses_of_all = [loss for loss, *_ in _out_of_fold(heads, examples, folds)]
            mean = float(np.concatenate(losses_of_all)[judged].mean(dtype=np.float64))
            if mean < least:
                best, best_round, least = heads, number, mean
            bar.update(task, completed=number + 1)
            if number - best_round >= _PATIENCE:
                break
    scores = CollectedScores(len(examples))
    rest = []
    for *found, logits in _out_of_fold(best, examples, folds):
        scores.add(logits)
        rest.append(found)
    loss, ranks = map(np.concatenate, zip(*rest, strict=True))
    return Predictions(
        loss, scores.scores(), examples.labels, ranks, examples.names, examples.groups
    )


def _batches(
    examples: AuditedExamples, folds: np.ndarray, seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Rows, labels and folds of training batches without end; each pass has another order."""
    rng = np.random.default_rng(seed)
    size = min(_BATCH, len(examples))
    while True:
        order = rng.permutation(len(examples))
        for start in range(0, len(order) - size + 1, size):
            chosen = order[start : start + size]
            yield examples.rows(chosen), examples.labels[chosen], folds[chosen]


@jax.jit
def _step(
    heads: Heads,
    state: optax.OptState,
    rates: tuple[float, float],
    rows: jax.Array,
    labels: jax.Array,
    folds: jax.Array,
) -> tuple[Heads, optax.OptState]:
    """Trains each head on the examples of a batch that are not in its fold."""

    def total(heads: Heads) -> jax.Array:
        def of_fold(kernel: jax.Array, bias: jax.Array, fold: jax.Array) -> jax.Array:
            loss = losses.cross_entropy(_logits(kernel, bias, rows), labels)
            others = folds != fold
            # A batch may have examples of only one fold, if a group is nearly all of them.
            return jnp.sum(loss, where=others) / jnp.maximum(others.sum(), 1).astype(loss.dtype)

        # Each fold has a head of its own, so the gradients do not mix in the sum.
        return jax.vmap(of_fold)(*heads, jnp.arange(len(heads[0]), dtype=folds.dtype)).sum()

    steps, state = _MOMENTUM.update(jax.grad(total)(heads), state)
    kernels, biases = (
        array - rate * step for array, rate, step in zip(heads, rates, steps, strict=True)
    )
    return (kernels, biases), state


def _out_of_fold(
    heads: Heads, examples: AuditedExamples, folds: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """The losses, label ranks and logits of all examples, in some parts."""
    ends = np.searchsorted(folds, np.arange(len(heads[0]) + 1))
    size = min(_CHUNK, int(np.diff(ends).max()))
    for fold, (begin, end) in enumerate(itertools.pairwise(ends.tolist())):
        for start in range(begin, end, size):
            # The last part is filled up, so that all have one shape.
            chosen = np.minimum(np.arange(start, start + size), end - 1)
            found = _judge(heads, fold, examples.rows(chosen), examples.labels[chosen])
            loss, ranks, logits = (np.asarray(array)[: end - start] for array in found)
            yield loss, ranks, logits


@jax.jit
def _judge(
    heads: Heads, fold: int, rows: jax.Array, labels: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    kernels, biases = heads
    logits = _logits(kernels[fold], biases[fold], rows)
    return losses.cross_entropy(logits, labels), metrics.label_ranks(logits, labels), logits


def _logits(kernel: jax.Array, bias: jax.Array, rows: jax.Array) -> jax.Array:
    logits = rows @ kernel
    return logits + jnp.broadcast_to(bias, logits.shape)
