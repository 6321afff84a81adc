"""Rows of the same name in tests/parts that take long."""

import json
import sys

from benchmarks import calibrated_losses


def test_the_command_measures_every_loss(tmp_path, monkeypatch):
    output = tmp_path / "results.json"
    monkeypatch.setattr(sys, "argv", ["calibrated", "--repetitions=1", f"--output={output}"])
    calibrated_losses.main()
    results = json.loads(output.read_text())
    assert all(gap > 0 for gap in results["gaps"]["2"]["cross_entropy"])
    assert "`top_k_hinge`" in calibrated_losses.tables(results)
