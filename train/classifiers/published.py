"""Networks with published weights as classifiers, which no run has trained here."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from train.classifiers import network
from train.classifiers.trained import TrainedClassifier
from train.configuration import Config
from train.configuration.datasets import ImagesFields
from train.configuration.groups import MODEL_OPTIONS
from train.configuration.parsing import parse
from train.data import dataset_spec, taxonomy
from train.data.classes import Classes
from train.devices import processes
from train.foundation import files, kinds
from train.foundation.errors import UserError, naming_flags
from train.foundation.flags import read_configuration
from train.models import find, load_alone
from train.run import transfer
from train.run.parts import Run, assemble
from train.run.run_folder import Facts

if TYPE_CHECKING:
    from train.classifiers.flags import ChosenClassifier

# The data sets of images that a name describes, each with the recipe that has their fields.
_OWN = ("cifar100", "digits", "imagenet", "imagenet_lt", "plantnet300k", "synthetic_species")
RECIPES = {**dict(zip(_OWN, _OWN, strict=True)), "plantnet300k_v2": "plantnet300k"}
_CLASS_LIST = "train.data.own_images:CLASS_LIST"
_FLAGS = {
    "config.model.pretrained": "--weights",
    "config.model.name": "--model",
    "config.model.normalization": "--normalization",
    "config.dataset.name": "--dataset",
    "config.dataset.data_dir": "--data",
    "config.dataset.image_size": "--image_size",
    "config.dataset.taxonomy": "--taxonomy",
}


def load(chosen: "ChosenClassifier") -> TrainedClassifier:
    """The classifier of a published network, head and all.

    Raises:
        UserError: the weights cannot be read, are of another network, or their head is not one for
            these classes; or the data set is not there.
    """
    with naming_flags(_FLAGS):
        names = chosen.class_names()
        name = network.name_of(Path(str(chosen.weights)), chosen.model)
        config = parse(_configuration(chosen, name, names))
        if config.compilation_cache:
            processes.use_compilation_cache()
        parts = assemble(config, None if names is None else _facts(config, names))
        weights, shape = str(config.model.pretrained), parts.data.image_shape
        loaded = load_alone(parts.model, name, weights, shape)
    if loaded.why_new_head is not None:
        classes = f"--dataset={chosen.dataset}" if chosen.classes is None else chosen.classes
        number = parts.data.num_classes
        raise UserError(
            f"--weights {chosen.weights} has no head for the {number} classes of {classes}: "
            f"{loaded.why_new_head}; train.main fine-tunes it, and train.embed writes "
            "its features"
        )
    _check_description(Path(weights).expanduser(), parts)
    return TrainedClassifier(None, {}, parts, loaded.params, loaded.batch_stats)


def _check_description(weights: Path, parts: Run) -> None:
    """Refuses weights of train.export that were changed, or are given other images.

    Raises:
        UserError: the description beside them says otherwise.
    """
    path, spec = weights.with_name(f"{weights.name}.json"), parts.data.spec
    if not path.is_file():
        return
    described = files.read_checked(path, "a description that train.export wrote")
    if files.sha256(weights) != described["digest"]:
        raise UserError(f"--weights {weights} is not the file that {path} describes")
    given = described["images"]
    numbers = given["normalization"]
    wanted = given["shape"][1:], numbers["mean"], numbers["std"]
    if wanted != ([*parts.data.image_shape], [*spec.mean], [*spec.std]):
        (height, width, _), mean, std = wanted
        raise UserError(
            f"--image_size and --normalization must be those of {path}: {height} x {width} pixels, "
            f"mean {mean}, deviation {std}"
        )


def _configuration(
    chosen: "ChosenClassifier", model: str, names: tuple[str, ...] | None
) -> dict[str, Any]:
    """The configuration of a run with cross-entropy that might have trained the network."""
    # The scores of cross-entropy are the softmax of the logits.
    wanted = chosen.dataset
    if wanted is not None and (wrong := kinds.wrong(wanted, kinds.one_of(RECIPES))):
        raise UserError(field="--dataset", must_be=wrong, got=wanted)
    of = "images" if wanted is None else RECIPES[wanted]
    recipe = read_configuration(f"{of}:cross_entropy")
    dataset: dict[str, Any] = {"name": chosen.dataset, "data_dir": chosen.data}
    if names is not None:
        size = find(model).image_size if chosen.image_size is None else chosen.image_size
        dataset = {"name": _CLASS_LIST, "path": chosen.classes, "image_size": size}
    if "num_workers" in recipe["dataset"]:
        # Threads decode: starting processes takes longer than many evaluations.
        dataset["num_workers"] = 0
    weights = {"name": model, "pretrained": chosen.weights, "normalization": chosen.normalization}
    dataset = {**recipe["dataset"], **dataset, "taxonomy": chosen.taxonomy}
    return {
        **recipe,
        "dataset": dataset,
        # The recipe's own network may have options.
        "model": {**recipe["model"], **dict.fromkeys(MODEL_OPTIONS), **weights},
    }


def _facts(config: Config, names: tuple[str, ...]) -> Facts:
    """What a data set would contain, for only class names."""
    assert isinstance(config.dataset, ImagesFields)
    size = config.dataset.image_size
    assert size is not None
    given = config.dataset.taxonomy
    tree = None if given is None else taxonomy.read(given, names)
    facts = Facts(dataclasses.replace(Classes.of(names), tree=tree), (size, size, 3))
    return transfer.normalized(facts, dataset_spec(config.dataset), config.model)
