"""Where scores come from: a file, or a split or new data of a classifier."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from train.classifiers import flags as classifiers
from train.classifiers import labelled
from train.classifiers.classifier import Classifier
from train.classifiers.trained import TrainedClassifier
from train.data import taxonomy
from train.data.examples import Examples
from train.evaluating import training_examples
from train.evaluating.asked import Asked
from train.foundation import fields
from train.foundation.errors import UserError
from train.foundation.printable import printable
from train.foundation.spelling import flags_for_fields
from train.scores import files as score_files
from train.scores.scores import Scores


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where scores come from.

    Attributes:
        title: what it is.
        scores: the scores.
        about: what the report says of it.
        classifier: the classifier; None for scores from a file.
        examples: the examples; None for scores from a file.
        unreadable: why each image that cannot be read is left out.
    """

    title: str
    scores: Scores
    about: dict[str, Any]
    classifier: Classifier | None = None
    examples: Examples | None = None
    unreadable: tuple[str, ...] = ()


def find(asked: Asked, new_score: str | None) -> Source:
    """The scores that are asked for.

    Args:
        asked: what is evaluated.
        new_score: the outlier score of rules that say "none of these"; None without such rules.

    Raises:
        UserError: a flag, or a file that one names, is not what it may be.
    """
    return _of_classifier(asked, new_score) if asked.scores is None else _of_scores(asked)


def _of_scores(asked: Asked) -> Source:
    """The scores in a file."""
    assert asked.scores is not None
    scores = score_files.read(asked.scores, flag="--scores")
    # The examples of a half keep their numbers.
    scores = dataclasses.replace(scores, indices=np.arange(len(scores)))
    if (above := asked.chosen.taxonomy) is not None:
        classes = scores.classes
        with flags_for_fields({taxonomy.FIELD: "--taxonomy"}):
            tree = taxonomy.read(above, classes.names)
        classes = dataclasses.replace(classes, tree=tree)
        scores = dataclasses.replace(scores, classes=classes)
    return Source(title=str(asked.scores), scores=scores, about={"scores": str(asked.scores)})


def _of_classifier(asked: Asked, new_score: str | None) -> Source:
    """The scores of a split, or of new data."""
    takes_images = None if asked.data is None else asked.data[0] == "images"
    classifier = classifiers.load(asked.chosen, takes_images=takes_images)
    about: dict[str, Any] = {"classifier": classifier.title}
    if isinstance(classifier, TrainedClassifier):
        about = {"config": classifier.config.to_plain()}
    if asked.data is None:
        assert isinstance(classifier, TrainedClassifier)
        splits = classifier.load_dataset().splits
        if wrong := fields.one_of(splits)(asked.split):
            raise UserError(
                field="--split", must_be=wrong, because="the data set has these", got=asked.split
            )
        return Source(
            title=f"{classifier.title}, {asked.split} split",
            scores=classifier.split(asked.split, new_score),
            about={"split": asked.split, **about},
            classifier=classifier,
            examples=splits[asked.split],
        )
    flag, path = asked.data
    found = labelled.find(flag, path, labelled.expected(classifier, asked.group))
    if isinstance(classifier, TrainedClassifier):
        training_examples.warn(classifier, found)
    listed = [
        {"path": printable(name), "error": printable(why)} for name, why in found.unreadable.items()
    ]
    return Source(
        title=f"{classifier.title}, {classifier.what}s of {path}",
        scores=classifier.score(found.examples, new_score=new_score, unknown=found.unknown_names),
        about={"data": str(asked.place), **about, "unreadable": listed},
        classifier=classifier,
        examples=found.examples,
        unreadable=tuple(found.unreadable.values()),
    )
