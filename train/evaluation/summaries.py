"""A split to metrics: loss, top-K and average-K accuracy of several kinds, set sizes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax import metrics, sets
from train.data.batches import Batch
from train.devices import processes
from train.devices.parallel import Devices
from train.evaluation import metric_names, set_rules
from train.evaluation.set_rules import SetRule
from train.foundation.errors import UserError

# Examples that are looked at together, where all at once would take too much memory.
_CHUNK = 4096


@dataclass(frozen=True)
class Predictions:
    """What a model says of the n examples of a split.

    Attributes:
        loss: of each example, [n].
        scores: what sets are made of, [n, L].
        labels: the classes, [n].
        ranks: how many classes come before the label, [n]; see `ranking.label_ranks`. Those of the
            logits: probabilities of 32 bits are 0 where a logit is 104 below the largest.
    """

    loss: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    ranks: np.ndarray

    def take(self, places: np.ndarray) -> "Predictions":
        """Those of some examples."""
        arrays = (self.loss, self.scores, self.labels, self.ranks)
        return Predictions(*(array[places] for array in arrays))

    def mean_loss(self) -> float:
        """The mean of the losses."""
        return float(self.loss.mean(dtype=np.float64))


@dataclass(frozen=True)
class Sets:
    """What sets of n examples are worth: whether each has the label [n], and its size [n]."""

    hits: np.ndarray
    sizes: np.ndarray


@dataclass(frozen=True)
class Evaluation:
    """What is reported of a split.

    Attributes:
        metrics: values by their names.
        size_counts: how many sets have 0, 1, 2, … classes, for each rule whose sets differ in size.
    """

    metrics: dict[str, float]
    size_counts: dict[str, np.ndarray]


def predict(
    eval_step: Callable[..., Any],
    params: Any,
    batch_stats: Any,
    batches: Iterable[Batch],
    devices: Devices,
) -> Predictions:
    """Runs the compiled step, with what each device has a copy of, and drops the padding.

    Every process runs it over its share, and gets what all of them found.
    """
    parts: dict[str, list[np.ndarray]] = {"loss": [], "scores": [], "labels": [], "ranks": []}
    for share in batches:
        outputs = devices.join(eval_step(params, batch_stats, devices.split(share)))
        batch = processes.gather(
            {**outputs, "labels": np.asarray(share["labels"]), "mask": np.asarray(share["mask"])}
        )
        mask = batch["mask"]
        for name, found in parts.items():
            found.append(batch[name][mask])
    return Predictions(**{name: np.concatenate(found) for name, found in parts.items()})


def average_k_thresholds(predictions: Predictions, ks: Sequence[int]) -> dict[int, jax.Array]:
    """For each K, the threshold whose sets have K classes on average over the split."""
    return {k: average_k_threshold(predictions.scores, k) for k in ks}


def average_k_threshold(scores: np.ndarray, k: float) -> jax.Array:
    """The threshold whose sets of scores [n, L] have K classes on average, in O(K n) memory."""
    calibrator = sets.AverageKCalibrator(k, num_examples=len(scores))
    for start in range(0, len(scores), _CHUNK):
        calibrator.update(scores[start : start + _CHUNK])
    return calibrator.threshold()


def summarize(
    predictions: Predictions, thresholds: Mapping[int, jax.Array], class_counts: np.ndarray
) -> Evaluation:
    """Every metric of `metric_names`, the mean loss, and the sizes of the average-K sets.

    Args:
        predictions: what the model says of the split.
        thresholds: those of the average-K sets, calibrated on validation.
        class_counts: the training images of each class, which make it few, medium or many shot.
    """
    values: dict[str, float] = {metric_names.LOSS: predictions.mean_loss()}
    size_counts: dict[str, np.ndarray] = {}
    for k, threshold in thresholds.items():
        outcome = top_k_sets(predictions, k)
        values |= accuracies(metric_names.top_k(k), outcome, predictions.labels, class_counts)
        rule = metric_names.average_k(k)
        outcome = find_sets(predictions, set_rules.at_threshold(threshold))
        values |= accuracies(rule, outcome, predictions.labels, class_counts)
        values[metric_names.set_size(rule)] = float(outcome.sizes.mean())
        size_counts[rule] = np.bincount(outcome.sizes)
    return Evaluation(values, size_counts)


def top_k_sets(predictions: Predictions, k: int) -> Sets:
    """What the sets of the K best classes are worth."""
    return Sets(predictions.ranks < k, np.full(len(predictions.ranks), k))


def find_sets(predictions: Predictions, rule: SetRule) -> Sets:
    """What the sets of a rule are worth, without all of them in memory at once."""
    hits, sizes = [], []
    for start in range(0, len(predictions.labels), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        found = _hits_and_sizes(rule(predictions.scores[chunk]), predictions.labels[chunk])
        hits.append(np.asarray(found[0]))
        sizes.append(np.asarray(found[1]))
    return Sets(np.concatenate(hits), np.concatenate(sizes))


def accuracies(
    rule: str, outcome: Sets, labels: np.ndarray, class_counts: np.ndarray
) -> dict[str, float]:
    """Every accuracy of a rule, by its name: over examples, over classes, and by shot."""
    values = accuracies_by_average(outcome, labels, class_counts)
    names = metric_names.rule_accuracies(rule)
    return {names[average]: value for average, value in values.items()}


def accuracies_by_average(
    outcome: Sets, labels: np.ndarray, class_counts: np.ndarray
) -> dict[str, float]:
    """The share of sets with the label: over examples (micro), over classes (macro), by shot."""
    values = _accuracies(outcome.hits, labels, class_counts)
    return {average: float(value) for average, value in values.items()}


def check_has_value(name: str, labels: np.ndarray, class_counts: np.ndarray) -> None:
    """Raises `UserError` where a split of these labels cannot have the metric to select by."""
    hits = np.ones(len(labels), np.bool_)
    for shot, value in _by_shot(hits, labels, class_counts).items():
        if name.startswith(f"{shot}_") and np.isnan(value):
            raise UserError(
                f"config.select_by must be a metric that the validation split has; {name!r} has no "
                "value, because no class of that kind occurs in it"
            )


@jax.jit
def _hits_and_sizes(chosen: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    hits = jnp.take_along_axis(chosen, labels[:, None], axis=-1, mode="fill", fill_value=False)
    return hits[:, 0], metrics.set_sizes(chosen)


@jax.jit
def _accuracies(
    hits: jax.Array, labels: jax.Array, class_counts: jax.Array
) -> dict[str, jax.Array]:
    return {
        "micro": metrics.accuracy(hits),
        "macro": metrics.macro_accuracy(hits, labels, num_classes=len(class_counts)),
        **_by_shot(hits, labels, class_counts),
    }


def _by_shot(hits: Any, labels: Any, class_counts: Any) -> dict[str, jax.Array]:
    return metrics.shot_accuracy(
        hits,
        labels,
        class_counts=class_counts,
        few=metric_names.FEW_BELOW,
        many=metric_names.MANY_ABOVE,
    )
