"""`import topk_jax`: its modules need no import of their own, and are imported when used."""

import subprocess
import sys

import pytest

import topk_jax
from topk_jax import losses


def test_modules_are_attributes():
    assert topk_jax.losses is losses
    assert {"drift", "heads", "losses", "metrics", "operators", "sets", "__version__"} <= {
        *dir(topk_jax)
    }
    with pytest.raises(AttributeError, match="'topk_jax' has no attribute 'losse'"):
        topk_jax.losse  # noqa: B018


def test_the_package_imports_jax_on_first_use():
    code = (
        "import sys, topk_jax; topk_jax.__version__; dir(topk_jax)\n"
        "assert not {'jax', 'numpy', 'train', 'configs'} & {*sys.modules}\n"
        "assert topk_jax.sets.top_k_set and topk_jax.operators.top_k_value\n"
        "assert 'jax' in sys.modules and not {'train', 'configs', 'flax'} & {*sys.modules}\n"
        "from topk_jax import *; assert losses is topk_jax.losses"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
