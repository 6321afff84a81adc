"""The network below the head: of a finished run, or of a file of pretrained weights."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from train.classifiers import trained
from train.configuration.datasets import ImagesFields
from train.data import DatasetSpec, dataset_spec, preparation
from train.data.augmentation import normalize
from train.data.crops import ImageReader
from train.devices import processes
from train.foundation import kinds
from train.foundation.errors import UserError, errors_told
from train.models import (
    build_model,
    check_image_shape,
    find,
    load_alone,
    network_of,
    published,
)
from train.models.classifier import Classifier
from train.models.model_spec import NORMALIZATIONS
from train.training.state import parameters_digest


@dataclass(frozen=True)
class Network:
    """A trained network. Only its layers below the head are used.

    Attributes:
        spec: how images become its input.
        model: the network with its head.
        variables: the parameters and the batch norm statistics below the head.
        network: the name of the network.
        path: the file of weights, or the folder of the run.
        options: what else its computations depend on, with its name; empty for nothing.
    """

    spec: DatasetSpec
    model: Classifier
    variables: Any
    network: str
    path: Path
    options: str = ""

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Height, width and channels of its input."""
        assert self.spec.image_shape is not None
        return self.spec.image_shape

    @property
    def reader(self) -> ImageReader:
        """How image files become its input."""
        return self.spec.image_reader

    @property
    def num_features(self) -> int:
        """The number of features d."""
        images = jax.ShapeDtypeStruct((1, *self.image_shape), jnp.uint8)
        return int(jax.eval_shape(self.features, images).shape[1])

    @property
    def parameters_digest(self) -> str:
        """A hash of the weights."""
        return parameters_digest(self.variables)

    @property
    def digest(self) -> str:
        """A hash of the weights and of the way to make their input."""
        how = [self.image_shape, self.spec.mean, self.spec.std, self.reader.steps]
        described = [*how, self.options or self.network, self.parameters_digest]
        return hashlib.sha256(repr(described).encode()).hexdigest()

    def compiled(self) -> Callable[[np.ndarray], jax.Array]:
        """uint8 images [n, height, width, channels] to float32 features [n, d]."""
        variables = jax.device_put(self.variables)
        embed = jax.jit(self._embed)
        return lambda images: embed(variables, images)

    def features(self, images: jax.Array) -> jax.Array:
        """The same; a pure function that contains the weights."""
        return self._embed(self.variables, images)

    def _embed(self, variables: Any, images: jax.Array) -> jax.Array:
        inputs = normalize(images, self.spec.mean, self.spec.std)
        features: Any = self.model.apply(variables, inputs, method=Classifier.embed)
        return features


def describe(used: Network, grammar: str | None) -> Mapping[str, Any] | None:
    """What a file of features, and a run on it, know of the network that made the features.

    Args:
        used: the network.
        grammar: what found the groups of the images, by which those of new images are found; see
            `grouping`. None if nothing did.

    Returns:
        A JSON value; None if the path or the grammar is not text.
    """
    # Not resolved: a link may be there to be changed.
    path = os.path.abspath(used.path)  # noqa: PTH100
    try:
        (path + (grammar or "")).encode()
    except UnicodeEncodeError:
        return None
    return {
        "network": used.network,
        "path": path,
        "parameters_digest": used.parameters_digest,
        "image_shape": [*used.image_shape],
        "steps": preparation.to_plain(used.reader),
        "mean": [*used.spec.mean],
        "std": [*used.spec.std],
        **({} if grammar is None else {"group": grammar}),
    }


def spec_of(described: Mapping[str, Any]) -> DatasetSpec:
    """How images became the input of a network, from the result of `describe`.

    Raises:
        UserError: it has another form.
    """
    with errors_told("the description of the network that made the features is damaged"):
        reader = preparation.from_plain(described["steps"], tuple(described["image_shape"]))
        mean, std = (tuple(map(float, described[one])) for one in ("mean", "std"))
        spec = spec_of_images(Path(described["path"]), reader.shape)
    return dataclasses.replace(spec, mean=mean, std=std, reader=reader)


def spec_of_images(path: Path, shape: tuple[int, ...]) -> DatasetSpec:
    """How a user's images become the input of a network, of some shape."""
    return dataset_spec(
        ImagesFields(name="images", batch_size=1, path=str(path), augmentation="none")
    ).of_shape(shape)


def of_run(workdir: Path) -> Network:
    """The network of a finished run on images."""
    run = trained.load(workdir)
    if not run.spec.has_images:
        raise UserError(
            f"--workdir must be the folder of a run on images; the run in {workdir} is on "
            f"{run.spec.inputs}"
        )
    parts = run.params.get("features", {}), run.batch_stats.get("features", {})
    options = json.dumps(dataclasses.asdict(run.config.model), sort_keys=True)
    name = run.config.model.name
    return Network(run.spec, run.parts.model, _variables(*parts), name, workdir, options)


def name_of(path: Path, name: str | None) -> str:
    """The name of the network of a file of weights, which is found by the file without a name."""
    if name is None:
        return network_of(str(path))
    find(name)
    return name


def of_weights(
    path: Path,
    name: str | None = None,
    image_size: int | None = None,
    normalization: str | None = None,
) -> Network:
    """The network in a file of weights, which gets images as the weights expect them.

    Args:
        path: the file.
        name: the name of the network; None to find it by the file.
        image_size: the height and width of its input; None for those of the published network.
        normalization: a name of `NORMALIZATIONS`; None for the network's own.

    Raises:
        UserError: the file cannot be read, is not of a known network, or is of another one; or the
            network does not take images of that size.
    """
    name = name_of(path, name)
    network = published(name)
    size = image_size or network.image_size
    if wrong := check_image_shape(name, (size, size, 3)):
        raise UserError(f"{name} takes {wrong}; --image_size gives images of shape {size, size, 3}")
    if normalization is not None and (
        wrong := kinds.wrong(normalization, kinds.one_of(NORMALIZATIONS))
    ):
        raise UserError(field="--normalization", must_be=wrong, got=normalization)
    mean, std = network.normalization if normalization is None else NORMALIZATIONS[normalization]
    spec = dataclasses.replace(spec_of_images(path, (size, size, 3)), mean=mean, std=std)
    return of_file(path, name, spec)


def of_file(path: Path, name: str, spec: DatasetSpec) -> Network:
    """The network of a name in a file of weights, whose input is made by a specification."""
    assert spec.image_shape is not None
    processes.use_compilation_cache()
    model = build_model(name, num_classes=1, head="linear", axis_name=None, half_precision=False)
    loaded = load_alone(model, name, str(path), spec.image_shape)
    parts = loaded.params["features"], loaded.batch_stats.get("features", {})
    return Network(spec, model, _variables(*parts), name, path)


def _variables(params: Any, batch_stats: Any) -> Any:
    return {"params": {"features": params}, "batch_stats": {"features": batch_stats}}
