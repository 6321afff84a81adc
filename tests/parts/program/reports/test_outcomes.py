"""The outcomes of a split: what the metrics take of them, and files that are damaged."""

import re

import numpy as np
import pytest

from train.foundation.errors import UserError
from train.reports.metric import Metric
from train.reports.outcomes import Outcomes

OUTCOMES = Outcomes(
    labels=np.array([1, 0, 1, 2], np.int32),
    ranks=np.array([0, 2, 3, 1], np.int32),
    average_ks=np.array([1, 5], np.int32),
    in_average_sets=np.array([[True, False, False, False], [True, True, False, True]]),
    average_set_sizes=np.array([[1, 1, 1, 1], [4, 5, 5, 6]], np.int32),
)


@pytest.mark.parametrize("average", ["micro", "macro", "few"])
def test_hits_are_of_the_sets_of_the_metric(average):
    for k, expected in ((1, [1, 0, 0, 0]), (2, [1, 0, 0, 1]), (3, [1, 1, 0, 1])):
        assert OUTCOMES.hits(Metric.accuracy("top", k, average)).tolist() == expected
    for row, k in enumerate((1, 5)):
        found = OUTCOMES.hits(Metric.accuracy("average", k, average))
        assert found.tolist() == OUTCOMES.in_average_sets[row].tolist()
    assert found.dtype == np.bool_


def test_a_file_that_is_not_there_or_is_damaged_is_named(tmp_path):
    path = tmp_path / "outcomes_test.npz"
    with pytest.raises(UserError, match=f"^there is no {re.escape(str(path))}: the run is not fin"):
        Outcomes.read(path)
    OUTCOMES.write(path)
    whole = path.read_bytes()
    damaged = bytearray(whole)
    # In the middle of the labels; the archive has their checksum.
    damaged[len(whole) // 8] ^= 255
    other = tmp_path / "other.npz"
    np.savez(other, labels=OUTCOMES.labels)
    for content in (whole[: len(whole) // 2], b"", b"\0" * 100, damaged, other.read_bytes()):
        path.write_bytes(content)
        with pytest.raises(UserError, match=f"^{re.escape(str(path))} has no outcomes of a split"):
            Outcomes.read(path)
    path.write_bytes(whole)
    for name, array in vars(Outcomes.read(path)).items():
        np.testing.assert_array_equal(array, getattr(OUTCOMES, name), strict=True)
