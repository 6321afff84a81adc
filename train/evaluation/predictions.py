"""The predictions of a model for the examples of a split."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from topk_jax import metrics
from train.data.batches import Batch
from train.data.examples import Examples
from train.data.truths import Truths
from train.devices import processes
from train.devices.parallel import Devices
from train.evaluation.stored_scores import CollectedScores

# Examples, and scores of these, that are processed together to save memory.
CHUNK = 2**12
_MOST_SCORES = 2**22
_DRAW_SEED = 20261125
# What a step returns for examples, and their numbers.
_OF_BATCHES = ("examples", "scores", "loss", "labels", "ranks", "class_ranks")
# The attributes of `Predictions`, each with an entry for each example.
_OF_EXAMPLES = (
    *("loss", "scores", "labels", "ranks", "names", "groups", "indices"),
    *("truths", "class_ranks", "outliers"),
)


@dataclass(frozen=True)
class Predictions:
    """The predictions of a model for the n examples of a split.

    Attributes:
        loss: the loss of each example, [n].
        scores: what sets are made of, [n, L].
        labels: the classes, [n]. One from L on is a class that the model does not know: its rank is
            L, it is in no set, and its loss is NaN.
        ranks: how many classes come before the label, [n]; see `topk_jax.metrics.label_ranks`.
            They are of the logits: probabilities of 32 bits are 0 if a logit is 104 below the
            largest.
        names: the names of the examples, as the paths of files, [n]; None if they have none.
        groups: the names of what examples belong to, [n]; None if they have none.
        indices: the places of the examples in their split, [n]; None for scores from a file, whose
            examples are all there.
        truths: what the labels stand for, [n], if the truth of an example is more than one class;
            else None.
        class_ranks: the ranks of all classes of the truths, [n, m].
        outliers: how unusual the examples are, [n]; None if that is not needed.
    """

    loss: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    ranks: np.ndarray
    names: np.ndarray | None = None
    groups: np.ndarray | None = None
    indices: np.ndarray | None = None
    truths: Truths | None = None
    class_ranks: np.ndarray | None = None
    outliers: np.ndarray | None = None

    @property
    def num_classes(self) -> int:
        """The number of classes, with those that the model does not know."""
        labels = self.labels if self.truths is None else self.truths.classes
        return max(self.scores.shape[-1], int(labels.max(initial=0)) + 1)

    @property
    def is_known(self) -> np.ndarray:
        """Whether the model knows the class of each example, [n]."""
        known: np.ndarray = self.labels < self.scores.shape[-1]
        return known

    @property
    def counted_labels(self) -> np.ndarray:
        """The labels [v] that reports count: all classes of an example whose truth is several."""
        return self.labels if self.truths is None else self.truths.entries()

    @property
    def drawn_labels(self) -> np.ndarray:
        """A label of each example to calibrate on, [n]; drawn if the truth is several classes.

        It is drawn from the shares of the classes that the model knows, and always the same.
        """
        if self.truths is None:
            return self.labels
        return self.truths.among(self.scores.shape[-1]).draw(np.random.default_rng(_DRAW_SEED))

    def of_known_truths(
        self, values: Callable[[np.ndarray, np.ndarray], jax.Array | np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Values of all classes of the truths, and the shares of these classes: [n, m] both.

        Args:
            values: takes scores [c, L] of some examples and a class of each [c]; returns [c].
        """
        assert self.truths is not None
        truths = self.truths.among(self.scores.shape[-1])
        found = []
        for chunk in chunks(self.scores):
            scores, classes = self.scores[chunk], truths.classes[chunk]
            found.append(np.stack([values(scores, one) for one in classes.T], axis=1))
        return np.concatenate(found), truths.shares

    def counts_of_all(self, class_counts: np.ndarray) -> np.ndarray:
        """The training examples of each class; classes that are not known have 0."""
        return np.pad(class_counts, (0, self.num_classes - len(class_counts)))

    def names_or_numbers(self) -> np.ndarray:
        """The names of the examples, [n]; "example N", counted from 0, if they have none."""
        if self.names is not None:
            return self.names
        places = range(len(self.labels)) if self.indices is None else self.indices.tolist()
        return np.array([f"example {place}" for place in places], object)

    def take(self, indices: np.ndarray) -> "Predictions":
        """The predictions for the examples at some indices."""
        if np.array_equal(indices, np.arange(len(self.labels))):
            return self  # Scores in a file stay there.
        given = ((name, getattr(self, name)) for name in _OF_EXAMPLES)
        parts: dict[str, Any] = {
            name: None if array is None else array[indices] for name, array in given
        }
        return Predictions(**parts)

    def mean_loss(self) -> float:
        """The mean of the losses of examples of known classes."""
        return float(self.loss[self.is_known].mean(dtype=np.float64))


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
        mask = batch["mask"]
        yield {name: np.asarray(batch[name])[mask] for name in _OF_BATCHES if name in batch}


