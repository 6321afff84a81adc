"""Networks with published weights as classifiers, which no run has trained here."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from train import data
from train.assembly import assemble
from train.classifiers import network
from train.classifiers.trained import TrainedClassifier
from train.configuration import Config
from train.configuration.datasets import ImagesFields
from train.configuration.groups import MODEL_OPTIONS
from train.configuration.parsing import parse
from train.data import dataset_spec, taxonomy
from train.data.classes import Classes
from train.devices import compilation_cache
from train.foundation import fields, flag_types
from train.foundation.errors import UserError
from train.foundation.spelling import flags_for_fields
from train.models import find, load_alone
from train.training import normalization
from train.workdir.facts import Facts

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
    with flags_for_fields(_FLAGS):
        names = chosen.class_names()
        name = network.name_of(Path(str(chosen.weights)), chosen.model)
        config = parse(_configuration(chosen, name, names))
        if config.compilation_cache:
            compilation_cache.use()
        assembly = assemble(config, None if names is None else _facts(config, names))
        weights, shape = str(config.model.pretrained), assembly.data.image_shape
        loaded = load_alone(assembly.model, name, weights, shape)
    if loaded.why_new_head is not None:
        classes = f"--dataset={chosen.dataset}" if chosen.classes is None else chosen.classes
        number = assembly.data.num_classes
        raise UserError(
            f"--weights {chosen.weights} has no head for the {number} classes of {classes}: "
            f"{loaded.why_new_head}; train.main fine-tunes it, and train.embed writes "
            "its features"
        )
    return TrainedClassifier(None, {}, assembly, loaded.params, loaded.batch_stats)


def _configuration(
    chosen: "ChosenClassifier", model: str, names: tuple[str, ...] | None
) -> dict[str, Any]:
    """The configuration of a run with cross-entropy that might have trained the network."""
    # The scores of cross-entropy are the softmax of the logits.
    wanted = chosen.dataset
    if wanted is not None and (wrong := fields.one_of(RECIPES)(wanted)):
        raise UserError(field="--dataset", must_be=wrong, got=wanted)
    of = "images" if wanted is None else RECIPES[wanted]
    recipe = flag_types.read_configuration(f"{of}:cross_entropy")
    dataset: dict[str, Any] = {"name": chosen.dataset, "data_dir": chosen.data}
    if names is not None:
        size = find(model).image_size if chosen.image_size is None else chosen.image_size
        dataset = {"name": _CLASS_LIST, "path": chosen.classes, "image_size": size}
    if "num_workers" in recipe.dataset:
        # Threads decode: starting processes takes longer than many evaluations.
        dataset["num_workers"] = 0
    weights = {"name": model, "pretrained": chosen.weights, "normalization": chosen.normalization}
    dataset = {**recipe.dataset, **dataset, "taxonomy": chosen.taxonomy}
    num_classes = data.read(dataset).num_classes if names is None else len(names)
    assert num_classes is not None
    ks = [k for k in recipe.eval.ks if k <= num_classes]
    return {
        **recipe.to_dict(),
        "dataset": dataset,
        # The recipe's own network may have options.
        "model": {**recipe.model, **dict.fromkeys(MODEL_OPTIONS), **weights},
        "eval": {**recipe.eval, "ks": ks},
        # Nothing is selected, and `ks` may lack the K of the recipe's metric.
        "select_by": "loss",
    }


def _facts(config: Config, names: tuple[str, ...]) -> Facts:
    """What a data set would contain, for only class names."""
    assert isinstance(config.dataset, ImagesFields)
    size = config.dataset.image_size
    assert size is not None
    given = config.dataset.taxonomy
    tree = None if given is None else taxonomy.read(given, names)
    facts = Facts(dataclasses.replace(Classes.of(names), tree=tree), (size, size, 3))
    spec = facts.complete(dataset_spec(config.dataset))
    found = normalization.choose_for_run(config.model, spec)
    return facts if found is None else dataclasses.replace(facts, mean=found.mean, std=found.std)
