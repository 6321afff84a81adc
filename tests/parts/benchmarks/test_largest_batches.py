"""The largest batch of a recipe is what a plan finds, from where the committed account points."""

import jax
import pytest

from benchmarks import accounts, largest_batches
from train.planning.targets import Target


@pytest.mark.parametrize("start", [None, 2**20])
def test_the_largest_batch_fits_wherever_the_search_starts(monkeypatch, start):
    monkeypatch.setattr(largest_batches, "_first_batch", lambda *_, **__: start)
    target = Target("one", "cpu", 2**28, jax.devices()[:1])
    # Of optax, whose step schedule compares floats with integers.
    with jax.numpy_dtype_promotion("standard"):
        found = largest_batches._largest("synthetic_latents", target, is_half=False)
    assert found["needed"] <= target.memory
    assert 100 < found["batch"] < found["too_large"] <= found["batch"] * 9 // 8


def test_the_search_starts_where_the_committed_account_points():
    # It needs 0.29 GB beside 18 MB for each of 256 examples.
    memory = 10_000_000_000
    first = largest_batches._first_batch(
        "imagenet", Target("h100", "cuda", memory, []), is_half=False
    )
    assert 256 < first < 2 * 256 * memory / 4_950_000_000
    v5p = Target("v5p", "tpu", memory, [])
    assert largest_batches._first_batch("imagenet", v5p, is_half=False) < first
    assert largest_batches._first_batch("unknown", v5p, is_half=False) is None


def test_the_search_in_bfloat16_starts_where_the_one_in_float32_ended():
    in_full = accounts.committed("largest_batches", "chips")["folder, h100, float32"]["batch"]
    h100 = Target("h100", "cuda", 10_000_000_000, [])
    first = largest_batches._first_batch("folder", h100, is_half=True)
    assert in_full < first < 2 * in_full


def test_recipes_of_images_have_both_precisions():
    assert largest_batches._precisions("imagenet") == ["float32", "bfloat16"]
    assert largest_batches._precisions("features") == ["float32"]


def test_the_table_has_batches_reasons_and_dashes():
    programs = {
        "digits, v5e, float32": {"batch": 4096},
        "digits, h100, bfloat16": {"failed": "no batch fits"},
    }
    machine = {"device": "cpu", "processor": "A", "cores": 1, "python": "3", "versions": {}}
    text = largest_batches.tables({"machine": machine, "programs": programs})
    assert "| `digits` | 64 | 4,096 | – | – | – | – | no batch fits |" in text
    # No search of this recipe has run, and one of features has no second precision.
    assert "| `features` | 256 | – |  | – |  | – |  |" in text
