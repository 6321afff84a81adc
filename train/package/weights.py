"""Writes the network of a classifier as a file of weights that other programs read."""

from typing import Any

import safetensors.numpy

from train.classifiers.trained import TrainedClassifier
from train.foundation.errors import UserError
from train.models import feature_norm, find
from train.models.weights.names import PublishedNames, arrays_of
from train.package import program


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
    then = "Then divided by 255, minus the mean, divided by the standard deviation of each channel."
    return {
        "names": f"of {_names(classifier).publisher}",
        **program.inputs_of(classifier, then),
        **program.facts_of(classifier),
    }


def _names(classifier: TrainedClassifier) -> PublishedNames:
    name = classifier.config.model.name
    if (names := find(name).names) is None:
        raise UserError(
            f"--format=safetensors is for networks with published weights, not {name!r}"
        )
    return names
