"""A split to metrics: loss, top-K and average-K accuracy of several kinds, set sizes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax import metrics, sets
from train import metric_names, processes
from train.data.batches import Batch
from train.errors import UserError
from train.parallel import Devices

# Examples that are looked at together, where all at once would take too much memory.
_CHUNK = 4096


@dataclass(frozen=True)
class Predictions:
    """What a model says of the n examples of a split: loss [n], scores [n, L], labels [n]."""

    loss: np.ndarray
    scores: np.ndarray
    labels: np.ndarray


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
    losses, scores, labels = [], [], []
    for share in batches:
        outputs = devices.join(eval_step(params, batch_stats, devices.split(share)))
        batch = processes.gather(
            {**outputs, "labels": np.asarray(share["labels"]), "mask": np.asarray(share["mask"])}
        )
        mask = batch["mask"]
        losses.append(batch["loss"][mask])
        scores.append(batch["scores"][mask])
        labels.append(batch["labels"][mask])
    return Predictions(*(np.concatenate(parts) for parts in (losses, scores, labels)))


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
) -> dict[str, float]:
    """Every metric of `metric_names`, and the mean loss.

    Args:
        predictions: what the model says of the split.
        thresholds: those of the average-K sets, calibrated on validation.
        class_counts: the training images of each class, which make it few, medium or many shot.
    """
    summary = _summarize(
        predictions.scores, predictions.labels, dict(thresholds), jnp.asarray(class_counts)
    )
    summary = {name: float(value) for name, value in summary.items()}
    return {metric_names.LOSS: float(predictions.loss.mean(dtype=np.float64)), **summary}


def check_has_value(name: str, labels: np.ndarray, class_counts: np.ndarray) -> None:
    """Raises `UserError` where a split of these labels cannot have the metric to select by."""
    hits = np.ones(len(labels), np.bool_)
    for shot, value in metrics.shot_accuracy(hits, labels, class_counts=class_counts).items():
        if name.startswith(f"{shot}_") and np.isnan(value):
            raise UserError(
                f"config.select_by must be a metric that the validation split has; {name!r} has no "
                "value, because no class of that kind occurs in it"
            )


@jax.jit
def _summarize(
    scores: jax.Array,
    labels: jax.Array,
    thresholds: dict[int, jax.Array],
    class_counts: jax.Array,
) -> dict[str, jax.Array]:
    summary: dict[str, jax.Array] = {}
    for k, threshold in thresholds.items():
        hits = metrics.top_k_hits(scores, labels, k=k)
        summary |= _accuracies(metric_names.top_k(k), hits, labels, class_counts)
        rule = metric_names.average_k(k)
        hits = metrics.threshold_hits(scores, labels, threshold)
        summary |= _accuracies(rule, hits, labels, class_counts)
        sizes = metrics.set_sizes(sets.threshold_set(scores, threshold))
        summary[metric_names.set_size(rule)] = metrics.tally(sizes).mean()
    return summary


def _accuracies(
    rule: str, hits: jax.Array, labels: jax.Array, class_counts: jax.Array
) -> dict[str, jax.Array]:
    values = {
        "micro": metrics.accuracy(hits),
        "macro": metrics.macro_accuracy(hits, labels, num_classes=len(class_counts)),
        **metrics.shot_accuracy(hits, labels, class_counts=class_counts),
    }
    return {name: values[average] for average, name in metric_names.rule_accuracies(rule).items()}
