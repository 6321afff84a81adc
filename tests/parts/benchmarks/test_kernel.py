"""The benchmark of the kernel, at its smallest shape."""

import json
import sys

from benchmarks import kernel


def test_the_command_measures_both(tmp_path, monkeypatch):
    output = tmp_path / "results.json"
    arguments = ["kernel", "--smallest", "--repetitions=1", f"--output={output}"]
    monkeypatch.setattr(sys, "argv", arguments)
    kernel.main()
    (row,) = json.loads(output.read_text())["rows"]
    assert row["seconds"].keys() == {"xla", "pallas"}
    assert row["examples_with_another_gradient"] == 0
