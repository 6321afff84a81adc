"""Compiled programs are kept between runs, within bounds, and serve other seeds and rates."""

import json
import os

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.compilation_cache import compilation_cache as compilation_cache_of_jax

from configs import digits
from tests.rows import rows
from train import experiment
from train.devices import compilation_cache


def test_what_the_environment_says_wins():
    chosen = {"JAX_COMPILATION_CACHE_DIR": "/chosen", "XDG_CACHE_HOME": "/cache"}
    assert compilation_cache.settings(chosen)["JAX_COMPILATION_CACHE_DIR"] == "/chosen"
    del chosen["JAX_COMPILATION_CACHE_DIR"]
    folder = compilation_cache.settings(chosen)["JAX_COMPILATION_CACHE_DIR"]
    assert folder.startswith(f"/cache/topk_jax/compiled/jax-{jax.__version__}-jaxlib-")


def test_the_entries_read_last_are_kept_within_bounds(tmp_path, monkeypatch):
    monkeypatch.setattr(compilation_cache, "_MOST_BYTES", 250)
    folder = tmp_path / "topk_jax" / "compiled" / "jax"
    folder.mkdir(parents=True)
    for name, read in (("old", 1), ("new", 3), ("middle", 2)):
        (folder / name).write_bytes(bytes(100))
        os.utime(folder / name, (read, read))
    compilation_cache.prune({"XDG_CACHE_HOME": str(tmp_path)})
    assert {file.name for file in folder.iterdir()} == {"new", "middle"}


def test_half_an_entry_is_compiled_again(tmp_path):
    def compiled():
        def doubled(x):
            return 2 * x

        # Another function, which JAX compiles again, to the same entry.
        return jax.jit(doubled)(jnp.arange(3.0)).tolist()

    settings = compilation_cache.settings({"XDG_CACHE_HOME": str(tmp_path)})
    before = jax.config.jax_compilation_cache_dir
    try:
        compile_into(settings["JAX_COMPILATION_CACHE_DIR"])
        expected = compiled()
        (entry,) = tmp_path.glob("topk_jax/compiled/*/jit_doubled-*-cache")
        entry.write_bytes(entry.read_bytes()[:100])
        with pytest.warns(UserWarning, match=compilation_cache._WARNINGS[0]):
            assert compiled() == expected
    finally:
        compile_into(before)


def compile_into(folder):
    jax.config.update("jax_compilation_cache_dir", folder)
    compilation_cache_of_jax.reset_cache()


@pytest.mark.parametrize("loss", rows(["noised_imbalanced"], ["role"]))
def test_other_numbers_of_a_recipe_are_no_other_programs(loss, tmp_path, standard_promotion):
    config = json.loads(digits.get_config(loss).to_json())
    config["num_epochs"] = 1
    config["model"]["name"] = "mlp"
    others = {
        "epsilon": 0.5,
        "max_margin": 0.3,
        "scale": 30.0,
        "weight": 0.02,
        "label_learning_rate": 2.0,
    }
    before = jax.config.jax_compilation_cache_dir
    compile_into(str(tmp_path / "compiled"))
    try:
        experiment.run(config, tmp_path / "run")
        compiled = {file.name for file in (tmp_path / "compiled").glob("*-cache")}
        config["seed"] = 1
        config["loss"] |= {name: others[name] for name in config["loss"].keys() & others}
        config["optimizer"] |= {"learning_rate": 0.02, "momentum": 0.8, "weight_decay": 1e-3}
        experiment.run(config, tmp_path / "other")
        again = {file.name for file in (tmp_path / "compiled").glob("*-cache")}
    finally:
        compile_into(before)
    # The name of what jax.pmap compiles: the steps of training and of evaluation.
    assert sum(name.startswith("jit__fun-") for name in compiled) == 2
    assert again == compiled
