"""Writes the network of a classifier as a file of weights that other programs read."""

from typing import Any

import safetensors.numpy

from train.classifiers.trained import TrainedClassifier
from train.foundation.errors import UserError, naming_flags
from train.models import feature_norm, published
from train.models.weights.names import PublishedNames, arrays_of
from train.prediction import exported_program


def serialize(classifier: TrainedClassifier) -> bytes:
    """The contents of a file of safetensors, with the names and the layout of the publisher.

    Raises:
        UserError: the network is not a published one, or its head is not.
    """
    names, head = _names(classifier), classifier.parts.head
    if head != "linear":
        raise UserError(
            "--format=safetensors is for linear heads, as published networks have them; this run "
            f"with {classifier.config.loss.name} has trained one of the kind {head}"
        )
    params, batch_stats = dict(classifier.params), dict(classifier.batch_stats)
    if (norm := batch_stats.pop("norm", None)) is not None:
        params["head"] = feature_norm.folded(params["head"], norm)
    return safetensors.numpy.save(arrays_of(params, batch_stats, names))


def describe(classifier: TrainedClassifier) -> dict[str, Any]:
    """What a user of the file needs to know."""
    then = (
        "Then divided by 255, minus the mean and divided by the standard deviation of each channel."
    )
    return {
        "names": f"of {_names(classifier).publisher}",
        **exported_program.inputs_of(classifier, then),
        **exported_program.facts_of(classifier),
    }


def _names(classifier: TrainedClassifier) -> PublishedNames:
    of = {"config.model.pretrained": "--format=safetensors", "config.model.name": "this network"}
    with naming_flags(of):
        names = published(classifier.config.model.name).names
    assert names is not None
    return names
