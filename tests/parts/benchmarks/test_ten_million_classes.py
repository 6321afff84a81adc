"""The memory of a large head is that of its step, on one chip and on several."""

import jax
import pytest

from benchmarks import ten_million_classes
from train.planning.targets import Target


@pytest.fixture(autouse=True)
def few_classes(monkeypatch):
    monkeypatch.setattr(ten_million_classes, "CLASSES", 4_000)


def test_one_chip_keeps_the_head_and_its_momentum():
    target = Target("one", "cpu", 2**30, jax.devices()[:1])
    found = ten_million_classes._on_one("cross_entropy", target, 64)
    # The weights and the momentum, of three arrays with the gradient.
    assert found["arguments"] >= found["head"] * 2 // 3
    assert found["needed"] >= found["head"]


def test_chips_share_the_classes():
    target = Target("four:4", "cpu", 2**30, jax.devices()[:4])
    # Of optax, whose step schedule compares floats with integers.
    with jax.numpy_dtype_promotion("standard"):
        found = ten_million_classes._on_several("cross_entropy", target, 64)
    kept = found["parts"]["params"] + found["parts"]["opt_state"]
    # Of four arrays with the gradient, and the small layer below.
    assert found["head"] * 3 // 4 <= kept <= found["head"] * 0.8
    assert found["needed"] >= found["head"]


def test_the_table_has_the_arithmetic_beside_the_memory():
    found = {"head": 10e9, "arguments": 8e9, "temporary": 6e9, "needed": 13e9}
    machine = {"device": "cpu", "processor": "A", "cores": 1, "python": "3", "versions": {}}
    programs = {
        "cross_entropy, h100:8, 512": found,
        "cross_entropy, v5e, 512": {"failed": "no space"},
    }
    text = ten_million_classes.tables({"machine": machine, "programs": programs})
    assert "| `cross_entropy` | h100:8 | 512 | 10.00 | 8.00 | 6.00 | 13.00 |" in text
    assert "| `heads.cross_entropy` | v5e | 512 | – | no space |  |  |" in text
