"""Every recipe is a configuration that the program takes, with each of its losses or networks."""

import importlib
from pathlib import Path

import pytest

from configs import plantnet300k_networks
from train import data
from train.configuration.parsing import parse
from train.models import MODELS
from train.papers.networks import NETWORKS

RECIPES = sorted(
    path.stem
    for path in (Path(__file__).parents[3] / "configs").glob("*.py")
    # Each of the others lists its losses.
    if "_LOSSES" in path.read_text()
)
LOSSES = [
    (recipe, loss)
    for recipe in RECIPES
    for loss in importlib.import_module(f"configs.{recipe}")._LOSSES
]


def test_the_recipes_of_the_papers_are_there():
    assert {
        "cifar100",
        "imagenet",
        "imagenet_lt",
        "plantnet300k",
        "plantnet300k_average_k",
        "synthetic_species",
    } <= set(RECIPES)


@pytest.mark.parametrize(("recipe", "loss"), LOSSES)
def test_every_loss_of_every_recipe_is_a_configuration(recipe, loss):
    config = importlib.import_module(f"configs.{recipe}").get_config(loss)
    assert config.loss.name == loss
    parse(config.to_dict())


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_default_is_one_of_them_and_others_are_refused(recipe):
    module = importlib.import_module(f"configs.{recipe}")
    parse(module.get_config().to_dict())
    with pytest.raises(
        ValueError, match="the recipe has no loss 'adaboost'; after the colon, give"
    ):
        module.get_config("adaboost")


# All files with recipes, also those whose losses are not listed.
ALL_RECIPES = sorted(
    path.stem
    for path in (Path(__file__).parents[3] / "configs").glob("*.py")
    if "\ndef get_config(" in path.read_text()
)


@pytest.mark.parametrize("recipe", ALL_RECIPES)
def test_every_recipe_can_be_tried_for_one_epoch(recipe):
    config = importlib.import_module(f"configs.{recipe}").get_config().to_dict()
    if "path" in config["dataset"]:
        config["dataset"]["path"] = "somewhere"
    elif "tfds_name" in config["dataset"]:
        config["dataset"]["tfds_name"] = "mnist"
    parse({**config, "num_epochs": 1})


@pytest.mark.parametrize("recipe", ALL_RECIPES)
def test_data_of_others_say_whose_they_are(recipe):
    dataset = importlib.import_module(f"configs.{recipe}").get_config().dataset.to_dict()
    if "path" in dataset or "tfds_name" in dataset:
        return  # The data are the user's own.
    assert data.read({"batch_size": 1, **dataset}).attribution


def test_a_loss_changes_what_the_paper_changes_with_it():
    config = importlib.import_module("configs.imagenet").get_config("smooth_top_k_hinge")
    assert (config.optimizer.learning_rate, config.optimizer.weight_decay) == (1.0, 2.5e-5)
    config = importlib.import_module("configs.cifar100").get_config("average_k")
    assert (config.dataset.holdout, config.select_by) == ("balanced", "average_5_accuracy")


def test_losses_that_share_a_field_have_values_of_their_own():
    """Also if all losses have all fields, so that a user may choose any of them."""
    for recipe in ("place_names", "folder", "features"):
        get_config = importlib.import_module(f"configs.{recipe}").get_config
        focal, scaled = get_config("focal").loss, get_config("vector_scaling").loss
        assert (focal.gamma, scaled.gamma, scaled.tau) == (1.0, 0.2, 1.2)
        penalized = get_config("expected_positive_regularization").loss
        assert (penalized.beta, get_config("symmetric_cross_entropy").loss.beta) == (0.01, 1.0)
    assert importlib.import_module("configs.place_names").get_config("focal").loss.k == 5


@pytest.mark.parametrize("recipe", ["features", "folder", "huggingface", "table", "tfds"])
def test_recipes_for_your_own_data_begin_with_cross_entropy(recipe):
    module = importlib.import_module(f"configs.{recipe}")
    assert module.get_config().loss.name == "cross_entropy"
    # And document it, as docs/which_loss.md does.
    assert "The loss is cross-entropy;" in " ".join((module.__doc__ or "").split())


def test_entmax_has_an_alpha_of_its_own():
    """Also if all losses have all fields, so that a user may choose any of them."""
    for recipe in ("synthetic_species", "place_names", "folder", "features"):
        get_config = importlib.import_module(f"configs.{recipe}").get_config
        assert (get_config("entmax").loss.alpha, get_config("average_k").loss.alpha) == (1.5, 0.3)


@pytest.mark.parametrize("recipe", ["place_regions", "million_classes"])
@pytest.mark.parametrize("loss", ["cross_entropy", "noised_balanced", "average_k"])
def test_recipes_whose_classes_are_split_take_any_number_of_devices(recipe, loss):
    config = importlib.import_module(f"configs.{recipe}").get_config(loss)
    assert (config.loss.name, config.parallel, config.class_devices) == (loss, "mesh", None)
    if recipe == "million_classes":
        assert config.dataset.num_classes == 1_000_000
        config.dataset.num_classes = 1000
    parse(config.to_dict())


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
    assert len(names) == 27
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


@pytest.mark.parametrize("name", [name for name in NETWORKS if name in MODELS])
def test_every_network_of_the_thesis_is_a_configuration(name):
    parse(plantnet300k_networks.get_config(name).to_dict())


def test_the_default_network_is_a_resnet50_and_unknown_ones_are_refused():
    assert plantnet300k_networks.get_config().model.name == "resnet50"
    message = "the recipe has no network 'resnet9'; after the colon, give alexnet, densenet121"
    with pytest.raises(ValueError, match=message):
        plantnet300k_networks.get_config("resnet9")


def test_each_network_may_be_trained_with_the_smooth_hinge():
    config = plantnet300k_networks.get_config("vgg11,smooth_top_k_hinge")
    assert (config.model.name, config.loss.to_dict()) == (
        "vgg11",
        # Thesis 3.8.3.
        {**config.loss, "name": "smooth_top_k_hinge", "k": 5, "tau": 1.0},
    )
    parse(config.to_dict())
    # All else is as with the cross-entropy.
    usual = plantnet300k_networks.get_config("vgg11").to_dict()
    assert config.to_dict() == {**usual, "loss": config.loss.to_dict()}
    message = "the recipe has no loss 'focal'; after the colon, give cross_entropy, smooth_top"
    with pytest.raises(ValueError, match=message):
        plantnet300k_networks.get_config("vgg11,focal")
