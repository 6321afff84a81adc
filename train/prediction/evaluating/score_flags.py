"""The flags --logits, --labels and others: scores from files, evaluated without a network."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from absl import flags

from train.foundation import fields
from train.foundation.flag_rules import Flag
from train.foundation.flag_types import path_of

# So that --help shows the flags as flags of the command.
flags.disclaim_key_flags()

NAMES = ("logits", "labels", "calibration_logits", "calibration_labels", "class_counts")
ROWS = (
    *(Flag(name, fields.text("a file")) for name in NAMES),
    Flag("labels", needs=("logits",)),
    Flag("calibration_logits", needs=("logits",)),
    Flag("calibration_labels", needs=("calibration_logits",)),
    Flag("class_counts", needs=("logits",)),
)


@dataclass(frozen=True, kw_only=True)
class ScoreFiles:
    """Files with scores and what belongs to them.

    Attributes:
        logits: the scores that are evaluated.
        labels: their labels; None if the file of the scores has them.
        calibration_logits: the scores to calibrate on; None for the same.
        calibration_labels: their labels.
        class_counts: the training images of each class; None if the file of the scores may have
            them.
    """

    logits: Path
    labels: Path | None = None
    calibration_logits: Path | None = None
    calibration_labels: Path | None = None
    class_counts: Path | None = None


def define() -> Callable[[], ScoreFiles | None]:
    """Defines the flags.

    Returns:
        A function that returns the files after the flags are parsed; None without --logits.
    """
    logits = flags.DEFINE_string(
        "logits",
        None,
        "Instead of --workdir: an .npy file of logits [examples, classes], or an .npz "
        "file with an array called logits, probabilities or scores. A logit of -inf masks its "
        "class.",
    )
    labels = flags.DEFINE_string(
        "labels",
        None,
        "their labels, an .npy or .npz file or a text with one a line; not needed if the "
        ".npz file has an array called labels.",
    )
    calibration_logits = flags.DEFINE_string(
        "calibration_logits",
        None,
        "the logits of the calibration examples; by default --logits itself, on which thresholds "
        "look better than they are.",
    )
    calibration_labels = flags.DEFINE_string("calibration_labels", None, "the labels of these.")
    class_counts = flags.DEFINE_string(
        "class_counts",
        None,
        "the number of training images of each class, in a file as for --labels; needed "
        "for few, medium and many shot classes.",
    )

    def given() -> ScoreFiles | None:
        if logits.value is None:
            return None
        return ScoreFiles(
            logits=Path(logits.value),
            labels=path_of(labels),
            calibration_logits=path_of(calibration_logits),
            calibration_labels=path_of(calibration_labels),
            class_counts=path_of(class_counts),
        )

    return given
