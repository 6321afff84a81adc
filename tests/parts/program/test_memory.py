"""A run whose network, labels or data do not fit into memory ends before these are made."""

import json

import pytest

from configs import digits, synthetic_latents
from train.assembly import assemble
from train.assembly.parts import Assembly
from train.configuration.parsing import parse
from train.data.synthetic import SyntheticSpec
from train.foundation import host_memory
from train.foundation.errors import UserError


def config_of(recipe, **model):
    config = json.loads(recipe.to_json())
    config["model"] |= model
    return config


def test_a_network_is_refused_before_the_data_set_is_opened(monkeypatch):
    def load(*_arguments, **_options):
        raise AssertionError("opened")

    monkeypatch.setattr(SyntheticSpec, "load", load)
    # Also for a width and a depth whose product overflows 64 bits.
    config = config_of(synthetic_latents.get_config(), width=10**9, depth=20)
    with pytest.raises(UserError, match=r"parameters of config.model, .* EB of memory; this mach"):
        assemble(parse(config))


@pytest.mark.parametrize(("optimizer", "copies"), [("sgd", 2), ("adamw", 3)])
def test_the_state_of_the_optimizer_and_averages_are_counted(monkeypatch, optimizer, copies):
    config = config_of(digits.get_config("cross_entropy"), name="linear")
    config["optimizer"] |= {"name": optimizer, "average_decay": 0.9}
    # Each copy is of 64 times 10 weights and 10 biases. A few counts of steps are left.
    least = (copies + 1) * (64 * 10 + 10) * 4
    monkeypatch.setattr(host_memory, "_physical", lambda: least + 100)
    Assembly(parse(config), None, None).check_memory()
    monkeypatch.setattr(host_memory, "_physical", lambda: least)
    with pytest.raises(UserError, match=r"^the 650 parameters of config.model, with the state of"):
        Assembly(parse(config), None, None).check_memory()
