"""The benchmark of the rules of sets, on a law that is known."""

import json
import sys
import types

import numpy as np
import pytest

from benchmarks import set_rules
from train.evaluation.class_tree import ClassTree
from train.evaluation.predictions import Predictions
from train.foundation.ranks import Ranks

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


@pytest.mark.long
def test_the_command_measures_every_rule(tmp_path, monkeypatch):
    genera = Ranks(("genus", "species"), tuple((name.split()[0],) for name in NAMES))
    results = measured(a_run(2000, genera), tmp_path, monkeypatch)
    found = results["data"]["a law"]["rules"]
    # The halves have 1,000 examples: a deviation of 0.013 between them, and a mean of three.
    for rule in ("`lac`", "`aps`", "`margin`", "`pas`", "`taxonomic`", 'score "aps", with a key'):
        assert found[rule]["coverage"][0] > 0.87
    for rule in ("`lac`", 'score "aps", with a key', "`average_error_threshold`"):
        assert found[rule]["coverage"][0] < 0.93
    assert found["`top_k_set`, k = 5"]["size"] == [5, 0]
    assert found["`taxonomic`"]["names"] == [1, 0]
    assert found["`lac`"]["size"][0] < found["`taxonomic`"]["size"][0]
    assert set_rules.tables(results).count("\n| ") == 2 + len(found)


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
