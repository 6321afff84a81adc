"""The shapes and dtypes of a pytree's arrays by name, and in what two pytrees differ."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

# How many differing arrays a message names.
_MOST_NAMED = 5


def describe(tree: Any) -> dict[str, str]:
    """The dtype and shape of each array by its name: `{"params.Dense_0.bias": "float32[10]"}`."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): (
            f"{np.dtype(leaf.dtype).name}{list(leaf.shape)}"
        )
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def differences(saved: Mapping[str, str], wanted: Mapping[str, str]) -> str:
    """How the saved arrays differ from the wanted ones, for a message; empty if they do not."""
    differing = [
        f"{name} is {saved.get(name, 'not')} there and {wanted.get(name, 'not')} here"
        for name in sorted(saved.keys() | wanted.keys())
        if saved.get(name) != wanted.get(name)
    ]
    more = len(differing) - _MOST_NAMED
    return "; ".join(differing[:_MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")
