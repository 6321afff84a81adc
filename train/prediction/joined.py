"""A run on features and the network that made the features, as one classifier of images."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import logging
from typing_extensions import override

from train.data import DatasetSpec, streaming
from train.data.batches import Batches
from train.data.examples import Examples
from train.evaluation.predictions import Predictions
from train.foundation.errors import UserError
from train.foundation.spelling import flags_for_fields
from train.models import published
from train.prediction.classifier_flags import ChosenClassifier
from train.prediction.embedding import description, network
from train.prediction.embedding.network import Network
from train.prediction.trained import TrainedClassifier
from train.workdir import terminal

_FLAGS = {"config.model.pretrained": "--weights", "config.model.name": "--model"}
# Flags for values that the run has, if it knows the network.
_KNOWN = ("model", "image_size", "normalization")

_BATCH_SIZE = 64


@dataclass(frozen=True)
class JoinedClassifier(TrainedClassifier):
    """The classifier of a run on features that takes images.

    Attributes:
        network: the network that makes features of images.
    """

    network: Network

    @property
    @override
    def of_run(self) -> TrainedClassifier:
        return TrainedClassifier(**_parts(self))

    @property
    @override
    def spec(self) -> DatasetSpec:
        """How images are read, under the name of the data set of the run."""
        return dataclasses.replace(self.network.spec, name=self.assembly.data.spec.name)

    @property
    @override
    def image_shape(self) -> tuple[int, ...]:
        return self.network.image_shape

    @property
    @override
    def network_name(self) -> str:
        return f"{self.network.network}, then {super().network_name} on its features"

    @override
    def examples(self, inputs: jax.Array) -> jax.Array:
        return self.network.features(inputs)

    @override
    def predict_new(self, examples: Examples) -> Predictions:
        batches = Batches(examples=examples, size=_BATCH_SIZE)
        compiled = self.network.compiled()
        tracked = terminal.tracked(
            streaming.stream(batches), len(batches), "features of new images"
        )
        features = np.concatenate(
            [np.asarray(compiled(batch["images"]))[batch["mask"]] for batch in tracked]
        )
        places = np.arange(len(features))
        return super().predict_new(dataclasses.replace(examples, inputs=features, places=places))


def is_known(run: TrainedClassifier) -> bool:
    """Whether a run is on features and knows the network that made them."""
    return run.spec.inputs == "features" and run.assembly.data.facts.embedded_by is not None


def join(run: TrainedClassifier, chosen: ChosenClassifier) -> JoinedClassifier:
    """A run on features with its network.

    Args:
        run: the run.
        chosen: the flags, which may give the path of the weights.

    Raises:
        UserError: the run is on other examples, or its network is not known or not there; or other
            weights than the weights that made the features are given.
    """
    if run.spec.inputs != "features":
        raise UserError(
            f"--features_run must be the folder of a run on features; the run in {run.workdir} is "
            f"on {run.spec.inputs}"
        )
    found = _known(run, chosen) if is_known(run) else _given(run, chosen)
    (expected,) = run.image_shape
    if found.num_features != expected:
        raise UserError(
            f"--weights {found.path} is of a network with {found.num_features:,} features; the run "
            f"in {run.workdir} is on {expected:,}"
        )
    return JoinedClassifier(**_parts(run), network=found)


def _parts(run: TrainedClassifier) -> dict[str, Any]:
    return {one.name: getattr(run, one.name) for one in dataclasses.fields(TrainedClassifier)}


def _given(run: TrainedClassifier, chosen: ChosenClassifier) -> Network:
    """The network that only the flags name."""
    if chosen.weights is None:
        raise UserError(
            f"the run in {run.workdir} does not know the network that made its features: give "
            f"--features_run={run.workdir} and --weights=FILE"
        )
    logging.warning(
        "the run in %s does not know the network that made its features: --weights is not checked",
        run.workdir,
    )
    with flags_for_fields(_FLAGS):
        return network.of_weights(
            Path(chosen.weights).expanduser(),
            chosen.model,
            chosen.image_size,
            chosen.normalization,
        )


def _known(run: TrainedClassifier, chosen: ChosenClassifier) -> Network:
    """The network that the run knows."""
    for name in _KNOWN:
        if name in chosen.given:
            raise UserError(
                f"--{name} cannot be given: the run in {run.workdir} knows the network that made "
                "its features"
            )
    plain = run.assembly.data.facts.embedded_by
    assert plain is not None
    try:
        spec = description.spec_of(plain)
    except UserError as error:
        raise error.within(
            f"the run in {run.workdir} does not have the network that made its features: "
        ) from error
    given = None if chosen.weights is None else Path(chosen.weights).expanduser()
    path = given or Path(plain["path"])
    if not path.exists():
        if given is not None:
            raise UserError(f"--weights {given} cannot be read: there is no such file or folder")
        raise UserError(
            f"the network that made the features of the run in {run.workdir} is no longer at "
            f"{path}: give --features_run={run.workdir} and --weights, the file of weights or the "
            "folder of the run that it is in now"
        )
    found = _read(path, str(plain["network"]), spec)
    if found.parameters_digest != plain["parameters_digest"]:
        what = "other weights than the network" if given else "not the weights any more"
        raise UserError(f"{path} has {what} that made the features of the run in {run.workdir}")
    return dataclasses.replace(found, spec=spec)


def _read(path: Path, name: str, spec: DatasetSpec) -> Network:
    """The network of a name in a file of weights, or in the folder of a run."""
    if path.is_dir():
        return network.of_run(path)
    with flags_for_fields({**_FLAGS, "config.model.name": "its network"}):
        published(name)
        return network.of_file(path, name, spec)
