"""The programs of the account are those of the cases, on each device."""

import json

import jax
import pytest

from benchmarks import compiled, compiled_steps
from benchmarks.table import RESULTS


def test_every_case_has_its_programs():
    def wanted(public, classes):
        found = compiled._wanted("h100", [public], classes, (1, 5))
        return [(one.num_classes, one.rank) for one in found.values() if one.case == public]

    assert wanted("losses.average_k", (100, 1000)) == [(100, 1), (100, 5), (1000, 1), (1000, 5)]
    assert wanted("losses.cross_entropy", (100,)) == [(100, None)]


def test_only_tpus_have_the_kernel():
    kernel = "losses.noised_top_k_hinge-by a kernel"
    assert [kernel in compiled._cases_of(device) for device in ("v5e", "h100")] == [True, False]


@pytest.mark.parametrize("device", ["v5e", "h100"])
def test_what_sorts_has_a_reason_and_selects_no_classes(device):
    programs = json.loads((RESULTS / f"compiled-{device}.json").read_text())["programs"]
    rows = list(compiled._ordered(programs))
    assert [row for row in rows if len(row) != 3] == []
    # NeuralSort ranks all classes, whatever K. A compiler of TPUs orders the places of a gradient.
    with_rank = {name.split(",")[0] for name in programs if "K" in name}
    selecting = [row for row in rows if row[2] != compiled._SELECTED]
    sorting = {row[0].strip("`") for row in selecting} & with_rank
    assert sorting <= {"operators.relaxed_ranks-neural_sort"}


def test_the_table_says_what_is_not_compiled():
    programs = dict(compiled._wanted("h100", [], compiled.CLASSES, compiled.RANKS))
    assert list(compiled._missing({"device": "h100", "programs": programs})) == []
    for rank in (1, 20):
        del programs[f"losses.average_k, 100, K {rank}"]
    (line,) = compiled._missing({"device": "h100", "programs": programs})
    assert line.endswith("not compiled so far: 2 of `losses.average_k`.")


@pytest.mark.parametrize("device", ["v5e", "h100"])
def test_steps_that_sort_have_a_reason(device):
    results = json.loads((RESULTS / f"compiled_steps-{device}.json").read_text())
    rows = list(compiled_steps._ordered(results["programs"]))
    assert [row for row in rows if len(row) != 4] == []
    steps = [name.split(", ") for name in results["programs"]]
    for chips in compiled_steps.CHIPS[device]:
        assert {step[0] for step in steps if chips in step} <= set(compiled_steps.recipes())


@pytest.mark.parametrize("name", ["heads.cross_entropy", "heads.average_k"])
def test_a_head_has_its_weights(name):
    function, arrays, weights = compiled.function_with_arrays(compiled._cases_of("h100")[name], 10)
    assert {array.shape for array in weights.values()} == {(compiled.WIDTH, 10)}
    _, slopes = jax.eval_shape(function, arrays, weights)
    of_features, of_weights = slopes
    assert of_features.shape == (compiled.BATCH, compiled.WIDTH)
    assert {name: slope.shape for name, slope in of_weights.items()} == {
        name: array.shape for name, array in weights.items()
    }


def test_the_best_classes_are_accounted_for_without_a_gradient():
    case = compiled._cases_of("h100")["heads.top_k"]
    scores, classes = jax.eval_shape(*compiled.function_with_arrays(case, 10))
    assert scores.shape == classes.shape == (compiled.BATCH, 3)
