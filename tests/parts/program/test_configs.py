"""Every recipe is a configuration that the program takes, with each of its losses or networks."""

import importlib
from pathlib import Path

import pytest

from configs import plantnet300k_networks
from train import data
from train.configuration.parsing import parse
from train.models import MODELS
from train.study.papers import NETWORKS

RECIPES = {
    path.stem: importlib.import_module(f"configs.{path.stem}")
    for path in sorted((Path(__file__).parents[3] / "configs").glob("*.py"))
    if "\ndef get_config(" in path.read_text()
}
# Where the user has to say.
OWN = {"path": "somewhere", "tfds_name": "mnist"}


def with_data(config):
    values = config.to_dict()
    values["dataset"] |= {name: place for name, place in OWN.items() if name in values["dataset"]}
    return values


def test_every_recipe_is_a_configuration_with_each_of_its_losses():
    """Also for one epoch, to try it."""
    pairs = 0
    for name, recipe in RECIPES.items():
        parse({**with_data(recipe.get_config()), "num_epochs": 1})
        for loss in (losses := getattr(recipe, "_LOSSES", ())):
            config = recipe.get_config(loss)
            assert config.loss.name == loss, (name, loss)
            parse(with_data(config))
            pairs += 1
        if losses:
            with pytest.raises(ValueError, match="loss after the colon of --config must be"):
                recipe.get_config("adaboost")
    assert pairs > 80


def test_data_of_others_say_whose_they_are():
    for recipe in RECIPES.values():
        dataset = recipe.get_config().dataset.to_dict()
        if not OWN.keys() & dataset.keys():
            assert data.read({"batch_size": 1, **dataset}).attribution


def test_a_loss_changes_what_the_paper_changes_with_it():
    config = RECIPES["imagenet"].get_config("smooth_top_k_hinge")
    assert (config.optimizer.learning_rate, config.optimizer.weight_decay) == (1.0, 2.5e-5)
    config = RECIPES["cifar100"].get_config("average_k")
    assert (config.dataset.holdout, config.select_by) == ("balanced", "average_5_accuracy")


def test_recipes_whose_classes_are_split_take_any_number_of_devices():
    for loss in ("cross_entropy", "noised_top_k_hinge", "average_k"):
        config = RECIPES["million_classes"].get_config(loss)
        assert (config.loss.name, config.parallel, config.class_devices) == (loss, "mesh", None)


# Table 3.3 of the thesis: the rate, the epochs and the decays of each network.
TRAINING = {
    (0.01, 30, (20, 25)): (
        "mobilenet_v2 mobilenet_v3_large resnet18 resnet34 resnet50 resnet101 resnet152 "
        "densenet121 densenet161 densenet169 densenet201 inception_v3 inception_v4 "
        "inception_resnet_v2 wide_resnet50_2 wide_resnet101_2 shufflenet"
    ),
    (0.001, 30, (20, 25)): "vgg11 alexnet mobilenet_v3_small squeezenet",
    (0.01, 20, (10, 15)): (
        "efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3 efficientnet_b4"
    ),
    (5e-4, 20, (15,)): "vit_base_patch16_224",
}


def test_each_network_is_trained_as_the_thesis_says():
    names = {name: training for training, text in TRAINING.items() for name in text.split()}
    assert set(NETWORKS) == names.keys()
    for name in NETWORKS:
        config = plantnet300k_networks.get_config(name)
        optimizer = config.optimizer
        found = (optimizer.learning_rate, config.num_epochs, optimizer.decay_epochs)
        assert found == names[name], name
        assert (config.model.name, config.loss.name) == (name, "cross_entropy")
        assert (optimizer.name, optimizer.momentum, optimizer.nesterov) == ("sgd", 0.9, True)
        assert (optimizer.weight_decay, optimizer.decay_factor) == (1e-4, 0.1)
        assert (config.dataset.name, config.dataset.batch_size) == ("plantnet300k", 32)
        if name in MODELS:
            parse(config.to_dict())
