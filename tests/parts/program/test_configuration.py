"""Configurations are checked field by field, and by rules of several; a refusal names the field."""

import dataclasses
import json
import math
from typing import Any

import jax
import numpy as np
import pytest

from configs import digits, features, own_data
from tests.parts.program.configurations import changed
from train.configuration import FIELDS_OF, Config
from train.configuration.declaring import by_dotted_name
from train.configuration.parsing import parse
from train.configuration.rules import check_classes
from train.data import DATASETS, find
from train.foundation.errors import UserError
from train.training.optimizer import schedule


@pytest.fixture
def config():
    return json.loads(digits.get_config("noised_top_k_hinge").to_json())


def test_what_a_recipe_leaves_out_has_its_default(config):
    del config["checkpoint"], config["optimizer"]["momentum"], config["parallel"]
    parsed = parse(config)
    assert (parsed.checkpoint.every_steps, parsed.optimizer.momentum) == (None, 0.9)
    assert parsed.parallel == "pmap"


def refusal(config):
    """The message for a configuration; None if it is one that the program takes."""
    try:
        parse(config)
    except UserError as error:
        return str(error)
    return None


# Values of which each kind of field refuses some.
ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1.5,
    10**400,
    math.nan,
    math.inf,
    "",
    "\0digit",
    [],
    [3, 2],
    [0.5],
    {"a": 1},
)


@pytest.mark.parametrize("name", [*by_dotted_name(Config), "loss.k", "loss.epsilon"])
def test_a_value_that_a_field_may_not_have_is_one_line_with_its_name(config, name):
    refused = [message for value in ODD if (message := refusal(changed(config, {name: value})))]
    assert len(refused) > 5
    for message in refused:
        assert f"config.{name}" in message
        assert "\n" not in message


MESSAGES = [
    ("optimizer.learning_rate", 0, "must be a number above 0; got 0"),
    ("optimizer.learning_rate", math.inf, "must be a finite number above 0; got inf"),
    ("optimizer.momentum", 1.0, "must be a number of at least 0 and below 1; got 1.0"),
    ("optimizer.clip_norm", 0, "must be a number above 0, or None; got 0"),
    ("optimizer.nesterov", 1, "must be True or False; got 1"),
    ("dataset.name", "digit", "digits (did you mean this?), or one of cifar100, feat"),
    ("parallel", "pmpa", "must be pmap (did you mean this?), or one of fsdp, mesh; got 'pmpa'"),
    ("eval.ks", [], "must be a tuple, with at least one element, each an integer"),
    ("eval.ks", [3, 1], "must be a tuple of increasing elements; got [3, 1]"),
    ("select_by", "top_4_accuracy", "accuracy (did you mean this?), or one of average_1_accuracy"),
    ("loss.k", 10, "must be at most 9 with 10 classes; got 10"),
]


@pytest.mark.parametrize(("name", "value", "words"), MESSAGES)
def test_a_message_has_what_the_value_may_be(config, name, value, words):
    with pytest.raises(UserError) as raised:
        parse(changed(config, {name: value}))
    assert f"config.{name} " in str(raised.value)
    assert words in str(raised.value)


@pytest.mark.parametrize("name", by_dotted_name(Config))
def test_a_name_that_is_no_field_is_one_line_with_the_nearest(config, name):
    with pytest.raises(UserError, match=rf"config\.{name}_ is not a field.*did you mean"):
        parse(changed(config, {f"{name}_": 1}))


@pytest.mark.parametrize("name", ["num_epochs", "loss.k", "loss.name", "dataset.batch_size"])
def test_a_field_without_a_default_is_missed(config, name):
    *groups, field = name.split(".")
    del (config[groups[0]] if groups else config)[field]
    with pytest.raises(UserError, match=rf"config\.{name} is missing"):
        parse(config)


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
    ({"loss.name": "imbalanced_expected_top_k_hinge", "model.scale": 5.0}, "loss.scale"),
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
    ({**MESH, "model.sync_batch_norm": False}, "model.sync_batch_norm"),
]


@pytest.mark.parametrize(("changes", "field"), RULES)
def test_fields_that_do_not_fit_each_other_are_refused(config, changes, field):
    config["loss"] |= {"weight": 1.0, "label_learning_rate": 1.0}
    *fitting, _ = changes.items()
    parse(changed(config, dict(fitting)))
    with pytest.raises(UserError) as raised:
        parse(changed(config, changes))
    assert f"config.{field} " in str(raised.value)


def test_a_network_that_does_not_fit_the_inputs_is_refused():
    config = changed(features.get_config().to_dict(), {"dataset.path": "features.npz"})
    parse(config)
    with pytest.raises(UserError, match=r"config\.model\.name must be one of linear, mlp"):
        parse(changed(config, {"model.name": "small_cnn"}))


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
    with pytest.raises(UserError, match="must be a number that divides the 20 classes; got 8"):
        check_classes(dataclasses.replace(fitting, class_devices=8), 20)


@pytest.mark.parametrize("kind", ["pmap", "mesh", "fsdp"])
def test_without_a_number_any_devices_can_share_the_classes(config, kind):
    config = changed(config, {"parallel": kind, "class_devices": None})
    check_classes(parse(config), 10)


def test_an_integer_is_a_float_where_the_field_is_for_floats(config):
    """JAX refuses integers of more than 32 bits in a step, and optax computes with these."""
    config["optimizer"] |= {"decay_factor": 10**30, "decay_epochs": (1,), "learning_rate": 1}
    settings = parse(config).optimizer
    assert {type(settings.decay_factor), type(settings.learning_rate)} == {float}
    rate = schedule(settings, settings.learning_rate, num_epochs=3, steps_per_epoch=2)
    np.testing.assert_allclose(jax.jit(rate)(5), 1e30, rtol=1e-6)


@pytest.mark.parametrize("name", DATASETS)
def test_recipes_and_the_program_agree_on_the_fields_of_a_data_set(name):
    assert find(name).fields is FIELDS_OF[name]
    for one in by_dotted_name(Config, dataset=FIELDS_OF[name]).values():
        assert one.doc.endswith(".")
