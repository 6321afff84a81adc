"""Warns of new data that the classifier may have been trained on."""

from pathlib import Path

from absl import logging

from train.configuration.datasets import path_of
from train.data.own.listing import Role
from train.foundation.errors import UserError
from train.foundation.names import same_form
from train.prediction.labelled_data import LabelledData
from train.prediction.trained import TrainedClassifier
from train.workdir import run_files


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


def warn_of_training_images(workdir: Path | None, found: LabelledData) -> None:
    """Warns of new images that have the name and the size of a training image of the run.

    Args:
        workdir: the folder of the run, which has a list of its images if they are the user's own;
            None for a published network.
        found: the new examples.
    """
    listed = None if workdir is None else run_files.read_listed(workdir)
    if listed is None or found.examples.names is None:
        return
    train = listed.listing.take(listed.listing.of_role(Role.TRAIN).tolist())
    known = set(zip(map(_name, train.paths), train.sizes.tolist(), strict=True))
    new = zip(map(_name, found.examples.names), found.sizes.tolist(), strict=True)
    number = sum(one in known for one in new)
    if number:
        logging.warning(
            "%s: %d of %d images have the name and the size of a training image of the run: "
            "accuracies are too good if they are the same",
            found.path,
            number,
            len(found.examples),
        )


def warn_of_training_rows(run: TrainedClassifier, found: LabelledData) -> None:
    """Warns of new images that have the name of a training row of a run on features."""
    try:
        known = run.load_dataset().train.names
    except UserError:
        # The features are on another machine.
        return
    if known is None or found.examples.names is None:
        return
    number = len({*map(same_form, known)} & {*map(same_form, found.examples.names)})
    if number:
        logging.warning(
            "%s: %d of %d images have the name of a training row of the run: accuracies are too "
            "good if the row is of the same image",
            found.path,
            number,
            len(found.examples),
        )


def _name(path: str) -> str:
    """The name of a file, which copies on other file systems have in other forms of Unicode."""
    return same_form(path.rpartition("/")[2])
