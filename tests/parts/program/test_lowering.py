"""The training step of every recipe is lowered for GPUs and TPUs, with its network and loss."""

import dataclasses
import importlib
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from tests.parts import lowered
from tests.parts.program.data.specs import dataset_spec
from tests.rows import rows
from train.configuration.parsing import parse
from train.data.classes import Classes
from train.data.taxonomy import ClassTree
from train.devices import devices
from train.models import MODELS
from train.run.parts import assemble
from train.run.run_folder import Facts
from train.study.papers import NETWORKS
from train.training.losses import LOSSES

# Some for each of the eight devices: half of a batch has a quantile at an error of a tenth.
BATCH_SIZE = 24
# For data sets for which only the files determine it.
NUM_CLASSES, NUM_FEATURES, IMAGE_SHAPE = 10, 16, (64, 64, 3)
DTYPES = {"images": np.uint8, "features": np.float32}
# The recipes for a user's own data take any loss. All losses are tried with the smallest network.
WITH_ANY_LOSS = "features"
# What is lowered in every run of the tests: a network of each kind of input.
SOME = ("digits", "features")


def arguments_of_recipes():
    """What may stand after `--config=`, of every recipe; of some with each loss or network."""
    for path in sorted((Path(__file__).parents[3] / "configs").glob("*.py")):
        recipe = importlib.import_module(f"configs.{path.stem}")
        if not hasattr(recipe, "get_config"):
            continue
        yield path.stem
        choices = list(getattr(recipe, "_LOSSES", ()))
        if path.stem == WITH_ANY_LOSS:
            choices = list(LOSSES)
        if path.stem == "plantnet300k_networks":
            choices = [name for name in NETWORKS if name in MODELS]
        yield from (f"{path.stem}:{choice}" for choice in choices)


ARGUMENTS = list(arguments_of_recipes())


def parts_of(argument):
    """The parts of a run of the recipe, with made-up facts in the place of its data set."""
    recipe, _, choice = argument.partition(":")
    get_config = importlib.import_module(f"configs.{recipe}").get_config
    config = (get_config(choice) if choice else get_config()).to_dict()
    # A program by pmap cannot be exported. The step is the same.
    config["parallel"], config["class_devices"] = "mesh", 1
    config["dataset"]["batch_size"] = BATCH_SIZE
    # Nothing is read from there.
    if "path" in config["dataset"]:
        config["dataset"]["path"] = "somewhere"
    spec = dataset_spec(config["dataset"])
    num_classes = spec.num_classes or NUM_CLASSES
    shape = spec.image_shape or (IMAGE_SHAPE if spec.has_images else (NUM_FEATURES,))
    tree = None
    if LOSSES[config["loss"]["name"]].needs_taxonomy:
        paths = tuple((str(i % 2), str(i)) for i in range(num_classes))
        tree = ClassTree(("half", "class"), paths)
    classes = Classes(tuple(map(str, range(num_classes))), (20,) * num_classes, tree)
    zeros = (0.0,) * shape[-1]
    ones = (1.0,) * shape[-1]
    facts = Facts(classes, shape, mean=spec.mean or zeros, std=spec.std or ones)
    parts = assemble(parse(config), facts)
    parts.data.steps_per_epoch = 10
    labels = np.arange(BATCH_SIZE) % num_classes
    parts.data.dataset = SimpleNamespace(train=SimpleNamespace(labels=labels))
    return parts


def batch_of(parts):
    numbers = jax.ShapeDtypeStruct((BATCH_SIZE,), np.int32)
    inputs = jax.ShapeDtypeStruct(
        (BATCH_SIZE, *parts.data.image_shape), DTYPES[parts.data.spec.inputs]
    )
    batch = {"images": inputs, "labels": numbers, "positions": numbers, "request": numbers}
    return {**batch, "examples": numbers} if parts.loss.estimates_labels else batch


def test_every_recipe_is_here():
    assert {"cifar100", "imagenet", "plantnet300k", "images"} <= {*ARGUMENTS}
    assert {f"features:{loss}" for loss in LOSSES} <= {*ARGUMENTS}
    assert {f"plantnet300k_networks:{name}" for name in ("resnet50", "vgg11")} <= {*ARGUMENTS}


@pytest.mark.usefixtures("standard_promotion")
@pytest.mark.parametrize(
    "argument",
    rows(
        [argument for argument in ARGUMENTS if argument in SOME],
        [argument for argument in ARGUMENTS if argument not in SOME],
    ),
)
def test_the_training_step_is_lowered(argument):
    parts = parts_of(argument)
    # Of one device: how several split a loss is told to a compiler that is here.
    parts.devices = devices.find("mesh", 1, parts.data.num_classes, jax.devices()[:1])
    # Numbers that are kept, made outside of the trace below.
    assert parts.hyperparameters
    state = parts.state_shapes()
    if parts.loss.estimates_labels:
        rows = jax.ShapeDtypeStruct((BATCH_SIZE, parts.data.num_classes), np.float32)
        state = dataclasses.replace(state, label_logits=rows)
    program = lowered.lowered(parts.train_step, state, batch_of(parts))
    assert lowered.faults(program) == []
