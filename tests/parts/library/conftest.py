"""Fixtures for the tests of the library."""

from collections.abc import Iterator
from typing import Any

import jax
import pytest


@pytest.fixture
def monkeypatch(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """As of pytest. What JAX traced before a change is not taken after it."""
    change = monkeypatch.setattr
    changes = []

    def set_and_forget(*args: Any, **kwargs: Any) -> None:
        change(*args, **kwargs)
        jax.clear_caches()
        changes.append(args)

    monkeypatch.setattr = set_and_forget  # type: ignore[method-assign]
    yield monkeypatch
    if changes:
        jax.clear_caches()
