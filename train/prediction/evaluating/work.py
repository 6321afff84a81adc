"""The work of an evaluation, whose parts several processes can compute."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from train.prediction import classifiers, exported_classifier
from train.prediction.classifier_flags import ChosenClassifier
from train.prediction.evaluating import new_data, split
from train.prediction.evaluating.evaluated import Evaluated
from train.prediction.evaluating.measures import Measures
from train.prediction.evaluating.new_data_flags import Asked
from train.sharing import kinds
from train.sharing.work import Share


@dataclass(frozen=True)
class Work:
    """What is evaluated.

    Attributes:
        network: makes a digest of the network.
        inputs: makes a digest of the examples.
        evaluate: evaluates them.
    """

    network: Callable[[], str]
    inputs: Callable[[], str]
    evaluate: Callable[[Share], Evaluated]


def of_split(chosen: ChosenClassifier, name: str, measures: Measures, *, is_half: bool) -> Work:
    """A classifier on a split of its data set; see `split.evaluate`."""
    classifier = classifiers.load(chosen)

    def inputs() -> str:
        dataset = classifier.load_dataset()
        sizes = [len(dataset.splits[name]) for name in ("train", "validation", "test")]
        return kinds.digest(classifier.spec.name, name, sizes, dataset.digest)

    return Work(
        lambda: classifier.digest,
        inputs,
        lambda share: split.evaluate(classifier, name, measures, share, is_half=is_half),
    )


def of_new_data(chosen: ChosenClassifier, asked: Asked) -> Work:
    """A classifier on new data; see `new_data.evaluate`."""
    classifier = classifiers.load(chosen, takes_images=asked.flag != "features")
    found = new_data.find(classifier, asked)
    return Work(
        lambda: classifier.digest,
        lambda: found.digest,
        lambda share: new_data.evaluate(classifier, asked, found, share),
    )


def of_program(program: Path, asked: Asked) -> Work:
    """An exported program on new data; see `new_data.evaluate_program`."""
    file = exported_classifier.read(program)
    classifier = file.load()
    found = new_data.find(classifier, asked)
    return Work(
        lambda: file.digest,
        lambda: found.digest,
        lambda share: new_data.evaluate_program(classifier, asked, found, share),
    )
