"""The programs of the account are those of the cases, on each device."""

import json

import pytest

from benchmarks import compiled
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
    # A bitonic or odd-even network has no sort; NeuralSort ranks all classes, whatever K.
    with_rank = {name.split(",")[0] for name in programs if "K" in name}
    assert {row[0].strip("`") for row in rows} & with_rank <= {
        "operators.relaxed_ranks-neural_sort"
    }
