"""What is checked in the data of a run before anything is written."""

from types import SimpleNamespace

import numpy as np
import pytest

from train.assembly import data_checks
from train.data.records import Split
from train.data.truths import SEVERAL, Truths
from train.foundation.errors import UserError

# Few training images of class 0, and many of the others.
COUNTS = np.array([3, 200, 300])
NO_VALUE = "config.select_by must be .* has no value"


def check(select_by, validation, unreadable):
    data = SimpleNamespace(
        config=SimpleNamespace(select_by=select_by),
        dataset=SimpleNamespace(validation=validation),
        class_counts=COUNTS,
    )
    data_checks._check_selects(data, {"validation": dict.fromkeys(unreadable)})


def test_unreadable_images_of_validation_have_no_class_to_select_by():
    validation = Split(np.zeros((3, 1)), np.array([0, 1, 2]))
    check("few_top_1_accuracy", validation, [1, 2])
    with pytest.raises(UserError, match=NO_VALUE):
        check("few_top_1_accuracy", validation, [0])


def test_a_class_may_occur_beside_a_rarer_one():
    # The rarest label stands for each of the two examples.
    truths = Truths(np.array([[0, 1], [0, 2]]), np.full((2, 2), 0.5, np.float32), SEVERAL)
    validation = Split(np.zeros((2, 1)), truths.labels, truths=truths)
    check("many_top_1_accuracy", validation, [])
    with pytest.raises(UserError, match=NO_VALUE):
        check("many_top_1_accuracy", validation, [0, 1])
