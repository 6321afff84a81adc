"""The scores of a split from the results of compiled steps, batch by batch."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from train.data.batches import Batch
from train.data.classes import Classes
from train.data.examples import Examples
from train.devices import processes
from train.devices.devices import Devices
from train.scores.scores import Scores, collect


def rows(
    eval_step: Callable[..., Any],
    params: Any,
    batch_stats: Any,
    batches: Iterable[Batch],
    devices: Devices,
    *,
    split: Examples,
    num_classes: int,
) -> Iterator[dict[str, np.ndarray]]:
    """Runs the compiled step with variables that are copied to each device, and drops the padding.

    Every process runs it over its share, and gets the results of all processes.

    Args:
        eval_step: the compiled step.
        params: the parameters.
        batch_stats: batch norm's statistics.
        batches: the batches of this process.
        devices: those that the step runs on.
        split: the examples in the batches of all processes.
        num_classes: the number of classes L. The step gets no label that is not less.

    Returns:
        What is known of the examples of each batch, for `collected`.
    """
    known = None if split.truths is None else split.truths.among(num_classes)
    for share in batches:
        labels = np.asarray(share["labels"])
        of_step = {**share, "labels": labels_for_steps(labels, num_classes)}
        if known is not None:
            of_step |= known.arrays(share["examples"])
        of_host = {name: np.asarray(of_step.pop(name)) for name in ("examples", "mask")}
        outputs = devices.join(eval_step(params, batch_stats, devices.split(of_step)))
        batch = processes.gather({**outputs, "labels": labels, **of_host})
        mask = batch.pop("mask")
        yield {name: np.asarray(array)[mask] for name, array in batch.items()}


def labels_for_steps(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Labels that a step can take: classes that are not known become any other class."""
    return np.where(labels < num_classes, labels, 0)


def collected(
    batches: Iterable[Mapping[str, np.ndarray]], split: Examples, classes: Classes
) -> Scores:
    """The scores of the examples of a split.

    Args:
        batches: what `rows` returns of each batch.
        split: the examples.
        classes: the L classes of the scores.
    """
    arrays: dict[str, list[np.ndarray]] = {}

    def parts() -> Iterator[np.ndarray]:
        for batch in batches:
            for name in batch.keys() - {"scores"}:
                arrays.setdefault(name, []).append(batch[name])
            yield batch["scores"]

    values = collect(parts(), len(split))
    found = {name: np.concatenate(array) for name, array in arrays.items()}
    indices, labels, num_classes = found["examples"], found["labels"], values.shape[1]
    scores = Scores(
        values=values,
        labels=labels,
        ranks=np.where(labels < num_classes, found["ranks"], num_classes),
        loss=np.where(labels < num_classes, found["loss"], np.nan),
        classes=classes,
        unknown_classes=split.class_names[len(classes) :],
        names=split.names_of(indices) if split.are_rows or split.names is not None else None,
        groups=None if split.groups is None else split.groups[indices],
        indices=indices,
    )
    if split.truths is None:
        return scores
    return scores.with_truths(split.truths[indices], found.get("class_ranks"))
