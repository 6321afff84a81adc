"""Examples to sets: the one loop of train.predict, for single examples and for observations."""

import dataclasses
import itertools
import operator
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from train.classifiers import fitted
from train.classifiers.classifier import Classifier
from train.data import reading
from train.data.examples import Examples
from train.data.images import UnreadableImageError
from train.foundation.errors import UserError
from train.prediction.entries import Entry
from train.prediction.thumbnails import Thumbnail, of_examples
from train.reports.rules import SetRule
from train.scores.observations import Combination
from train.scores.scores import numbered

_LARGEST_BATCH = 64
# An observation may have thousands of photographs; a page shows some.
_MOST_THUMBNAILS = 24


def fitted_rule(
    classifier: Classifier, given: SetRule | None, *, grouped: bool, calibration: Path | None
) -> SetRule:
    """The rule with its limits.

    Args:
        classifier: the classifier.
        given: the rule without limits; None for that of a program.
        grouped: whether it makes sets of observations.
        calibration: a file of fitted rules; None for limits from validation examples.

    Raises:
        UserError: it cannot be fitted, the file does not have it, or it is for other examples.
    """
    rule = given or classifier.own_rule
    if rule is None or (given is not None and classifier.own_rule is not None):
        raise UserError(f"{given} cannot be given: {classifier.title} has its own rule")
    if not grouped and rule.combination is not None:
        raise UserError(f"{rule} needs --group: other sets are of single examples")
    if grouped and (rule.says_new or given is None):
        raise UserError(f"{rule} excludes --group: it is for single examples")
    if given is None:
        return rule
    if grouped:
        rule = dataclasses.replace(rule, combination=rule.combination or Combination())
    return fitted.find(classifier, rule, calibration)


def predict(
    classifier: Classifier, rule: SetRule, examples: Examples, *, thumbnails: bool
) -> Iterator[Entry]:
    """The set of each example, or of each observation in the order of their first examples.

    Few photographs are in memory at a time: all of an observation are classified, and only their
    probabilities are kept. An example that belongs to an observation of which nothing can be read
    is an entry of its own.

    The size of batches is 64, or less for fewer examples. The last bits of a probability may depend
    on it, and on the place of the example in its batch.

    Args:
        classifier: the classifier.
        rule: the fitted rule; it combines the examples of each group if it has a combination.
        examples: what the classifier takes.
        thumbnails: whether to make thumbnails, of which an observation keeps 24.
    """
    size = min(_LARGEST_BATCH, 1 << (len(examples) - 1).bit_length())
    combination, order, of = rule.combination, np.arange(len(examples)), None
    if combination is not None:
        assert examples.groups is not None
        _, of = numbered(examples.groups)
        order = np.argsort(of, kind="stable")
    entries = _read(examples, order, grouped=of is not None, thumbnails=thumbnails)
    entries = _scored(classifier, rule, entries, size)
    if combination is not None and of is not None:
        grouped = itertools.groupby(zip(of[order], entries, strict=True), operator.itemgetter(0))
        members = ([one for _, one in some] for _, some in grouped)
        entries = itertools.chain.from_iterable(_observation(some, combination) for some in members)
    yield from _answered(entries, rule, size, len(classifier.classes.names))


def _read(
    examples: Examples, order: np.ndarray, *, grouped: bool, thumbnails: bool
) -> Iterator[Entry]:
    """The examples in an order, each with its inputs or with why it has none."""
    picture_of = of_examples(examples) if thumbnails else None

    def read(place: int) -> Entry:
        name = examples.name(place)
        group = str(examples.groups[place]) if grouped and examples.groups is not None else None
        if not examples.are_encoded:
            row: dict[str, Any] = {"row": int(examples.places[place])}
            origin = row if examples.names is None else {**row, "name": name}
            # Float32 for every file, so that the program is the exported one.
            inputs = examples.rows(np.array([place]))[0].astype(np.float32)
            made = None if picture_of is None else picture_of(place)
            shown = () if made is None else (made,)
            return Entry(origins=(origin,), group=group, inputs=inputs, thumbnails=shown)
        assert examples.reader is not None
        origin = {"path": name}
        try:
            picture = examples.reader.decode(examples.encoded(place), name)
            inputs = examples.reader.pixels(picture, name)
        except UnreadableImageError as error:
            return Entry(unreadable_origins=({**origin, "error": str(error)},))
        except OSError as error:
            why = f"cannot read {name}: {error.strerror}"
            return Entry(unreadable_origins=({**origin, "error": why},))
        shown = (Thumbnail.of(picture),) if thumbnails else ()
        return Entry(origins=(origin,), group=group, inputs=inputs, thumbnails=shown)

    if examples.are_encoded:
        return reading.in_threads(read, order.tolist(), ahead=_LARGEST_BATCH)
    return map(read, order.tolist())


