"""Every recipe is a configuration that the program takes, with each of its losses."""

import importlib
from pathlib import Path

import pytest

from train import configuration

RECIPES = sorted(
    path.stem
    for path in (Path(__file__).parents[2] / "configs").glob("*.py")
    # Of the others, each lists its losses.
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
    configuration.check(config.to_dict())


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_default_is_one_of_them_and_others_are_refused(recipe):
    module = importlib.import_module(f"configs.{recipe}")
    configuration.check(module.get_config().to_dict())
    with pytest.raises(ValueError, match="the recipe has no loss 'adaboost'; after the colon may"):
        module.get_config("adaboost")


def test_a_loss_changes_what_the_paper_changes_with_it():
    config = importlib.import_module("configs.imagenet").get_config("smooth_top_k_hinge")
    assert (config.optimizer.learning_rate, config.optimizer.weight_decay) == (1.0, 2.5e-5)
    config = importlib.import_module("configs.cifar100").get_config("average_k")
    assert (config.dataset.holdout, config.select_by) == ("balanced", "average_5_accuracy")
