"""What is evaluated: scores from a file, or of a split or new data of a classifier."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train.classifiers import labelled, loading
from train.classifiers.classifier import Classifier
from train.classifiers.flags import ChosenClassifier
from train.classifiers.trained import TrainedClassifier, below
from train.data.examples import Examples
from train.evaluating import training_examples
from train.foundation import kinds
from train.foundation.console import printable
from train.foundation.errors import UserError
from train.foundation.names import existing
from train.scores import files as score_files
from train.scores.scores import Scores


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the flags of `train.evaluate` ask for.

    Attributes:
        chosen: the classifier; without flags for `scores`, but for a taxonomy.
        scores: instead of a classifier, a file of scores.
        split: the split, without new data.
        data: the flag of new data, "images" or "features", and its value; None without new data.
        group: how the groups of new data are found; None for the usual ways.
        sets: the texts of the rules; empty for the usual ones.
        calibration: "validation", "half" or a file; None for the default.
        full: whether everything is shown.
    """

    chosen: ChosenClassifier
    scores: Path | None
    split: str
    data: tuple[str, Path] | None
    group: str | None
    sets: tuple[str, ...]
    calibration: str | None
    full: bool


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where scores come from.

    Attributes:
        title: what it is.
        scores: the scores.
        about: what the report says of it, with the images that cannot be read.
        classifier: the classifier; None for scores from a file.
        examples: the examples; None for scores from a file.
    """

    title: str
    scores: Scores
    about: dict[str, Any]
    classifier: Classifier | None = None
    examples: Examples | None = None


def find(asked: Asked, new_score: str | None) -> Source:
    """The scores that are asked for.

    Args:
        asked: what is evaluated.
        new_score: the outlier score of rules that say "none of these"; None without such rules.

    Raises:
        UserError: a flag, or a file that one names, is not what it may be.
    """
    if asked.scores is not None:
        scores = score_files.read(asked.scores, flag="--scores")
        if asked.chosen.taxonomy is not None:
            classes = below(asked.chosen.taxonomy, scores.classes)
            scores = dataclasses.replace(scores, classes=classes)
        return Source(title=str(asked.scores), scores=scores, about={"scores": str(asked.scores)})
    takes_images = None if asked.data is None else asked.data[0] == "images"
    classifier = loading.load(asked.chosen, takes_images=takes_images)
    about: dict[str, Any] = {"classifier": classifier.title}
    if isinstance(classifier, TrainedClassifier):
        about = {"config": classifier.config.to_plain()}
    if asked.data is None:
        assert isinstance(classifier, TrainedClassifier)
        splits = classifier.load_dataset().splits
        if wrong := kinds.wrong(asked.split, kinds.one_of(splits)):
            raise UserError(field="--split", must_be=wrong, got=asked.split)
        return Source(
            title=f"{classifier.title}, {asked.split} split",
            scores=classifier.split(asked.split, new_score),
            about={"split": asked.split, **about},
            classifier=classifier,
            examples=splits[asked.split],
        )
    flag, path = asked.data[0], existing(asked.data[1])
    examples, unreadable = labelled.find(flag, path, classifier, asked.group)
    if isinstance(classifier, TrainedClassifier):
        training_examples.warn(classifier, examples, path)
    listed = [
        {"path": printable(name), "error": printable(why)} for name, why in unreadable.items()
    ]
    return Source(
        title=f"{classifier.title}, {classifier.what}s of {path}",
        scores=classifier.score(examples, new_score=new_score),
        about={"data": str(path.resolve()), **about, "unreadable": listed},
        classifier=classifier,
        examples=examples,
    )