def _scored(
    classifier: Classifier, rule: SetRule, entries: Iterable[Entry], size: int
) -> Iterator[Entry]:
    """The entries with their probabilities, which are computed in batches of one shape."""
    scores, new_score = classifier.scores(), rule.rule.new_score
    outliers = None if new_score is None else classifier.outliers(new_score)
    kind = np.uint8 if classifier.inputs == "images" else np.float32

    @jax.jit
    def infer(batch: jax.Array) -> tuple[jax.Array, jax.Array]:
        unusual = jnp.zeros(size) if outliers is None else outliers(batch)
        return scores(batch).astype(jnp.float32), unusual

    def start(batch: Sequence[Entry]) -> tuple[Sequence[Entry], tuple[jax.Array, jax.Array]]:
        padded = np.zeros((size, *classifier.shape), kind)
        for row, one in zip(padded, batch, strict=False):
            if one.inputs is not None:
                row[...] = one.inputs
        return batch, infer(padded)

    # The device computes while results are written.
    for batch, outputs in reading.started(map(start, _batched(entries, size)), 1):
        values, unusual = jax.device_get(outputs)
        for row, one in enumerate(batch):
            is_read = one.inputs is not None
            found = {"probabilities": values[row], "outlier": unusual[row]} if is_read else {}
            # An observation may have more photographs than the memory has room for.
            kept = one.inputs if rule.combination is None else None
            yield dataclasses.replace(one, **found, inputs=kept)


def _batched(entries: Iterable[Entry], size: int) -> Iterator[list[Entry]]:
    """Lists of entries one after the other; only the last may be shorter."""
    iterator = iter(entries)
    while batch := [*itertools.islice(iterator, size)]:
        yield batch


def _observation(members: Sequence[Entry], combination: Combination) -> Iterator[Entry]:
    """The members of an observation as one, or by themselves if none of them can be read."""
    known = [one.probabilities for one in members if one.probabilities is not None]
    if not known:
        yield from members
        return

    def joined(name: str) -> tuple[Any, ...]:
        return tuple(part for one in members for part in getattr(one, name))

    pooled = combination.pool(np.stack(known), np.zeros(len(known), np.int64))
    yield Entry(
        origins=joined("origins"),
        unreadable_origins=joined("unreadable_origins"),
        group=next(one.group for one in members if one.probabilities is not None),
        probabilities=pooled[0].astype(np.float32),
        thumbnails=joined("thumbnails")[:_MOST_THUMBNAILS],
    )


def _answered(
    entries: Iterable[Entry], rule: SetRule, size: int, num_classes: int
) -> Iterator[Entry]:
    """The entries with the answers of the rule, which is compiled once, for one shape."""
    answer = jax.jit(rule.answer)
    for batch in _batched(entries, size):
        values = np.full((size, num_classes), 1 / num_classes, np.float32)
        unusual = np.zeros(size, np.float32)
        for row, one in enumerate(batch):
            if one.probabilities is not None:
                values[row], unusual[row] = one.probabilities, one.outlier
        found = jax.device_get(answer(values, unusual if rule.says_new else None))
        for row, one in enumerate(batch):
            own = jax.tree.map(operator.itemgetter(row), found)
            yield one if one.probabilities is None else one.answered(own, rule.tree)
