"""Warns of new data that the classifier may have been trained on."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from absl import logging

from train.classifiers.trained import TrainedClassifier
from train.configuration.datasets import path_of
from train.data.examples import Examples
from train.foundation.errors import UserError
from train.foundation.names import same_form


def warn(classifier: TrainedClassifier, new: Examples, path: Path) -> None:
    """Warns if new data are those of the run, or have images or names of its training examples."""
    run = classifier.run
    own = path_of(run.config.dataset)
    if own is None:
        return
    if Path(own).exists() and path.samefile(own):
        logging.warning(
            "%s has the examples that the run was trained on, among others: accuracies are too "
            "good. The test split is evaluated without it",
            path,
        )
        return
    try:
        known = run.load_dataset().train
        if known.names is None or new.names is None:
            return
        if run is not classifier:
            what = "have the name of a training row of the run"
            number = len({*map(same_form, known.names)} & {*map(same_form, new.names)})
        else:
            what, number = "are training images of the run", _num_same(known, new)
    except (OSError, UserError):
        return  # The training examples are not on this machine.
    if number:
        logging.warning(
            "%s: %d of %d images %s: accuracies are too good", path, number, len(new), what
        )


def _num_same(known: Examples, new: Examples) -> int:
    """How many of new images have the name and the content of the file of a known one."""
    if known.reader is None:
        return 0

    def file_names(images: Examples) -> list[str]:
        return [same_form(images.name(place).rpartition("/")[2]) for place in range(len(images))]

    def contents(images: Examples) -> Iterator[tuple[str, bytes]]:
        for place, name in enumerate(file_names(images)):
            if name in shared:
                yield name, hashlib.sha256(images.encoded(place)).digest()

    shared = {*file_names(known)} & {*file_names(new)}
    of_known = {*contents(known)}
    return sum(one in of_known for one in contents(new))
