"""Configurations are checked field by field; the message names the field and what it may be."""

import dataclasses
import json
import math
import re

import jax
import numpy as np
import pytest

from configs import digits, own_data
from tests.parts.program.configurations import changed
from tests.parts.program.data.specs import dataset_spec
from train.configuration.parsing import parse
from train.configuration.rules import check_classes
from train.foundation.errors import UserError
from train.training.optimizer import schedule


@pytest.fixture
def config():
    return json.loads(digits.get_config().to_json())


def test_the_recipe_is_fine(config):
    parse(config)


# The field, its value, and what it must be instead.
MISTAKES = [
    ("seed", -1, "an integer from 0"),
    ("num_epochs", 0, "an integer of at least 1"),
    ("num_epochs", 1.5, ""),
    ("dataset.name", "digit", "did you mean 'digits'"),
    ("dataset.batch_size", 0, ""),
    ("dataset.data_dir", 3, ""),
    ("model.name", "smal_cnn", "did you mean 'small_cnn'"),
    ("loss.name", "cross_entropi", "did you mean 'cross_entropy'"),
    ("loss.k", 10, r"an integer from 1 to 9 \(one less than the classes"),
    ("loss.k", 0, "an integer from 1 to 9"),
    ("loss.epsilon", -0.1, "a finite number at least 0"),
    ("loss.num_samples", 0, ""),
    ("optimizer.learning_rate", 0.0, ""),
    ("optimizer.momentum", 1.0, ""),
    ("optimizer.nesterov", 1, "True or False"),
    ("optimizer.weight_decay", -1.0, ""),
    ("optimizer.decay_epochs", [3, 2], "increasing"),
    ("optimizer.decay_factor", 0, ""),
    ("select_by", "top_4_accuracy", "one of .*did you mean"),
    ("select_by", None, ""),
    ("eval.ks", [1, 11], r"from 1 to 10 \(the classes of the data set\)"),
    ("eval.ks", [], ""),
    ("optimizer.schedule", "cosin", "did you mean 'cosine'"),
    ("optimizer.warmup_epochs", -1, ""),
    ("optimizer.clip_norm", 0, "greater than 0, or None"),
    ("optimizer.accumulation_steps", 0, ""),
    ("optimizer.average_decay", 1.0, "less than 1, or None"),
    ("eval.temperature", 1.5, "True or False"),
    ("eval.crops", 5, "1 or 10"),
    ("stop_after", 0, ""),
    ("checkpoint.every_steps", 0, ""),
    ("checkpoint.every_minutes", 0, ""),
    (
        "eval.scores",
        "sigmoid",
        "softmax with noised_balanced; sigmoid is for the multi-label losses",
    ),
    ("eval.scores", "softmx", r"one of softmax \(did you mean 'softmax'"),
    ("model.pretrained", "", ""),
    ("model.start_from", "", "a non-empty text, or None"),
    (
        "model.normalization",
        "clp",
        r"one of clip, dataset, halves, imagenet \(did you mean 'clip'.*, or None",
    ),
    ("model.freeze", 1, "True or False"),
    ("model.normalize_features", None, "True or False"),
    ("model.remat", True, "False with small_cnn; it is for networks with blocks"),
    ("model.new_head", True, "False without config.model.start_from and config"),
    ("model.head", "cosin", r"one of cosine, linear \(did you mean 'cosine'"),
    ("model.head", "two_heads", "one of cosine, linear"),
    ("model.scale", 0.0, "greater than 0, or None"),
    ("model.scale", 20.0, "None without a cosine head"),
    ("model.learn_scale", True, "False without config.model.scale"),
    ("optimizer.head_learning_rate", 0, "greater than 0, or None"),
    ("optimizer.layer_decay", 1.5, "greater than 0 and at most 1, or None"),
    ("optimizer.layer_decay", 0, "greater than 0"),
    ("optimizer.decay_biases_and_norms", 0, "True or False"),
    ("model.width", 8, "None with small_cnn; it is for mlp, ngram_bag"),
    ("model.depth", 0, "an integer from 1 to 100, or None"),
    ("model.dropout", 1.0, "less than 1, or None"),
    ("model.sync_batch_norm", 1, "True or False"),
    ("parallel", "pmpa", r"one of fsdp, mesh, pmap, shard_map \(did you mean 'pm"),
    ("class_devices", 0, "an integer of at least 1, or None"),
    ("class_devices", 2, "1 with config.parallel=pmap; it is for mesh and fsdp"),
    ("loss.label_smoothing", 1.0, "at least 0 and less than 1"),
    ("loss.class_weights", "balanced", r"one of class_balanced, none \(did"),
    ("loss.class_weights_beta", 1.0, "less than 1"),
    ("loss.class_weights_from", -0.1, "at least 0 and less than 1"),
    ("loss.class_weights_from", 0.8, "0 with config.loss.class_weights=none"),
    ("dataset.mixup", -0.1, "at least 0 and at most 1000"),
    ("dataset.sampling", "balanced", "one of class_balanced, unif"),
    ("loss.label_smoothing", 0.1, "0 with noised_balanced; it is for cross_entropy"),
]
OTHER_MISTAKES = [
    (
        "model",
        {"name": "resnet18", "freeze": True, "remat": True},
        "config.model.remat must be False with config.model.freeze",
    ),
    ("model.pretrained", "resnet18.pth", "config.model.pretrained is for networks .* 'small_cnn'"),
    ("model.head", "cosine", "model.scale must be a number with noised_balanced and a cosine head"),
    ("loss.epsilom", 0.1, "config.loss.epsilom is not a field .* did you mean 'loss.epsilon'"),
    ("optimizer", {}, "config.optimizer.learning_rate is missing"),
]


