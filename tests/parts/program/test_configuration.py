"""Configurations are checked field by field, and by rules of several; a refusal names the field."""

import dataclasses
import importlib.util
import json
import math

import jax
import numpy as np
import pytest

from configs import digits, own_data
from tests.parts.program.configurations import changed
from tests.parts.program.data.specs import dataset_spec
from tests.parts.program.forked import ROOT
from train.configuration import FIELDS_OF, Config
from train.configuration.declaring import by_dotted_name
from train.configuration.parsing import parse
from train.configuration.rules import check_classes
from train.data import DATASETS, find
from train.foundation.errors import UserError
from train.training.optimizer import schedule


@pytest.fixture
def config():
    return json.loads(digits.get_config().to_json())


def test_the_recipe_is_fine(config):
    parse(config)


# A field of each kind, and values that it may not have.
VALUES = {
    "num_epochs": (0, 1.5),
    "dataset.name": ("digit",),
    "dataset.data_dir": (3,),
    "loss.k": (0, 10),
    "loss.epsilon": (-0.1, math.nan),
    "optimizer.learning_rate": (0.0,),
    "optimizer.momentum": (1.0,),
    "optimizer.nesterov": (1,),
    "optimizer.decay_epochs": ([3, 2],),
    "optimizer.clip_norm": (0,),
    "select_by": ("top_4_accuracy", None),
    "eval.ks": ([1, 11], []),
    "model.pretrained": ("",),
    "model.head": ("two_heads",),
    "parallel": ("pmpa",),
    "class_devices": (0,),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_that_a_field_may_not_have_are_refused(config, name):
    for value in VALUES[name]:
        with pytest.raises(UserError) as raised:
            parse(changed(config, {name: value}))
        assert f"config.{name} " in str(raised.value)


COSINE = {"model.head": "cosine", "model.scale": 20.0}
MESH = {"parallel": "mesh", "class_devices": 2}
# Changes that fit each other but for the last one, and the field that is named.
RULES = [
    ({"model.width": 8}, "model.width"),
    ({"loss.label_smoothing": 0.1}, "loss.label_smoothing"),
    ({"loss.name": "average_k", "model.head": "linear"}, "model.head"),
    ({"model.scale": 20.0}, "model.scale"),
    ({"loss.name": "ldam", "model.head": "linear"}, "loss.scale"),
    ({"model.head": "cosine"}, "model.scale"),
    ({"loss.name": "expected_imbalanced", "model.scale": 5.0}, "loss.scale"),
    ({"model.learn_scale": True}, "model.learn_scale"),
    ({"eval.scores": "sigmoid"}, "eval.scores"),
    (
        {"loss.name": "average_k", "eval.scores": "sigmoid", "eval.temperature": True},
        "eval.temperature",
    ),
    ({"model.remat": True}, "model.remat"),
    ({"model.name": "resnet18", "model.remat": True, "model.freeze": True}, "model.remat"),
    (
        {"model.name": "resnet18", "model.pretrained": "a.pth", "model.start_from": "runs/a"},
        "model.start_from",
    ),
    ({"model.pretrained": "a.pth"}, "model.pretrained"),
    ({"model.new_head": True}, "model.new_head"),
    ({"model.freeze": True, "optimizer.layer_decay": 0.5}, "optimizer.layer_decay"),
    (
        {"optimizer.accumulation_steps": 2, "loss.name": "average_k"},
        "optimizer.accumulation_steps",
    ),
    ({"dataset.mixup": 0.2, "loss.name": "role"}, "dataset.mixup"),
    ({"loss.class_weights": "class_balanced", "loss.name": "role"}, "loss.class_weights"),
    ({"loss.class_weights_from": 0.8}, "loss.class_weights_from"),
    ({"class_devices": 2}, "class_devices"),
    ({**MESH, "class_devices": 4}, "class_devices"),
    ({**MESH, "loss.name": "role"}, "class_devices"),
    ({**MESH, "optimizer.name": "lamb"}, "optimizer.name"),
    ({"parallel": "fsdp", "optimizer.name": "lamb"}, "optimizer.name"),
]


@pytest.mark.parametrize(("changes", "field"), RULES)
def test_fields_that_do_not_fit_each_other_are_refused(config, changes, field):
    config["loss"] |= {"weight": 1.0, "label_learning_rate": 1.0}
    *fitting, _ = changes.items()
    parse(changed(config, dict(fitting)))
    with pytest.raises(UserError) as raised:
        parse(changed(config, changes))
    assert f"config.{field} " in str(raised.value)


@pytest.mark.parametrize(
    ("recipe", "field", "value"),
    [
        ("features", "model.name", "small_cnn"),
    ],
)
def test_fields_that_do_not_fit_the_inputs_are_refused(recipe, field, value):
    config = importlib.import_module(f"configs.{recipe}").get_config().to_dict()
    if recipe == "features":
        config["dataset"]["path"] = "features.npz"
    parse(config)
    with pytest.raises(UserError, match=rf"config\.{field} "):
        parse(changed(config, {field: value}))


@pytest.mark.parametrize(
    ("loss", "changes"),
    [
        ("cross_entropy", {**COSINE, "model.learn_scale": True}),
        ("ldam", {"model.head": "cosine"}),
        ("ldam", {"model.head": "linear", "loss.scale": 1}),
        ("ldam", {"model.scale": 20.0, "model.learn_scale": True, "loss.scale": 1.0}),
    ],
)
def test_any_loss_of_one_head_takes_either(config, loss, changes):
    parse(changed(config, {"loss.name": loss, **changes}))


def test_a_batch_is_large_enough_for_the_quantile_of_conformal_training(config):
    """Of m = 9 calibrating examples and an error of 0.1, the rank is 9; of 8, it would be 9."""
    config["loss"] |= own_data.loss_fields("conformal_training")
    parse(changed(config, {"dataset.batch_size": 18}))
    with pytest.raises(UserError, match=r"config\.dataset\.batch_size"):
        parse(changed(config, {"dataset.batch_size": 17}))


def test_devices_need_the_classes_of_a_data_set_that_was_opened(config):
    fitting = parse(changed(config, {"parallel": "mesh", "class_devices": 5}))
    with pytest.raises(
        UserError, match="must divide the number of classes, 20, such as 1, 2, 4, 5;"
    ):
        check_classes(
            dataclasses.replace(fitting, class_devices=8), dataset_spec(config["dataset"]), 20
        )


@pytest.mark.parametrize("kind", ["pmap", "shard_map", "mesh"])
def test_without_a_number_any_devices_can_share_the_classes(config, kind):
    config = changed(config, {"parallel": kind, "class_devices": None})
    check_classes(parse(config), dataset_spec(config["dataset"]), 10)


def test_an_integer_is_a_float_where_the_field_is_for_floats(config):
    """JAX refuses integers of more than 32 bits in a step, and optax computes with these."""
    config["optimizer"] |= {"decay_factor": 10**30, "decay_epochs": (1,), "learning_rate": 1}
    settings = parse(config).optimizer
    assert {type(settings.decay_factor), type(settings.learning_rate)} == {float}
    rate = schedule(settings, settings.learning_rate, num_epochs=3, steps_per_epoch=2)
    np.testing.assert_allclose(jax.jit(rate)(5), 1e30, rtol=1e-6)


# The page of all fields, which comes from the declarations.


def test_the_page_is_up_to_date():
    spec = importlib.util.spec_from_file_location("page", ROOT / "docs" / "write_configuration.py")
    written = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(written)
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert page == written.page(), "python docs/write_configuration.py writes it"


@pytest.mark.parametrize("name", DATASETS)
def test_recipes_and_the_program_agree_on_the_fields_of_a_data_set(name):
    assert find(name).fields is FIELDS_OF[name]
    for one in by_dotted_name(Config, dataset=FIELDS_OF[name]).values():
        assert one.doc.endswith(".")
        assert one.check(object()) is not None
