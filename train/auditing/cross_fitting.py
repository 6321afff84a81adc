"""Linear heads on features, one for each fold, which are trained on the other folds together.

The step size is a part of what is stable for the features, whatever these are. The heads are
trained as long as they get better on the folds that they do not see: the end of the training keeps
heads of many features from learning the wrong labels of few examples.
"""

import warnings
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import optax

from topk_jax import losses, metrics
from train.data.classes import Classes
from train.data.examples import Examples
from train.foundation.console import tracked
from train.scores import collecting
from train.scores.scores import Scores, numbered

_BATCH = 1024
# The heads are compared with their earlier state after at least this many steps.
_STEPS = 32
_MOST_ROUNDS = 40
# The most rounds in a row that are not better than the best one.
_PATIENCE = 3
# The slopes of the cross-entropy change by at most half of the largest eigenvalue of the features'
# second moments. Steps of gradient descent are stable up to 4 over this eigenvalue. A sixteenth of
# it is used, as momentum makes steps ten times as long, and batches vary.
_RATE = 4 / 16
_MOMENTUM = optax.trace(decay=0.9, nesterov=True)
# How many rows of one fold are judged together.
_CHUNK = 2**13

# The features of some examples, float32 [m, d]; the last one is 1.
Rows = Callable[[np.ndarray], np.ndarray]


def folds_of(examples: Examples, *, num_folds: int, seed: int) -> np.ndarray:
    """The fold of each example, int32 [n]: a group is in one, and a class nearly equally in all.

    If no class has that many examples, or there are fewer groups, there are fewer folds.
    """
    # Importing scikit-learn takes a second.
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold  # noqa: PLC0415

    labels, groups = examples.labels, examples.groups
    names, groups = numbered([""] * len(labels) if groups is None else groups)
    folds = np.zeros(len(labels), np.int32)
    if (number := min(num_folds, np.bincount(labels).max(), len(names))) < 2:
        return folds
    # Groups that serve equally well are taken by their numbers.
    groups = np.random.default_rng(seed).permutation(len(names))[groups]
    divide = StratifiedGroupKFold(number)
    if len(names) == len(labels):
        divide = StratifiedKFold(number, shuffle=True, random_state=seed)
    with warnings.catch_warnings(category=UserWarning, action="ignore"):  # Of rare classes.
        for fold, (_, chosen) in enumerate(divide.split(labels, labels, groups)):
            folds[chosen] = fold
    return folds


def judge(
    examples: Examples, rows: Rows, folds: np.ndarray, judged: np.ndarray, *, seed: int
) -> Scores:
    """Scores, which are logits, of each example by the head that was not trained on its fold.

    They are fold after fold. Of examples that are not `judged`, bool [n], the losses do not count.
    """
    labels, size, rng = examples.labels, min(_BATCH, len(examples)), np.random.default_rng(seed)
    first = rows(rng.choice(len(labels), size, replace=False))
    heads = jnp.zeros((int(folds.max()) + 1, first.shape[1], len(examples.class_names)))
    state = _MOMENTUM.init(heads)
    rates = np.full((1, first.shape[1], 1), _RATE, np.float32)
    rates[:, :-1] *= len(first) / np.linalg.norm(first[:, :-1], 2) ** 2
    best, best_round, least = heads, 0, np.inf
    for number in tracked(range(_MOST_ROUNDS), _MOST_ROUNDS, "training heads"):
        for _ in range(max(_STEPS, len(labels) // _BATCH)):
            chosen = rng.choice(len(labels), size, replace=False, shuffle=False)
            batch = rows(chosen), labels[chosen], folds[chosen]
            heads, state = _step(heads, state, rates, batch)
        found = _out_of_fold(heads, labels, rows, folds)
        known = [part["loss"][judged[part["examples"]]] for part in found]
        mean = float(np.concatenate(known).mean(dtype=np.float64))
        if mean < least:
            best, best_round, least = heads, number, mean
        if number - best_round >= _PATIENCE:
            break
    parts = _out_of_fold(best, labels, rows, folds)
    return collecting.collected(parts, examples, Classes.of(examples.class_names))


@jax.jit
def _step(
    heads: jax.Array, state: optax.OptState, rates: jax.Array, batch: tuple[jax.Array, ...]
) -> tuple[jax.Array, optax.OptState]:
    """Trains each head [folds, d, L] on the examples of a batch that are not in its fold."""
    rows, labels, folds = batch

    def of_fold(head: jax.Array, fold: jax.Array) -> jax.Array:
        loss = losses.cross_entropy(rows @ head, labels)
        others = folds != fold
        # A batch may have examples of only one fold, if a group is nearly all of them.
        return jnp.sum(loss, where=others) / jnp.maximum(others.sum(), 1).astype(loss.dtype)

    slopes = jax.vmap(jax.grad(of_fold))(heads, jnp.arange(len(heads), dtype=folds.dtype))
    steps, state = _MOMENTUM.update(slopes, state)
    return heads - rates * steps, state


def _out_of_fold(
    heads: jax.Array, labels: np.ndarray, rows: Rows, folds: np.ndarray
) -> Iterator[dict[str, np.ndarray]]:
    """What `collecting.collected` takes, of all examples, fold after fold."""
    for fold, head in enumerate(heads):
        members = np.flatnonzero(folds == fold)
        for start in range(0, len(members), _CHUNK):
            chosen = members[start : start + _CHUNK]
            found = _judge(head, rows(chosen), labels[chosen])
            known = {name: np.asarray(array) for name, array in found.items()}
            yield {"examples": chosen, "labels": labels[chosen], **known}


@jax.jit
def _judge(head: jax.Array, rows: jax.Array, labels: jax.Array) -> dict[str, jax.Array]:
    logits = rows @ head
    loss, ranks = losses.cross_entropy(logits, labels), metrics.label_ranks(logits, labels)
    return {"loss": loss, "ranks": ranks, "scores": logits}
