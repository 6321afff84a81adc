"""The README's example runs as it is written."""

import re
from pathlib import Path

import jax.numpy as jnp

README = Path(__file__).parents[2] / "README.md"


def test_the_loss_example_runs():
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    names = {}
    exec(compile(code, str(README), "exec"), names)
    assert jnp.isfinite(names["value"])
    assert names["gradient"].shape == (8, 100)
    assert jnp.isfinite(names["gradient"]).all()
