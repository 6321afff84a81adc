"""Warns of new data that the classifier may have been trained on."""

import hashlib
from pathlib import Path

from absl import logging

from train.configuration.datasets import OwnFields, path_of
from train.data.examples import Examples
from train.data.images import UnreadableImageError
from train.foundation.errors import UserError
from train.foundation.names import same_form
from train.prediction.labelled_data import LabelledData
from train.prediction.trained import TrainedClassifier


def warn_of_own_data(classifier: TrainedClassifier, flag: str, path: Path) -> bool:
    """Warns if the new data are at the place of the run's own data; returns whether they are."""
    own = path_of(classifier.config.dataset)
    if own is None or not Path(own).exists() or not path.samefile(own):
        return False
    logging.warning(
        "%s has the examples that the run was trained on, among others: accuracies are too good. "
        "Without --%s the test split is evaluated",
        path,
        flag,
    )
    return True


def warn_of_training_images(classifier: TrainedClassifier, found: LabelledData) -> None:
    """Warns of new images that are training images of the run: same name, same pixels."""
    known = _training_examples(classifier)
    if known is None or found.examples.names is None:
        return
    of_run, new = _places_by_name(known), _places_by_name(found.examples)
    number = 0
    for name in of_run.keys() & new.keys():
        pixels = {_pixels(known, place) for place in of_run[name]}
        number += sum(_pixels(found.examples, place) in pixels for place in new[name])
    if number:
        logging.warning(
            "%s: %d of %d images are training images of the run: accuracies are too good",
            found.path,
            number,
            len(found.examples),
        )


def warn_of_training_rows(run: TrainedClassifier, found: LabelledData) -> None:
    """Warns of new images that have the name of a training row of a run on features."""
    known = _training_examples(run)
    if known is None or found.examples.names is None:
        return
    assert known.names is not None
    number = len({*map(same_form, known.names)} & {*map(same_form, found.examples.names)})
    if number:
        logging.warning(
            "%s: %d of %d images have the name of a training row of the run: accuracies are too "
            "good if the row is of the same image",
            found.path,
            number,
            len(found.examples),
        )


def _training_examples(run: TrainedClassifier) -> Examples | None:
    """The training examples of a run, if they have names and are on this machine."""
    if not isinstance(run.config.dataset, OwnFields):
        return None
    try:
        train = run.load_dataset().train
    except UserError:
        return None
    return None if train.names is None else train


def _places_by_name(images: Examples) -> dict[str, list[int]]:
    """The indices of images by the names of their files, without folders."""
    places: dict[str, list[int]] = {}
    for place in range(len(images)):
        name = images.name(place).rpartition("/")[2]
        places.setdefault(same_form(name), []).append(place)
    return places


def _pixels(images: Examples, place: int) -> bytes:
    """A hash of the pixels of an image; its own if it cannot be read."""
    assert images.reader is not None
    try:
        image = images.reader.decode(images.encoded(place), images.name(place))
    except (OSError, UnreadableImageError):
        return repr((id(images), place)).encode()
    return hashlib.sha256(image.tobytes()).digest()
