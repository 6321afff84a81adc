"""Each benchmark runs with its smallest sizes, and the committed results are what it writes."""

import importlib
import json
import re
import sys

import jax
import pytest

from benchmarks import table

# Every file of results, and the benchmark that the page names for it.
COMMITTED = [(file, name) for _, name, file, _ in table._PLACE.findall(table.PAGE.read_text())]
# Only with other packages, which are not in this environment.
OF_PEERS = {"pytopk", "their_value"}


def written(name, tmp_path, monkeypatch):
    """What the benchmark writes with `--smoke`."""
    output = tmp_path / "results.json"
    monkeypatch.setattr(sys, "argv", [name, "--smoke", f"--output={output}"])
    # As of users: drawn numbers mix types.
    with jax.numpy_dtype_promotion("standard"):
        importlib.import_module(f"benchmarks.{name}").main()
    results = json.loads(output.read_text())
    assert "| " in importlib.import_module(f"benchmarks.{name}").tables(results)
    return without_machine(results)


def committed(file):
    return without_machine(json.loads((table.RESULTS / file).read_text()))


def without_machine(results):
    return {name: value for name, value in results.items() if name != "machine"}


def fields(results):
    """The names of the format in results, wherever they are; not those of losses and rules."""
    inside = results.values() if isinstance(results, dict) else results
    found = {key for key in results if re.fullmatch("[a-z_]+|[KM]", str(key))}
    for value in inside:
        if isinstance(value, dict | list):
            found |= fields(value)
    return found


def test_the_page_has_the_tables_of_all_results():
    text = table.PAGE.read_text()
    assert table.filled(text) == text
    assert {file for file, _ in COMMITTED} == {path.name for path in table.RESULTS.iterdir()}


@pytest.mark.parametrize(
    "name", ["noised_loss", "peers", "train_step", "input_pipeline", "deployment"]
)
def test_a_benchmark_writes_what_is_committed(name, tmp_path, monkeypatch):
    results = written(name, tmp_path, monkeypatch)
    own = [fields(committed(file)) - OF_PEERS for file, of in COMMITTED if of == name]
    assert own
    for names in own:
        assert names <= fields(results)


def test_rules_of_sets_cover_what_they_promise(tmp_path, monkeypatch):
    results = written("set_rules", tmp_path, monkeypatch)
    (of_law,), (of_features,) = (
        one["data"].values() for one in (results, committed("set_rules-cpu.json"))
    )
    assert set(of_features["rules"]) <= set(of_law["rules"])
    assert fields(of_features) == fields(of_law)
    for rule in ("`lac`", "`aps`", "`margin`", "`pas`", 'score "rank"'):
        # Means of two halves of 500 examples, each calibrated on as many: a deviation of 0.013.
        assert of_law["rules"][rule]["coverage"][0] > 0.85
    assert of_law["rules"]["`top_k_set`, k = 5"]["size"] == [5, 0]


def test_losses_have_the_values_of_their_authors():
    for row in committed("peers-cpu.json")["losses"]:
        for name, one in row["losses"].items():
            # The noise of one loss is drawn.
            if "their_value" in one and name != "noised_top_k_hinge":
                assert one["value"] == pytest.approx(one["their_value"], rel=1e-4)
