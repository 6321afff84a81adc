"""A run on features and the network that made the features, as one classifier of images."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import numpy as np
from absl import logging
from typing_extensions import override

from train.classifiers import network
from train.classifiers.classifier import compute
from train.classifiers.network import Network
from train.classifiers.trained import TrainedClassifier
from train.data import DatasetSpec
from train.data.examples import Examples
from train.foundation.errors import UserError, naming_flags
from train.scores.scores import Scores

if TYPE_CHECKING:
    from train.classifiers.flags import ChosenClassifier

_FLAGS = {"config.model.pretrained": "--weights", "config.model.name": "--model"}


@dataclass(frozen=True, eq=False, kw_only=True)
class JoinedClassifier(TrainedClassifier):
    """The classifier of a run on features that takes images.

    Attributes:
        own: the run on features.
        network: the network that makes features of images.
    """

    own: TrainedClassifier
    network: Network

    @property
    @override
    def run(self) -> TrainedClassifier:
        return self.own

    @property
    @override
    def spec(self) -> DatasetSpec:
        """How images are read, under the name of the data set of the run."""
        return dataclasses.replace(self.network.spec, name=self.own.spec.name)

    @property
    @override
    def shape(self) -> tuple[int, ...]:
        return self.network.image_shape

    @property
    @override
    def network_name(self) -> str:
        return f"{self.network.network}, then {super().network_name} on its features"

    @override
    def examples(self, inputs: jax.Array) -> jax.Array:
        return self.network.features(inputs)

    @override
    def split(self, name: str, new_score: str | None = None) -> Scores:
        return self.own.split(name, new_score)

    @override
    def score(
        self, examples: Examples, *, new_score: str | None = None, name: str = "new"
    ) -> Scores:
        found = compute(self.network.compiled(), examples, f"features of {name} images")
        features = np.concatenate([rows for _, rows in found])
        rows = dataclasses.replace(examples, inputs=features, places=np.arange(len(features)))
        return self.own.score(rows, new_score=new_score, name=name)


def is_possible(run: TrainedClassifier) -> bool:
    """Whether a run is on features, and the network that made them is where it was."""
    made = run.parts.data.facts.embedded_by
    return made is not None and Path(made["path"]).exists()


def join(run: TrainedClassifier, chosen: "ChosenClassifier") -> JoinedClassifier:
    """A run on features with the network that it knows, or that the flags name.

    Raises:
        UserError: the run is not on features, or other weights made them.
    """
    if run.inputs != "features":
        where = f"{run.workdir} is on {run.inputs}"
        raise UserError(f"--weights goes with the --workdir of a run on features; {where}")
    with naming_flags(_FLAGS):
        found = _network(run, chosen)
    if (found.num_features,) != run.shape:
        number = f"{found.num_features:,} features; the run in {run.workdir} is on {run.shape[0]:,}"
        raise UserError(f"--weights {found.path} is of a network with {number}")
    parts = {one.name: getattr(run, one.name) for one in dataclasses.fields(run) if one.init}
    return JoinedClassifier(**parts, own=run, network=found)


def _network(run: TrainedClassifier, chosen: "ChosenClassifier") -> Network:
    made, where = run.parts.data.facts.embedded_by, run.workdir
    if made is None:
        logging.warning("--weights is not checked: the run in %s does not know its network", where)
        how = chosen.model, chosen.image_size, chosen.normalization
        return network.of_weights(Path(str(chosen.weights)).expanduser(), *how)
    for name in ("model", "image_size", "normalization"):
        if name in chosen.given:
            raise UserError(f"--{name} cannot be given: the run in {where} knows it of its network")
    path, spec = Path(chosen.weights or made["path"]).expanduser(), network.spec_of(made)
    is_run = path.is_dir()
    found = network.of_run(path) if is_run else network.of_file(path, made["network"], spec)
    if found.parameters_digest != made["parameters_digest"]:
        whose = f"the network that made the features of the run in {where}"
        raise UserError(f"{path} has other weights than {whose}")
    return dataclasses.replace(found, spec=spec)
