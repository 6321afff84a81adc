"""The compiled steps are those of all recipes."""

import importlib
from pathlib import Path

import jax
import pytest

from benchmarks import compiled_steps
from train.planning.targets import Target

RECIPES = Path(compiled_steps.__file__).parents[1] / "configs"


def test_every_recipe_has_its_step():
    shared = {"__init__", "own_data", "recipe", "species_losses"}
    files = {path.stem for path in RECIPES.glob("*.py")} - shared
    assert {*compiled_steps.recipes(), *compiled_steps.AS_FOLDER} == files


def step_of(recipe):
    """What a step depends on. Its data are read otherwise."""
    config = importlib.import_module(f"configs.{recipe}").get_config().to_dict()
    of_data = {"batch_size", "mixup", "image_size", "augmentation"}
    config["dataset"] = {name: config["dataset"][name] for name in of_data}
    return config


@pytest.mark.parametrize("recipe", compiled_steps.AS_FOLDER)
def test_other_images_of_a_user_have_the_step_of_a_folder(recipe):
    assert step_of(recipe) == step_of("folder")


def test_a_plan_is_the_account_of_a_step():
    target = Target("two:2", "cpu", 2**30, jax.devices()[:2])
    config = compiled_steps.configuration("features:cross_entropy", {"dataset.batch_size": 2**14})
    # Of optax, whose step schedule compares floats with integers.
    with jax.numpy_dtype_promotion("standard"):
        found = compiled_steps.plan(config, target)
    assert found["sorts"] == 0
    assert found["collectives"]["all-reduce"] >= found["parts"]["params"]
    assert found["needed"] <= target.memory


def test_the_table_has_the_steps_and_names_what_failed():
    account = {"batch": 8, "needed": 5e6, "temporary": 3e6, "collectives": {"all-reduce": 2e6}}
    account |= {"sorts": 1, "loops": 2, "kernels": 3, "messages": 4, "seconds": 9.7}
    programs = {
        "digits, v5e": account,
        "imagenet, v5e": {"failed": "more than 600 s"},
    }
    machine = {"device": "cpu", "processor": "A", "cores": 1, "python": "3", "versions": {}}
    text = compiled_steps.tables({"machine": machine, "device": "v5e", "programs": programs})
    assert "| `digits` | v5e | 8 | 1 | 2 | 3 | 4 | 2.0 | 3.0 | 5.0 | 10 |" in text
    assert "`imagenet, v5e`: more than 600 s" in text
