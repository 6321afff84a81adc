"""The benchmark of sets takes the time of every rule, with few classes."""

import json
import sys

import jax

from benchmarks import set_construction


def test_the_command_takes_the_time_of_every_rule(tmp_path, monkeypatch):
    output = tmp_path / "results.json"
    monkeypatch.setattr(set_construction, "_BLOCK", 2)
    sizes = ["--classes=30", "--examples=5", "--repetitions=1"]
    monkeypatch.setattr(sys, "argv", ["set_construction", *sizes, f"--output={output}"])
    # As of users: the softmax of drawn numbers mixes types.
    with jax.numpy_dtype_promotion("standard"):
        set_construction.main()
    results = json.loads(output.read_text())
    # Complete blocks only.
    assert (results["examples"], results["classes"], results["block"]) == (4, 30, 2)
    names = ["top_k_set", "threshold_set", "adaptive_set", "utility_set", "conformal_set, pas"]
    assert results["seconds"].keys() >= set(names)
    assert all(seconds > 0 for seconds in results["seconds"].values())
    rows = set_construction.tables(results).splitlines()
    assert sum(row.startswith("| `") for row in rows) == len(results["seconds"])
    assert any(row.startswith("| `top_k_set` |") and row.endswith("| 1.00 |") for row in rows)
