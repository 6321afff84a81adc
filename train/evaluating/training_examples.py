"""Warns of new data that the classifier may have been trained on."""

import hashlib
from pathlib import Path

from absl import logging

from train.classifiers.labelled import LabelledData
from train.classifiers.trained import TrainedClassifier
from train.configuration.datasets import OwnFields, path_of
from train.data.examples import Examples
from train.data.images import UnreadableImageError
from train.foundation.errors import UserError
from train.foundation.names import same_form


def warn(classifier: TrainedClassifier, found: LabelledData) -> None:
    """Warns if new data are those of the run, or have images or names of its training examples."""
    run, is_joined = classifier.run, classifier.run is not classifier
    own = path_of(run.config.dataset)
    if own is not None and Path(own).exists() and found.path.samefile(own):
        logging.warning(
            "%s has the examples that the run was trained on, among others: accuracies are too "
            "good. The test split is evaluated without it",
            found.path,
        )
        return
    new = found.examples
    try:
        known = run.load_dataset().train if isinstance(run.config.dataset, OwnFields) else None
    except UserError:
        return  # They are not on this machine.
    if known is None or known.names is None or new.names is None:
        return
    if is_joined:
        what = "have the name of a training row of the run"
        number = len({*map(same_form, known.names)} & {*map(same_form, new.names)})
    else:
        what, number = "are training images of the run", _num_same(known, new)
    if number:
        logging.warning(
            "%s: %d of %d images %s: accuracies are too good", found.path, number, len(new), what
        )


def _num_same(known: Examples, new: Examples) -> int:
    """How many of new images have the name of a file, and the pixels, of a known one."""
    if known.reader is None:
        return 0
    of_known, of_new = _places_by_name(known), _places_by_name(new)
    number = 0
    for name in of_known.keys() & of_new.keys():
        pixels = {_pixels(known, place) for place in of_known[name]}
        number += sum(_pixels(new, place) in pixels for place in of_new[name])
    return number


def _places_by_name(images: Examples) -> dict[str, list[int]]:
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