def collected(batches: Iterable[Mapping[str, np.ndarray]], split: Examples) -> Predictions:
    """The predictions for the examples of a split.

    Args:
        batches: what `rows` returns of each batch.
        split: the examples.
    """
    arrays: dict[str, np.ndarray] = {}
    num_examples = len(split)
    scores = CollectedScores(num_examples)
    start = end = 0
    for batch in batches:
        start, end = end, end + len(batch["labels"])
        scores.add(batch["scores"])
        for name in batch.keys() - {"scores"}:
            found = batch[name]
            if name not in arrays:
                arrays[name] = np.empty((num_examples, *found.shape[1:]), found.dtype)
            arrays[name][start:end] = found
    found_of = {name: array[:end] for name, array in arrays.items()}
    indices = found_of.pop("examples", np.zeros(0, np.int32))
    groups = None if split.groups is None else split.groups[indices]
    names = split.names_of(indices) if split.are_rows or split.names is not None else None
    class_ranks = found_of.pop("class_ranks", None)
    predictions = dataclasses.replace(
        of_steps(scores=scores.scores(), **found_of), names=names, groups=groups, indices=indices
    )
    if split.truths is None:
        return predictions
    return with_truths(predictions, split.truths[indices], class_ranks)


def with_truths(
    found: Predictions, truths: Truths, class_ranks: np.ndarray | None = None
) -> Predictions:
    """The predictions with the truths of the examples; classes that are not known rank last.

    Args:
        found: the predictions.
        truths: the truths, [n].
        class_ranks: the ranks of `Truths.among` the classes that are known, [n, m]; None to find
            them by the scores.
    """
    num_classes = found.scores.shape[-1]
    if class_ranks is None:
        classes = truths.among(num_classes).classes
        class_ranks = np.concatenate(
            [
                np.asarray(_class_ranks(found.scores[chunk], classes[chunk]))
                for chunk in chunks(found.scores)
            ]
        )
    class_ranks = np.where(truths.classes < num_classes, class_ranks, num_classes)
    return dataclasses.replace(found, truths=truths, class_ranks=class_ranks)


@jax.jit
def _class_ranks(scores: jax.Array, classes: jax.Array) -> jax.Array:
    ranks: jax.Array = jax.vmap(metrics.label_ranks, in_axes=(None, 1), out_axes=1)(scores, classes)
    return ranks


def labels_for_steps(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Labels that a step can take: classes that the model does not know become any other class."""
    return np.where(labels < num_classes, labels, 0)


def of_steps(
    loss: np.ndarray, scores: np.ndarray, labels: np.ndarray, ranks: np.ndarray
) -> Predictions:
    """The predictions from the results of steps with `labels_for_steps` of the labels."""
    found = Predictions(loss, scores, labels, ranks)
    if not (known := found.is_known).all():
        no_loss, last = loss.dtype.type(np.nan), ranks.dtype.type(scores.shape[-1])
        return Predictions(
            np.where(known, loss, no_loss), scores, labels, np.where(known, ranks, last)
        )
    return found


def ranks_in_64_bits(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The label ranks of unrounded scores [n, L]; JAX by default rounds them to 32 bits."""
    with jax.enable_x64(True):
        ranks = [metrics.label_ranks(scores[chunk], labels[chunk]) for chunk in chunks(scores)]
    return np.concatenate(ranks)


def chunks(scores: np.ndarray) -> Iterator[slice]:
    """Divides the examples of scores [n, L] into chunks that are processed together."""
    return chunks_of(*scores.shape)


def chunks_of(num_examples: int, num_classes: int) -> Iterator[slice]:
    """The same for the shape of scores that do not exist yet."""
    size = max(1, min(CHUNK, _MOST_SCORES // num_classes))
    for start in range(0, num_examples, size):
        yield slice(start, start + size)
