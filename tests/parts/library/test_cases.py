"""Every public function has a case, whose arguments are all of its own."""

import inspect

from tests.cases import CASES_WITH_HEADS
from tests.cases.case import public_functions

# Parameters that may not be traced, and data with conventions that the batteries test.
UNRANGED = frozenset(
    [
        "authors",
        "axis",
        "axis_name",
        "block_size",
        "bound",
        "by",
        "calibration_log_weights",
        "calibration_scores",
        "calibration_outlier_scores",
        "class_axis_name",
        "conformity",
        "counted",
        "delta",
        "depth",
        "error",
        "few",
        "head",
        "hinge",
        "implementation",
        "k",
        "key",
        "kind",
        "known_features",
        "known_to",
        "level",
        "loss",
        "loss_matrix",
        "many",
        "means",
        "method",
        "names",
        "new_from",
        "noise",
        "num_candidates",
        "num_classes",
        "num_examples",
        "num_groups",
        "num_clusters",
        "num_labels",
        "num_nodes",
        "num_rounds",
        "num_samples",
        "num_steps",
        "num_voters",
        "proposal_head",
        "quantile",
        "quantiles",
        "seen_once",
        "sizes",
        "softmax_top_1",
        "swap",
        "taxonomy",
        "threshold",
        "unpenalized_ranks",
        "where",
        "whitening",
    ]
)


def test_every_public_function_has_a_case():
    assert {case.public for case in CASES_WITH_HEADS} == {*public_functions()}
    assert len({case.name for case in CASES_WITH_HEADS}) == len(CASES_WITH_HEADS)


def test_cases_know_the_range_of_every_parameter():
    for name, function in public_functions().items():
        cases = [case for case in CASES_WITH_HEADS if case.public == name]
        given = {argument for case in cases for argument in (*case.arrays, *case.parameters)}
        arrays = {argument for case in cases for argument in case.arrays}
        ranged = {argument for case in cases for argument in case.ranges}
        parameters = {*inspect.signature(function).parameters}
        assert given <= parameters, name
        # A range is tested with a value within it.
        assert ranged <= given, name
        assert parameters <= arrays | ranged | UNRANGED, name
