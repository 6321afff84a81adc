"""The runs of a figure: results that cannot be read are reported."""

import pytest
from absl import logging

from tests.parts.program.papers.finished_runs import make_run
from train.foundation.errors import UserError
from train.papers.figures import selection


def test_a_run_whose_results_are_damaged_is_told(tmp_path, monkeypatch):
    warned = []
    monkeypatch.setattr(logging, "warning", lambda *words: warned.append(words[0] % words[1:]))
    make_run(tmp_path / "a")
    (make_run(tmp_path / "b", seed=1) / "results.json").write_text("[]")
    (tmp_path / "notes.txt").write_text("mine")
    assert [run.workdir.name for run in selection.find(str(tmp_path))] == ["a"]
    (message,) = warned
    assert message.startswith(f"left out: {tmp_path}/b/results.json is not the results of a run")
    # With a configuration it is a run for certain, without which the figure would be another.
    (tmp_path / "b" / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"b/results\.json is not the results of a run: it must be"):
        selection.find(str(tmp_path))
