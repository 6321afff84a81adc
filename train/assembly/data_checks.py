"""What is checked in the data of a run before anything is written."""

import itertools
from pathlib import Path

import numpy as np

from train.assembly.run_data import RunData
from train.configuration.datasets import CheckedFields, FeaturesFields, OwnImageFields, path_of
from train.data import Dataset
from train.data.batches import LEAVES_OUT
from train.data.own import groups, unreadable_images
from train.devices import processes
from train.evaluation import summaries
from train.evaluation.metric import Metric
from train.foundation.errors import UserError
from train.workdir import checked_images, overlooked, run_files
from train.workdir.checked_images import Unreadable
from train.workdir.overlooked import Overlooked


def find_unreadable(data: RunData, workdir: Path) -> Unreadable:
    """The images that cannot be read. A new run does not count them in their classes.

    Raises:
        UserError: there are some and the run does not leave them out, or a split has no others.
    """
    settings = data.config.dataset
    if not isinstance(settings, CheckedFields):
        return {}
    begins = not run_files.has_checkpoints(workdir)
    found = checked_images.find_unreadable(data.dataset, settings.check_images, begins=begins)
    if found and not settings.skip_unreadable:
        images = itertools.chain.from_iterable(one.values() for one in found.values())
        raise unreadable_images.refused([*images], LEAVES_OUT)
    is_counted = not begins and (workdir / run_files.CLASSES).exists()
    if "train" in found and not is_counted:
        data.leave_out(found["train"])
    _check_selects(data, found)
    return found


def find_overlooked(data: RunData, workdir: Path) -> Overlooked:
    """What makes the accuracies of a new run too good; a resumed run has reported it."""
    settings = data.config.dataset
    if run_files.has_checkpoints(workdir):
        return overlooked.NOTHING
    if isinstance(settings, OwnImageFields):
        return overlooked.find(data.dataset, settings)
    if isinstance(settings, FeaturesFields) and processes.is_first():
        _warn_of_groups(data.dataset, settings.path)
    return overlooked.NOTHING


def _warn_of_groups(dataset: Dataset, where: str) -> None:
    """Warns of likely groups in the names of rows of features without groups."""
    splits = (dataset.train, dataset.validation, dataset.test)
    names = [split.names for split in splits if split.names is not None and split.groups is None]
    if len(names) == len(splits):
        labels = np.concatenate([split.labels for split in splits])
        groups.warn(where, np.concatenate(names).tolist(), labels, "an array group")


def check_fits(data: RunData, workdir: Path) -> None:
    """Refuses what the data set cannot be trained with, or selected by, before anything is done."""
    if (workdir / run_files.DATA).exists():
        earlier = run_files.read_facts(workdir, data.classes, data.image_shape)
        if earlier.digest != data.facts.digest:
            # Only a user's own files have a path.
            name = data.spec.name
            which = path_of(data.config.dataset) or f"the data set {name}"
            raise UserError(
                f"the files of {which}, their labels or their splits changed since the run in "
                f"--workdir {workdir} started; give another --workdir"
            )
    _ = data.steps_per_epoch
    _check_selects(data, {})


def _check_selects(data: RunData, unreadable: Unreadable) -> None:
    """Refuses a metric to select by that the validation split does not have."""
    # Without this check the error would come at the end of an epoch, which can take an hour.
    select_by = Metric.parse(data.config.select_by)
    validation = data.dataset.validation
    left = np.delete(np.arange(len(validation)), list(unreadable.get("validation", ())))
    truths = validation.truths
    # A class may occur only beside others.
    labels = validation.labels[left] if truths is None else truths[left].entries()
    summaries.check_has_value(select_by, labels, data.class_counts)
