"""Rows of the same name in tests/parts that take long."""

from benchmarks import set_rules
from tests.parts.benchmarks.test_set_rules import NAMES, a_run, measured
from train.data import taxonomy


def test_the_command_measures_every_rule(tmp_path, monkeypatch):
    results = measured(a_run(2000, taxonomy.first_words(NAMES)), tmp_path, monkeypatch)
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
