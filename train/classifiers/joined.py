"""A run on features and the network that made the features, as one classifier of images."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import numpy as np
from absl import logging
from typing_extensions import override

from train.classifiers import network, network_description
from train.classifiers.classifier import compute
from train.classifiers.network import Network
from train.classifiers.trained import TrainedClassifier
from train.data import DatasetSpec
from train.data.examples import Examples
from train.foundation.errors import UserError
from train.foundation.spelling import flags_for_fields
from train.models import published
from train.scores.scores import Scores

if TYPE_CHECKING:
    from train.classifiers.flags import ChosenClassifier

_FLAGS = {"config.model.pretrained": "--weights", "config.model.name": "--model"}
# Flags for values that the run has, if it knows the network.
_KNOWN = ("model", "image_size", "normalization")


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
        self,
        examples: Examples,
        *,
        new_score: str | None = None,
        name: str = "new",
        unknown: tuple[str, ...] = (),
    ) -> Scores:
        found = compute(self.network.compiled(), examples, f"features of {name} images")
        features = np.concatenate([rows for _, rows in found])
        rows = dataclasses.replace(examples, inputs=features, places=np.arange(len(features)))
        return self.own.score(rows, new_score=new_score, name=name, unknown=unknown)


def is_known(run: TrainedClassifier) -> bool:
    """Whether a run is on features and knows the network that made them."""
    return run.inputs == "features" and run.assembly.data.facts.embedded_by is not None


def join(run: TrainedClassifier, chosen: "ChosenClassifier") -> JoinedClassifier:
    """A run on features with its network.

    Args:
        run: the run.
        chosen: the flags, which may give the path of the weights.

    Raises:
        UserError: the run is on other examples, or its network is not known or not there; or other
            weights than the weights that made the features are given.
    """
    if run.inputs != "features":
        raise UserError(
            "--weights goes with the --workdir of a run on features, which it is joined with; the "
            f"run in {run.workdir} is on {run.inputs}"
        )
    found = _known(run, chosen) if is_known(run) else _given(run, chosen)
    if (found.num_features,) != run.shape:
        raise UserError(
            f"--weights {found.path} is of a network with {found.num_features:,} features; the run "
            f"in {run.workdir} is on {run.shape[0]:,}"
        )
    parts = {one.name: getattr(run, one.name) for one in dataclasses.fields(run) if one.init}
    return JoinedClassifier(**parts, own=run, network=found)


def _given(run: TrainedClassifier, chosen: "ChosenClassifier") -> Network:
    """The network that only the flags name."""
    if chosen.weights is None:
        raise UserError(
            f"the run in {run.workdir} does not know the network that made its features: give "
            "--weights=FILE, too"
        )
    logging.warning(
        "the run in %s does not know the network that made its features: --weights is not checked",
        run.workdir,
    )
    with flags_for_fields(_FLAGS):
        path = Path(chosen.weights).expanduser()
        return network.of_weights(path, chosen.model, chosen.image_size, chosen.normalization)


def _known(run: TrainedClassifier, chosen: "ChosenClassifier") -> Network:
    """The network that the run knows."""
    for name in _KNOWN:
        if getattr(chosen, name) is not None:
            raise UserError(
                f"--{name} cannot be given: the run in {run.workdir} knows the network that made "
                "its features"
            )
    plain = run.assembly.data.facts.embedded_by
    assert plain is not None
    try:
        spec = network_description.spec_of(plain)
    except UserError as error:
        raise error.within(
            f"the run in {run.workdir} does not have the network that made its features: "
        ) from error
    path = Path(chosen.weights or plain["path"]).expanduser()
    if not path.exists():
        raise UserError(
            f"the network that made the features of the run in {run.workdir} is not at {path}: "
            "give --weights, the file of weights or the folder of the run that it is in now"
        )
    found = _read(path, str(plain["network"]), spec)
    if found.parameters_digest != plain["parameters_digest"]:
        raise UserError(
            f"{path} has other weights than the network that made the features of the run in "
            f"{run.workdir}"
        )
    return dataclasses.replace(found, spec=spec)


def _read(path: Path, name: str, spec: DatasetSpec) -> Network:
    """The network of a name in a file of weights, or in the folder of a run."""
    if path.is_dir():
        return network.of_run(path)
    with flags_for_fields({**_FLAGS, "config.model.name": "its network"}):
        published(name)
        return network.of_file(path, name, spec)
