"""Two runs are the same if only the machine differs."""

import copy
import functools
import json
import operator

import pytest

from configs import cifar100, digits, images
from tests.parts.program.configurations import changed
from train.foundation.errors import UserError
from train.workdir.runs import (
    FIELDS_OF_THE_MACHINE,
    Run,
    identity,
    identity_without_seed,
    key,
    run_name,
)


@pytest.fixture
def config():
    return json.loads(digits.get_config().to_json())


def of_photos(**fields):
    config = json.loads(images.get_config("focal").to_json())
    config["dataset"] |= {"path": "photos", **fields}
    return config


def test_a_field_with_its_default_is_not_in_the_name(config):
    config = changed(config, {"optimizer.decay_epochs": []})
    for name in ("optimizer.decay_epochs", "optimizer.name", "model.width", "compilation_cache"):
        left_out = copy.deepcopy(config)
        *groups, field = name.split(".")
        del functools.reduce(operator.getitem, groups, left_out)[field]
        assert run_name(left_out) == run_name(config)
        assert run_name(changed(config, {name: "other"})) != run_name(config)


def test_a_run_that_leaves_images_out_is_found_by_its_name():
    """So that the option can be added later, without a --workdir."""
    assert run_name(of_photos(skip_unreadable=True)) == run_name(of_photos())
    assert run_name(of_photos(label_noise=0.1)) != run_name(of_photos())


def noisy(probability, kind):
    config = json.loads(cifar100.get_config("cross_entropy").to_json())
    config["dataset"] |= {"label_noise": probability, "label_noise_kind": kind}
    return config


def test_the_kind_of_label_noise_has_a_meaning_with_label_noise_alone():
    default = json.loads(cifar100.get_config("cross_entropy").to_json())
    for kind in ("superclass", "blocks", "uniform"):
        assert run_name(noisy(0.0, kind)) == run_name(default)
        assert identity(noisy(0.0, kind)) == identity(default)
    assert run_name(noisy(0.2, "superclass")) != run_name(noisy(0.2, "blocks"))
    assert identity(noisy(0.2, "superclass")) != identity(noisy(0.2, "blocks"))


@pytest.mark.parametrize(
    ("name", "value"),
    [("seed", 1), ("optimizer.name", "adamw"), ("dataset.data_dir", "/data")],
)
def test_run_names_tell_configurations_apart(config, name, value):
    assert run_name(config) == run_name(copy.deepcopy(config))
    assert run_name(config) != run_name(changed(config, {name: value}))


def test_normalized_features_have_a_meaning_with_a_frozen_network_alone(config):
    for frozen in (False, True):
        runs = [
            changed(config, {"model.freeze": frozen, "model.normalize_features": normalized})
            for normalized in (False, True)
        ]
        for of_run in (run_name, identity):
            assert (of_run(runs[0]) != of_run(runs[1])) is frozen


def test_no_field_of_the_machine_makes_another_run(config):
    for name in FIELDS_OF_THE_MACHINE:
        assert identity(changed(config, {name: "elsewhere"})) == identity(config)


def test_a_recipe_may_have_an_integer_where_a_run_writes_a_real_number(config):
    recipe, written = (changed(config, {"optimizer.weight_decay": zero}) for zero in (0, 0.0))
    assert key(recipe) == key(written)


def test_seeds_of_one_experiment_differ_by_the_seed_alone(config):
    other = changed(config, {"seed": 1})
    assert identity(other) != identity(config)
    assert identity_without_seed(other) == identity_without_seed(config)
    other = changed(other, {"loss.k": 1})
    assert identity_without_seed(other) != identity_without_seed(config)


# A run on disk


def test_a_run_is_read_from_its_configuration_and_finished_with_its_results(tmp_path, config):
    assert Run.read(tmp_path) is None
    (tmp_path / "config.json").write_text(json.dumps(config))
    run = Run.read(tmp_path)
    assert run.fields["optimizer.name"] == "sgd"
    assert not run.is_finished
    with pytest.raises(UserError, match="has no finished run"):
        _ = run.results
    (tmp_path / "results.json").write_text(json.dumps({"config": config, "test": {"loss": 1.0}}))
    run = Run.read(tmp_path)
    assert run.is_finished
    assert run.results["test"] == {"loss": 1.0}
    # If only the results were copied, they contain the run that they belong to.
    (tmp_path / "config.json").unlink()
    assert Run.read(tmp_path).key == run.key
