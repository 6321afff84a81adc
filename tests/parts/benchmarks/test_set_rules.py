"""The benchmark of the rules of sets, on a law that is known."""

import json
import sys
import types

import numpy as np
import pytest

from benchmarks import set_rules
from train.evaluation.class_tree import ClassTree
from train.evaluation.predictions import Predictions

NAMES = ("Acer a", "Acer b", "Ilex a", "Ilex b", "Ilex c")


def a_run(number, ranks):
    """What `trained.load` returns, with right probabilities."""
    rng = np.random.default_rng(0)
    scores = rng.dirichlet(np.ones(len(NAMES)), number).astype(np.float32)
    labels = (rng.random((number, 1)) < scores.cumsum(axis=1)).argmax(axis=1).astype(np.int32)
    empty = np.zeros(number)
    examples = Predictions(loss=empty, scores=scores, labels=labels, ranks=empty)
    return types.SimpleNamespace(
        predict=lambda split: examples,
        num_classes=len(NAMES),
        class_counts=np.array([5, 4, 3, 2, 1]),
        tree=None if ranks is None else ClassTree.of(ranks, NAMES),
    )


def measured(run, tmp_path, monkeypatch):
    monkeypatch.setattr(set_rules.trained, "load", lambda workdir: run)
    output = tmp_path / "results.json"
    arguments = [f"a law={tmp_path}", "--repetitions=3", f"--output={output}"]
    monkeypatch.setattr(sys, "argv", ["set_rules", *arguments])
    set_rules.main()
    return json.loads(output.read_text())


def test_the_runs_share_a_table_with_macro_coverages_where_these_differ():
    def run(**rules):
        keys = ("coverage", "macro_coverage", "size")
        made = {
            rule: {key: [value, 0.001] for key, value in zip(keys, values, strict=True)}
            for rule, values in rules.items()
        }
        return {"classes": 2, "examples": 500, "rules": made}

    runs = {
        "tail": run(lac=(0.9, 0.7, 1.5), margin=(0.91, 0.906, 2)),
        "flat": run(lac=(0.9, 0.899, 1)),
    }
    assert set_rules.tables({"data": runs}).splitlines()[2:] == [
        "| sets | 1: coverage | 1: macro | 1: size | 2: coverage | 2: size |",
        "| --- | --- | --- | --- | --- | --- |",
        "| lac | 90.0% | 70.0% | 1.50 | 90.0% | 1.00 |",
        "| margin | 91.0% | 90.6% | 2.00 | – | – |",
    ]


def test_a_run_of_few_examples_is_refused(tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match="must have 1000 test examples"):
        measured(a_run(900, None), tmp_path, monkeypatch)
