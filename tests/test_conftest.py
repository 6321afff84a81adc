"""The strict settings are really in force."""

import tempfile
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest


def test_there_are_eight_devices():
    assert jax.device_count() == 8


def test_dtype_promotion_is_strict():
    with pytest.raises(Exception, match="promotion"):
        jnp.ones(2, jnp.float32) + jnp.ones(2, jnp.int32)


def test_rank_promotion_is_refused():
    with pytest.raises(ValueError, match="rank"):
        jnp.ones((2, 2)) + jnp.ones(2)


def test_warnings_are_errors():
    with pytest.raises(UserWarning, match="loud"):
        warnings.warn("loud", stacklevel=1)


def test_temporary_files_are_among_those_that_pytest_deletes(tmp_path_factory):
    assert Path(tempfile.gettempdir()).is_relative_to(tmp_path_factory.getbasetemp())
