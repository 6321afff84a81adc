"""Examples to sets: the one loop of train.predict, for single examples and for observations."""

import dataclasses
import itertools
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from train.classifiers import fitted
from train.classifiers.classifier import Classifier
from train.data.examples import Examples
from train.data.images import UnreadableImageError
from train.foundation import reading
from train.foundation.errors import UserError
from train.prediction.batching import batched, one_ahead
from train.prediction.entries import Entry
from train.prediction.thumbnails import Photograph, Thumbnail
from train.reports.rules import SetRule
from train.scores import observations
from train.scores.observations import Combination

_LARGEST_BATCH = 64
# An observation may have thousands of photographs; a page shows some.
_MOST_THUMBNAILS = 24

# An entry without its set, and how unusual its example is.
_Unanswered = tuple[Entry, np.float32 | None]


@dataclass(frozen=True, eq=False)
class _Read:
    """An example that was read, and then scored.

    Attributes:
        place: its place among all.
        inputs: what the classifier gets; None if it cannot be read.
        error: why it cannot be read.
        thumbnail: of its image, if a page shows it.
        probabilities: of all classes, [L].
        outlier: how unusual it is, if the rule asks for that.
    """

    place: int
    inputs: np.ndarray | None = None
    error: str = ""
    thumbnail: Thumbnail | None = None
    probabilities: np.ndarray | None = None
    outlier: np.float32 | None = None


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
        raise UserError(f"--sets is for a run or a network: {classifier.title} has its own rule")
    if not grouped and rule.combination is not None:
        raise UserError(f"{rule} needs --group: other sets are of single examples")
    if grouped and (rule.says_new or given is None):
        raise UserError(f"{rule} excludes --group: it is for single examples")
    if given is None:
        return rule
    if grouped:
        rule = dataclasses.replace(rule, combination=rule.combination or Combination())
    if calibration is None:
        return fitted.fitted(classifier, rule)
    kept = fitted.read(calibration, classifier)
    if str(rule) not in kept:
        raise UserError(f"--calibration {calibration} has no {rule}; it has {'; '.join(kept)}")
    return kept[str(rule)]


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
        thumbnails: whether to make thumbnails, of at most 24 photographs of an observation.
    """
    number, combination = len(examples), rule.combination
    of = np.arange(number)
    if combination is not None:
        assert examples.groups is not None
        _, of = observations.numbered(examples.groups)
    order = np.argsort(of, kind="stable")
    sizes = np.bincount(of)
    places = np.arange(number) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    shown = np.zeros(number, bool)
    shown[order] = thumbnails & examples.are_encoded & (places < _MOST_THUMBNAILS)
    size = min(_LARGEST_BATCH, 1 << (number - 1).bit_length())
    scored = _scored(classifier, rule.rule.new_score, _read(examples, order, shown), size)
    found = (
        entry
        for _, some in itertools.groupby(scored, lambda one: of[one.place])
        for entry in _entries([*some], examples, combination, photographs=thumbnails)
    )

    answer = jax.jit(rule.answer)
    for some in batched(found, size):
        yield from _answered(some, answer, rule, size)


def _read(examples: Examples, order: np.ndarray, shown: np.ndarray) -> Iterator[_Read]:
    """The inputs of the examples in an order; images in threads."""

    def row(place: int) -> _Read:
        # Float32 for every file, so that the program is the exported one.
        return _Read(place, examples.rows(np.array([place]))[0].astype(np.float32))

    def image(place: int) -> _Read:
        reader, name = examples.reader, examples.name(place)
        assert reader is not None
        try:
            picture = reader.decode(examples.encoded(place), name)
            pixels = reader.pixels(picture, name)
        except UnreadableImageError as error:
            return _Read(place, error=str(error))
        except OSError as error:
            return _Read(place, error=f"cannot read {name}: {error.strerror}")
        return _Read(place, pixels, thumbnail=Thumbnail.of(picture) if shown[place] else None)

    if examples.are_encoded:
        return reading.in_threads(image, order.tolist(), ahead=_LARGEST_BATCH)
    return map(row, order.tolist())


def _scored(
    classifier: Classifier, new_score: str | None, inputs: Iterable[_Read], size: int
) -> Iterator[_Read]:
    """The examples with their probabilities, which are computed in batches of one shape."""
    scores = classifier.scores()
    outliers = None if new_score is None else classifier.outliers(new_score)
    kind = np.uint8 if classifier.inputs == "images" else np.float32

    @jax.jit
    def infer(batch: jax.Array) -> tuple[jax.Array, jax.Array | None]:
        unusual = None if outliers is None else outliers(batch)
        return scores(batch).astype(jnp.float32), unusual

    def start(batch: Sequence[_Read]) -> tuple[Sequence[_Read], Any]:
        padded = np.zeros((size, *classifier.shape), kind)
        for row, one in zip(padded, batch, strict=False):
            if one.inputs is not None:
                row[...] = one.inputs
        return batch, infer(padded)

    for batch, outputs in one_ahead(map(start, batched(inputs, size))):
        values, unusual = (None if part is None else np.asarray(part) for part in outputs)
        assert values is not None
        for row, one in enumerate(batch):
            outlier = None if unusual is None else unusual[row]
            known = {} if one.inputs is None else {"probabilities": values[row], "outlier": outlier}
            yield dataclasses.replace(one, inputs=None, **known)


def _entries(
    some: Sequence[_Read], examples: Examples, combination: Combination | None, *, photographs: bool
) -> Iterator[_Unanswered]:
    """An example or an observation as one, or its files if none of them can be read."""
    read = [one for one in some if one.probabilities is not None]
    failed = [
        {**_origin(examples, one.place), "error": one.error}
        for one in some
        if one.probabilities is None
    ]
    if not read:
        yield from ((Entry(unreadable_origins=(origin,)), None) for origin in failed)
        return
    values = np.stack([one.probabilities for one in read if one.probabilities is not None])
    group = None
    if combination is not None:
        assert examples.groups is not None
        group = str(examples.groups[read[0].place]) or None
        values = combination.pool(values, np.zeros(len(values), np.int64)).astype(np.float32)
    shown = read if photographs and examples.are_encoded else []
    entry = Entry(
        members=tuple(one.place for one in read),
        origins=tuple(_origin(examples, one.place) for one in read),
        unreadable_origins=tuple(failed),
        group=group,
        is_observation=combination is not None,
        probabilities=values[0],
        photographs=tuple(
            Photograph(Path(examples.name(one.place)), one.thumbnail) for one in shown
        ),
    )
    yield entry, read[0].outlier


def _origin(examples: Examples, place: int) -> dict[str, Any]:
    """An example as fields of a line of JSON."""
    if examples.are_encoded:
        return {"path": examples.name(place)}
    row = {"row": int(examples.places[place])}
    return row if examples.names is None else {**row, "name": examples.name(place)}


def _answered(
    some: Sequence[_Unanswered], answer: Any, rule: SetRule, size: int
) -> Iterator[Entry]:
    """The entries with the answers of the rule."""
    kept = [
        (entry.probabilities, outlier) for entry, outlier in some if entry.probabilities is not None
    ]
    if kept:
        # One shape, for which the rule is compiled once.
        values, outliers = zip(*(kept + kept[:1] * (size - len(kept))), strict=True)
        unusual = np.array(outliers) if rule.says_new else None
        found = jax.device_get(answer(np.stack(values), unusual))
    places = itertools.count()
    for entry, _ in some:
        if entry.probabilities is None:
            yield entry
        else:
            own = jax.tree.map(operator.itemgetter(next(places)), found)
            yield entry.answered(own, rule.tree)
