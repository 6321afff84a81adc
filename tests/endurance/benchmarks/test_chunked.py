"""Rows of the same name in tests/parts that take long."""

import json
import sys

import jax
import pytest

from benchmarks import chunked


def test_the_command_measures_every_loss(tmp_path, monkeypatch):
    output = tmp_path / "results.json"
    sizes = ["--classes=300", "--timed_classes=300", "--repetitions=1"]
    monkeypatch.setattr(sys, "argv", ["chunked", *sizes, f"--output={output}"])
    chunked.main()
    results = json.loads(output.read_text())
    assert results["memory"].keys() == results["timed"].keys() == chunked.PARAMETERS.keys()
    assert results["memory"]["cross_entropy"]["weights_and_gradient"] == 2 * 4 * 128 * 300
    assert all(one.keys() == {"chunked", "plain"} for one in results["timed"].values())
    assert results["seconds"].keys() == {"cross_entropy", "noised_top_k_hinge"}


@pytest.mark.parametrize("name", chunked.PARAMETERS)
def test_xla_plans_no_array_of_the_size_of_the_weights_or_of_the_scores(name):
    num_classes = 20_000
    shapes = jax.eval_shape(lambda: chunked.batch(name, num_classes))
    program = chunked.gradient(chunked.chunked(name)).lower(*shapes).compile()
    # Blocks of 2^20 scores have 4 MB each. More classes are more blocks, and no more memory, but
    # for some numbers per class; the scores would have 40 MB more, a copy of the weights 20 MB.
    small = program.memory_analysis().temp_size_in_bytes
    larger = jax.eval_shape(lambda: chunked.batch(name, 3 * num_classes))
    program = chunked.gradient(chunked.chunked(name)).lower(*larger).compile()
    assert program.memory_analysis().temp_size_in_bytes < small + 2**20
