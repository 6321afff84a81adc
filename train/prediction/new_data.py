"""A finished run, or published weights, on new labelled data: what they take, and two halves."""

import numpy as np

from train.configuration.datasets import FolderFields, OwnImageFields
from train.evaluation.predictions import Predictions
from train.foundation.errors import UserError
from train.foundation.files import MOST_IMAGE_BYTES
from train.prediction.labelled_data import Expected
from train.prediction.trained import TrainedClassifier

# The halves are drawn from it.
_SEED = 0


def expected_by(classifier: TrainedClassifier, flag: str, group: str | None) -> Expected:
    """What a classifier takes; images are read as those that it was trained on.

    Args:
        classifier: the classifier.
        flag: the flag that names the new data, "images", "table" or "features".
        group: how groups are found; None to find them as in the run if that is on a folder, too.
    """
    spec, fields = classifier.spec, classifier.config.dataset
    found_as_in_the_run = None
    if isinstance(fields, FolderFields) and flag == "images":
        found_as_in_the_run = fields.group
    return Expected(
        class_names=classifier.classes.names,
        inputs=spec.inputs,
        shape=classifier.image_shape,
        reader=spec.image_reader if spec.has_images else None,
        nested=isinstance(fields, FolderFields) and fields.nested,
        group=group or found_as_in_the_run,
        group_field="--group" if group else "config.dataset.group of the run",
        most_bytes=fields.most_bytes if isinstance(fields, OwnImageFields) else MOST_IMAGE_BYTES,
        name="the network" if classifier.workdir is None else "the run",
    )


def num_validation_examples(classifier: TrainedClassifier) -> int:
    """The validation examples of a run, for which its data set need not be there."""
    try:
        groups = classifier.results["evaluated"]["validation"]["groups"]
        return int(groups["all"]["examples"])
    except KeyError:
        # A published network, or a run of an earlier version.
        return len(classifier.load_dataset().validation)


def halves(examples: Predictions) -> tuple[np.ndarray, np.ndarray]:
    """The indices of one half of the examples, and of the other; a group is in one of them.

    They are the same for the same examples.

    Raises:
        UserError: there is only one example, or one group.
    """
    number, what = len(examples.labels), "example"
    of_group = np.arange(number)
    if examples.groups is not None:
        names, of_group = np.unique(examples.groups.astype(str), return_inverse=True)
        number, what = len(names), "group"
    if number < 2:
        raise UserError(f"--recalibrate=half needs at least two {what}s of known classes; got 1")
    order = np.random.default_rng(_SEED).permutation(number)
    is_first = np.isin(of_group, order[: number // 2])
    return np.flatnonzero(is_first), np.flatnonzero(~is_first)