@pytest.mark.parametrize(("name", "value", "must_be"), MISTAKES)
def test_mistakes_are_refused(config, name, value, must_be):
    with pytest.raises(UserError) as raised:
        parse(changed(config, {name: value}))
    assert raised.value.field == f"config.{name}"
    assert re.search(must_be, raised.value.must_be)
    assert str(raised.value).endswith(f"; got {value!r}")


@pytest.mark.parametrize(("name", "value", "message"), OTHER_MISTAKES)
def test_mistakes_of_several_fields_are_refused(config, name, value, message):
    with pytest.raises(UserError, match=message):
        parse(changed(config, {name: value}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"class_devices": 4}, "must divide the number of classes, 10, such as 1, 2; got 4"),
        ({"class_devices": 2**62}, f"the number of classes, 10, such as 1, 2, 5, 10; got {2**62}"),
        (
            {"loss.name": "role"},
            "must be 1 with role, .*; more are for average_k, .*, cross_entropy",
        ),
        (
            {"class_devices": None, "loss.name": "role"},
            "must be 1 with role, which needs all classes .*; got None",
        ),
        ({"optimizer.name": "lamb"}, "must be one of adamw, .* with config.parallel=mesh.* 'lamb'"),
        (
            {"class_devices": None, "optimizer.name": "lamb"},
            "must be one of adamw, .* with config.parallel=mesh.* 'lamb'",
        ),
    ],
)
def test_devices_that_cannot_share_the_classes_are_refused(config, changes, message):
    for name, value in {"parallel": "mesh", "class_devices": 2}.items():
        config = changed(config, {name: value})
    parse(config)
    loss = {"weight": 1.0, "label_learning_rate": 1.0}
    for name, value in changes.items():
        config = changed(config, {name: value})
    with pytest.raises(UserError, match=message):
        parse({**config, "loss": {**config["loss"], **loss}})


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


def test_parameters_of_another_loss_are_not_checked(config):
    config = changed(config, {"loss.name": "cross_entropy"})
    parse(changed(config, {"loss.k": 100}))


def test_any_reported_accuracy_can_select(config):
    for name in ("top_3_accuracy", "macro_average_5_accuracy", "few_top_1_accuracy"):
        parse(changed(config, {"select_by": name}))


def test_a_multi_label_loss_may_give_each_class_a_probability_of_its_own(config):
    config = changed(config, {"loss.name": "average_k", "eval.scores": "sigmoid"})
    parse(config)
    with pytest.raises(UserError, match=r"temperature must be False with config\.eval\.scores=sig"):
        parse(changed(config, {"eval.temperature": True}))


def test_a_loss_of_the_batch_is_not_computed_in_parts(config):
    config = changed(config, {"optimizer.accumulation_steps": 2})
    parse(config)
    with pytest.raises(UserError, match="accumulation_steps must be 1 with average_k, a loss of"):
        parse(changed(config, {"loss.name": "average_k"}))


HEADS = [
    ("cross_entropy", {"model.head": "cosine", "model.scale": 20.0}, None),
    ("cross_entropy", {"model.head": "cosine", "model.scale": 20, "model.learn_scale": True}, None),
    ("cross_entropy", {"model.head": "linear"}, None),
    ("ldam", {"model.head": "cosine"}, None),
    ("ldam", {"model.head": "linear", "loss.scale": 1}, None),
    ("ldam", {"model.scale": 20.0, "model.learn_scale": True, "loss.scale": 1.0}, None),
    ("ldam", {"model.head": "linear"}, "loss.scale must be 1 with a linear head.*; got 20.0"),
    ("expected_imbalanced", {"model.scale": 5.0}, "loss.scale must be 1 with .*5.0.*; got 20.0"),
    ("average_k", {"model.head": "linear"}, "must be None with average_k, whose head is of the"),
]


@pytest.mark.parametrize(("loss", "changes", "message"), HEADS)
def test_any_loss_of_one_head_takes_either(config, loss, changes, message):
    for name, value in {"loss.name": loss, **changes}.items():
        config = changed(config, {name: value})
    if message is None:
        parse(config)
        return
    with pytest.raises(UserError, match=message):
        parse(config)


def test_losses_of_single_examples_are_weighted(config):
    config = changed(config, {"loss.class_weights": "class_balanced"})
    parse(changed(config, {"loss.class_weights_from": 0.8}))
    with pytest.raises(UserError, match="class_weights must be none with role, a loss of the whol"):
        parse(changed(config, {"loss.name": "role"}))


def test_labels_are_mixed_for_losses_of_single_examples(config):
    config = changed(config, {"dataset.mixup": 0.2})
    parse(config)
    with pytest.raises(UserError, match="mixup must be 0 with role, a loss of the whole batch; go"):
        parse(changed(config, {"loss.name": "role"}))


def test_a_batch_is_large_enough_for_the_quantile_of_conformal_training(config):
    """Of m = 9 calibrating examples and an error of 0.1, the rank is 9; of 8, it would be 9."""
    config["loss"] |= own_data.loss_fields("conformal_training")
    parse(changed(config, {"dataset.batch_size": 18}))
    with pytest.raises(UserError, match=r"batch_size must be at least 18 with conformal_training"):
        parse(changed(config, {"dataset.batch_size": 17}))
    for error in (0.0, math.nan):
        with pytest.raises(UserError, match=r"config\.loss\.error must be a finite number greater"):
            parse(changed(config, {"loss.error": error}))
