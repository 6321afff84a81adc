"""The step of a recipe runs, and stands beside its account in the table."""

import jax
import pytest

from benchmarks import steps_on_device
from benchmarks.compiled_steps import recipes


@pytest.fixture(autouse=True)
def _promotion():
    """Optax's schedules mix integers and floats, as they may in the program."""
    with jax.numpy_dtype_promotion("standard"):
        yield


def test_a_step_runs_and_is_accounted_for():
    found = steps_on_device.measured("features", 8, 1)
    assert found["batch"] == 8
    assert found["seconds"] > 0
    # The parameters, the momentum and the gradient of 2,048 features by 1,000 classes.
    assert found["compiled_bytes"] >= 2 * 4 * 2_048 * 1_000


def test_the_table_has_every_recipe_that_was_measured():
    account = {"batch": 64, "compile_seconds": 1.0, "compiled_bytes": 2_000_000}
    steps = {recipe: account | {"seconds": 0.5} for recipe in recipes()}
    steps["digits"] = account
    steps["images"] = {"failed": "RESOURCE_EXHAUSTED: too large"}
    machine = {"device": "gpu", "processor": "x", "cores": 1, "python": "3", "versions": {}}
    text = steps_on_device.tables({"machine": machine, "repetitions": 3, "steps": steps})
    assert text.count("| 500.00 | 128 |") == len(recipes()) - 2
    assert "| `digits` | 64 | – | – | – | 2.0 |" in text
    assert "`images`: RESOURCE_EXHAUSTED: too large" in text
