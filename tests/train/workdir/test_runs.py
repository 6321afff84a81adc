"""Two runs are the same if they differ by the machine alone, whichever version wrote them."""

import copy
import functools
import json
import operator

import pytest

from configs import cifar100, digits, folder, place_names, plantnet300k_average_k
from train.foundation.errors import UserError
from train.workdir.runs import (
    FIELDS_OF_THE_MACHINE,
    Run,
    added_fields,
    identity,
    identity_without_seed,
    run_name,
    with_added_fields,
)


def changed(config, name, value):
    config = copy.deepcopy(config)
    *parents, last = name.split(".")
    place = config
    for parent in parents:
        place = place[parent]
    place[last] = value
    return config


def of_an_earlier_version(config):
    """As `config.json` had it before the first of the fields that were added since."""
    config = copy.deepcopy(config)
    for name in added_fields(config):
        *groups, field = name.split(".")
        functools.reduce(operator.getitem, groups, config).pop(field, None)
    return config


@pytest.fixture
def config():
    return with_added_fields(json.loads(digits.get_config().to_json()))


# Written by the version before the fields that were added since.
NAMES = [
    (digits, "cross_entropy", "digits-cross_entropy-d3f4d7e3"),
    (digits, "noised_balanced", "digits-noised_balanced-5921683f"),
    (cifar100, "smooth_top_k_hinge", "cifar100-smooth_top_k_hinge-96ba8b58"),
    (plantnet300k_average_k, "average_k", "plantnet300k-average_k-6c68de55"),
]


@pytest.mark.parametrize(("recipe", "loss", "name"), NAMES)
def test_a_run_of_an_earlier_version_is_found_by_its_name(recipe, loss, name):
    config = json.loads(recipe.get_config(loss).to_json())
    assert run_name(of_an_earlier_version(config)) == name
    assert run_name(with_added_fields(config)) == name


def test_a_run_on_names_of_an_earlier_version_is_the_same_run():
    config = json.loads(place_names.get_config("ldam").to_json())
    earlier = copy.deepcopy(config)
    for name in ("fewest_names", "balanced_per_class", "train_size"):
        assert earlier["dataset"].pop(name) is None
    assert run_name(earlier) == run_name(config) == "place_names-ldam-c74d8b42"
    assert identity(earlier) == identity(config)
    assert with_added_fields(earlier)["dataset"] == config["dataset"]
    # No other data set has them.
    assert "dataset.fewest_names" not in identity(json.loads(digits.get_config().to_json()))


def test_a_run_on_own_images_of_an_earlier_version_is_the_same_run():
    config = json.loads(folder.get_config("focal").to_json())
    config["dataset"]["path"] = "photos"
    earlier = copy.deepcopy(config)
    for name in ("train_per_class", "imbalance_factor", "label_noise", "label_noise_kind"):
        earlier["dataset"].pop(name)
    # Without noise, its kind has no meaning.
    other = changed(config, "dataset.label_noise_kind", "across")
    for same in (earlier, other):
        assert run_name(same) == run_name(config) == "folder-focal-81668da0"
        assert identity(same) == identity(config)
    assert with_added_fields(earlier)["dataset"] == config["dataset"]
    assert run_name(changed(config, "dataset.label_noise", 0.1)) != run_name(config)


def test_a_run_that_leaves_images_out_is_found_by_its_name():
    """So that it goes on when that is asked for later, without a --workdir."""
    config = json.loads(folder.get_config("focal").to_json())
    config["dataset"]["path"] = "photos"
    for name, value in (("skip_unreadable", True), ("check_images", "all")):
        config["dataset"][name] = value
        assert run_name(config) == "folder-focal-81668da0"


def noisy(probability, kind):
    config = json.loads(cifar100.get_config("cross_entropy").to_json())
    config["dataset"] |= {"label_noise": probability, "label_noise_kind": kind}
    return config


def test_the_kind_of_label_noise_has_a_meaning_with_label_noise_alone():
    default = json.loads(cifar100.get_config("cross_entropy").to_json())
    for kind in ("superclass", "blocks", "across"):
        # The default was superclass in earlier versions.
        assert run_name(noisy(0.0, kind)) == "cifar100-cross_entropy-8bb1164f"
        assert identity(noisy(0.0, kind)) == identity(default)
    assert run_name(noisy(0.2, "superclass")) == "cifar100-cross_entropy-d84ccd73"
    assert run_name(noisy(0.2, "blocks")) == "cifar100-cross_entropy-88a7014b"
    assert identity(noisy(0.2, "superclass")) != identity(noisy(0.2, "blocks"))


@pytest.mark.parametrize(
    ("name", "value"),
    [("seed", 1), ("optimizer.name", "adamw"), ("dataset.data_dir", "/data")],
)
def test_run_names_tell_configurations_apart(config, name, value):
    assert run_name(config) == run_name(copy.deepcopy(config))
    assert run_name(config) != run_name(changed(config, name, value))


def test_a_configuration_of_an_earlier_version_is_the_same_run(config):
    earlier = of_an_earlier_version(config)
    # Its networks were not frozen, and had features as they are.
    assert with_added_fields(earlier) == changed(config, "model.normalize_features", False)
    assert identity(earlier) == identity(config)


def test_normalized_features_have_a_meaning_with_a_frozen_network_alone(config):
    for frozen in (False, True):
        runs = [
            changed(changed(config, "model.freeze", frozen), "model.normalize_features", normalized)
            for normalized in (False, True)
        ]
        # A frozen run of an earlier version is another one.
        for of_run in (run_name, identity):
            assert (of_run(runs[0]) != of_run(runs[1])) is frozen


def test_added_fields_keep_the_values_that_a_configuration_has(config):
    config = changed(changed(config, "optimizer.name", "adamw"), "compilation_cache", False)
    assert with_added_fields(config) == config
    assert identity(config)["optimizer.name"] == "adamw"


@pytest.mark.parametrize("config", [{}, {"optimizer": 3}])
def test_what_is_no_configuration_is_left_for_its_check(config):
    assert with_added_fields(config) == {
        **config,
        "compilation_cache": True,
        "class_devices": None,
    }


def test_no_field_of_the_machine_makes_another_run(config):
    for name in FIELDS_OF_THE_MACHINE:
        assert identity(changed(config, name, "elsewhere")) == identity(config)


def test_seeds_of_one_experiment_differ_by_the_seed_alone(config):
    other = changed(config, "seed", 1)
    assert identity(other) != identity(config)
    assert identity_without_seed(other) == identity_without_seed(config)
    other = changed(other, "loss.k", 1)
    assert identity_without_seed(other) != identity_without_seed(config)


# A run on disk


def test_a_run_is_read_from_its_configuration_and_finished_with_its_results(tmp_path, config):
    assert Run.read(tmp_path) is None
    (tmp_path / "config.json").write_text(json.dumps(of_an_earlier_version(config)))
    run = Run.read(tmp_path)
    assert run.fields["optimizer.name"] == "sgd"
    assert not run.is_finished
    with pytest.raises(UserError, match="has no finished run"):
        _ = run.results
    (tmp_path / "results.json").write_text(json.dumps({"config": config, "test": {"loss": 1.0}}))
    run = Run.read(tmp_path)
    assert run.is_finished
    assert run.results["test"] == {"loss": 1.0}
    # Where the results alone were copied to, they say of what run they are.
    (tmp_path / "config.json").unlink()
    assert Run.read(tmp_path).key == run.key


def test_what_is_no_configuration_is_named(tmp_path):
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(UserError, match=r"config\.json is not the configuration of a run"):
        Run.read(tmp_path)
