"""What has grown in the account of compiled programs is named."""

from benchmarks import accounts, compiled

NOTHING = {"sorts": 0, "loops": 0, "messages": 0, "temporary": 0}


def test_a_sort_a_loop_or_memory_more_is_named():
    before = dict.fromkeys(("a, 100, K 5", "b, 100", "c, 100", "d, 100", "e, 100"), NOTHING)
    before["f, 100"] = {"failed": "so"}
    now = {
        "a, 100, K 5": {**NOTHING, "sorts": 1},
        "b, 100": {**NOTHING, "loops": 2},
        "c, 100": {**NOTHING, "temporary": 10**6},
        # As much as another version of a compiler may pack otherwise.
        "d, 100": {**NOTHING, "temporary": 1000},
        "e, 100": {"failed": "more than 600 s"},
        "f, 100": {"failed": "so"},
        "g, 100, K 5": {**NOTHING, "sorts": 2},
        "h, 100": {**NOTHING, "sorts": 2},
    }
    assert list(accounts.growth(before, now)) == [
        "a, 100, K 5: sorts grew from 0 to 1",
        "b, 100: loops grew from 0 to 2",
        "c, 100: temporary grew from 0 to 1,000,000",
        "e, 100: more than 600 s",
        "g, 100, K 5: is new and has 2 sorts",
    ]


def test_every_case_has_its_programs():
    def wanted(public, classes):
        found = compiled._wanted("h100", [public], classes, (1, 5))
        return [(one.num_classes, one.rank) for one in found.values() if one.case == public]

    assert wanted("losses.average_k", (100, 1000)) == [(100, 1), (100, 5), (1000, 1), (1000, 5)]
    assert wanted("losses.cross_entropy", (100,)) == [(100, None)]


def test_only_tpus_have_the_kernel():
    kernel = "losses.noised_top_k_hinge-by a kernel"
    assert [kernel in compiled._cases_of(device) for device in ("v5e", "h100")] == [True, False]
