"""What is checked in the data of a run before anything is written."""

from pathlib import Path

from train.assembly.run_data import RunData
from train.configuration.datasets import path_of
from train.foundation.errors import UserError
from train.reports import summaries
from train.reports.metric import Metric
from train.workdir import run_files


def check_fits(data: RunData, workdir: Path) -> None:
    """Refuses what the data set cannot be trained with, or selected by, before anything is done."""
    if (workdir / run_files.DATA).exists():
        earlier = run_files.read_facts(workdir, data.classes, data.image_shape)
        if earlier.digest != data.facts.digest:
            # Only a user's own files have a path.
            which = path_of(data.config.dataset) or f"the data set {data.spec.name}"
            raise UserError(
                f"{which} does not have the files, labels and splits that the run in --workdir "
                f"{workdir} started with; give another --workdir"
            )
    _ = data.steps_per_epoch
    # Without this check the error would come at the end of an epoch, which can take an hour.
    select_by = Metric.parse(data.config.select_by)
    _, labels = data.dataset.validation.entries()
    summaries.check_has_value(select_by, labels, data.classes)
