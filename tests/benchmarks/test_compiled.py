"""The programs of the account are those of the cases, on each device."""

from benchmarks import compiled


def test_every_case_has_its_programs():
    def wanted(public, classes):
        found = compiled._wanted("h100", [public], classes, (1, 5))
        return [(one.num_classes, one.rank) for one in found.values() if one.case == public]

    assert wanted("losses.average_k", (100, 1000)) == [(100, 1), (100, 5), (1000, 1), (1000, 5)]
    assert wanted("losses.cross_entropy", (100,)) == [(100, None)]


def test_only_tpus_have_the_kernel():
    kernel = "losses.noised_top_k_hinge-by a kernel"
    assert [kernel in compiled._cases_of(device) for device in ("v5e", "h100")] == [True, False]
