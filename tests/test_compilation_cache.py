"""What XLA compiles for the tests is kept, within bounds."""

import os

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.compilation_cache import compilation_cache as compilation_cache_of_jax

from tests import compilation_cache


def test_what_the_environment_says_wins():
    chosen = {"JAX_COMPILATION_CACHE_DIR": "/chosen", "XDG_CACHE_HOME": "/cache"}
    assert compilation_cache.settings(chosen)["JAX_COMPILATION_CACHE_DIR"] == "/chosen"
    del chosen["JAX_COMPILATION_CACHE_DIR"]
    folder = compilation_cache.settings(chosen)["JAX_COMPILATION_CACHE_DIR"]
    assert folder.startswith(f"/cache/topk_jax/tests/jax-{jax.__version__}-jaxlib-")


def test_the_entries_read_last_are_kept_within_bounds(tmp_path, monkeypatch):
    monkeypatch.setattr(compilation_cache, "MOST_BYTES", 250)
    folder = tmp_path / "topk_jax" / "tests" / "jax"
    folder.mkdir(parents=True)
    for name, read in (("old", 1), ("new", 3), ("middle", 2)):
        (folder / name).write_bytes(bytes(100))
        os.utime(folder / name, (read, read))
    compilation_cache.prune({"XDG_CACHE_HOME": str(tmp_path)})
    assert {file.name for file in folder.iterdir()} == {"new", "middle"}


def test_half_an_entry_is_compiled_again(tmp_path):
    def doubled(x):
        return 2 * x

    x = jnp.arange(3.0)
    expected = doubled(x)
    settings = compilation_cache.settings({"XDG_CACHE_HOME": str(tmp_path)})
    before = jax.config.jax_compilation_cache_dir
    try:
        compile_into(settings["JAX_COMPILATION_CACHE_DIR"])
        jax.jit(doubled)(x)
        (entry,) = tmp_path.glob("topk_jax/tests/*/jit_doubled-*-cache")
        entry.write_bytes(entry.read_bytes()[:100])
        jax.clear_caches()
        with pytest.warns(UserWarning, match=compilation_cache.WARNING):
            assert jax.jit(doubled)(x).tolist() == expected.tolist()
    finally:
        compile_into(before)


def compile_into(folder):
    jax.config.update("jax_compilation_cache_dir", folder)
    compilation_cache_of_jax.reset_cache()
