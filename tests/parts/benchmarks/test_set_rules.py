"""The benchmark of the rules of sets, on a law that is known."""

import json
import sys
import types

import numpy as np
import pytest

from benchmarks import set_rules
from train.data.classes import Classes
from train.scores.scores import Scores

NAMES = ("Acer a", "Acer b", "Ilex a", "Ilex b", "Ilex c")


def a_run(number):
    """What `trained.load` returns, with right probabilities."""
    rng = np.random.default_rng(0)
    scores = rng.dirichlet(np.ones(len(NAMES)), number).astype(np.float32)
    labels = (rng.random((number, 1)) < scores.cumsum(axis=1)).argmax(axis=1).astype(np.int32)
    empty, classes = np.zeros(number), Classes(NAMES, (5, 4, 3, 2, 1))
    examples = Scores(loss=empty, values=scores, labels=labels, ranks=empty, classes=classes)
    return types.SimpleNamespace(split=lambda split: examples)


def measured(run, tmp_path, monkeypatch):
    monkeypatch.setattr(set_rules.trained, "load", lambda workdir: run)
    output = tmp_path / "results.json"
    arguments = [f"a law={tmp_path}", "--repetitions=3", f"--output={output}"]
    monkeypatch.setattr(sys, "argv", ["set_rules", *arguments])
    set_rules.main()
    return json.loads(output.read_text())


def test_a_run_of_few_examples_is_refused(tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match="must have 1000 test examples"):
        measured(a_run(900), tmp_path, monkeypatch)
